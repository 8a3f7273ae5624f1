"""Model cards say what the tree is; they are kept with it."""

from pathlib import Path

import pandas as pd
import pytest

from sstorch import PrognosticTree, recalibrate
from sstorch.data import SurvivalData
from sstorch.exceptions import ConfigError
from sstorch.validation import model_card


def test_the_card_of_a_tree(gbsg2: SurvivalData, tmp_path: Path) -> None:
    tree = PrognosticTree(time_unit="days").fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
    tree.save(tmp_path)
    card = (tmp_path / "MODEL_CARD.md").read_text()
    assert card == model_card(tree) == model_card(PrognosticTree.load(tmp_path))
    for text in (
        "| trained on | 686 rows, 299 events |",
        "tgrade (I, II, III)",
        "up to 2456 days",
        "no scores",
        """tree = sstorch.PrognosticTree.load("MODEL")
rows = pandas.read_csv("rows.csv")
tree.predict_survival_function(rows, [""",
    ):
        assert text in card
    assert all(f"Group {k}: " in card for k in range(1, 5))
    scores = pd.DataFrame({"value": [0.7], "lower": [0.65], "upper": [float("nan")]}, index=["C"])
    page = model_card(tree, "html", validation=scores)
    assert "<td>.700</td>" in page
    assert "<td>.650</td>" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    elsewhere = recalibrate(tree, gbsg2.frame[:300], (gbsg2.time[:300], gbsg2.event[:300]))
    elsewhere.metrics_ = {"concordance": 0.68}
    card = model_card(elsewhere)
    assert "| recalibrated on | 300 rows" in card
    assert "Recalibrated (intercept) on 300 rows" in card
    assert "| concordance | .680 |" in card
    with pytest.raises(ConfigError, match="'markdown' or 'html', got 'pdf'"):
        model_card(tree, "pdf")  # type: ignore[arg-type]
