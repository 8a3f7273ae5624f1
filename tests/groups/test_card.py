"""Model cards state what the tree is, and are kept with it."""

from pathlib import Path

import pandas as pd
import pytest

from sstorch import PrognosticTree, recalibrate
from sstorch.exceptions import ConfigError
from sstorch.validation import model_card
from tests.groups.trees import fitted

FACTS = {
    "soft": ["| trained on | 686 rows, 299 events |", "tgrade (I, II, III)", "curves are extrapolated"],
    "exact": ["| model | Optimal survival tree with 4 leaves |", "curves keep their value", "no scores"],
    "soft causes": ["predict_cumulative_incidence(rows, ["],
    "exact causes": ["cumulative incidences of relapse and death"],
}


@pytest.mark.parametrize("kind", FACTS)
def test_card_has_facts_summary_and_use(kind: str) -> None:
    tree = fitted(kind).tree
    card = model_card(tree)
    assert all(text in card for text in FACTS[kind])
    assert tree.summary() in card
    assert f'tree = sstorch.{type(tree).__name__}.load("MODEL")' in card
    with pytest.raises(ConfigError, match="format"):
        model_card(tree, "pdf")  # type: ignore[arg-type]


def test_card_is_saved_and_has_scores(tmp_path: Path) -> None:
    tree, data = fitted("soft")
    tree.save(tmp_path)
    assert (tmp_path / "MODEL_CARD.md").read_text() == model_card(PrognosticTree.load(tmp_path))
    scores = pd.DataFrame({"value": [0.7], "lower": [0.65], "upper": [float("nan")]}, index=["C"])
    page = model_card(tree, "html", validation=scores)
    assert "<td>.700</td>" in page
    assert "<td>.650</td>" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    elsewhere = recalibrate(tree, data.frame[:300], data.y[:300])
    elsewhere.metrics_ = {"concordance": 0.68}
    card = model_card(elsewhere)
    assert "| recalibrated on | 300 rows" in card
    assert "Recalibrated (intercept) on 300 rows" in card
    assert "| concordance | .680 |" in card
