"""Models of start-stop rows: outcomes without entry or id raise, and numbers with them are right."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sstorch import (
    Columns,
    PrognosticTree,
    SoftSurvivalTree,
    Surv,
    SurvivalRegression,
    load_dataset,
    plots,
    recalibrate,
)
from sstorch.data.datasets import read_survset
from sstorch.deploy import export_calculator
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.reading import export_text
from sstorch.validation import (
    group_table,
    model_card,
    validate_groups,
)

pytest.importorskip("SurvSet", reason="the extra datasets is not installed")
CONDITION = "from time zero if the covariates stay as in the row"


@pytest.fixture(scope="module")
def csl() -> tuple[pd.DataFrame, Surv]:
    """Cirrhosis of the liver: 2481 rows of 446 subjects, whose prothrombin was measured at visits."""
    frame = read_survset("csl")
    y = Surv.of(frame, time="time2", event="event", entry="time", id="pid")
    return frame.drop(columns=["pid", "event", "time", "time2"]), y


@pytest.fixture(scope="module")
def tree(csl: tuple[pd.DataFrame, Surv]) -> SoftSurvivalTree:
    return PrognosticTree(leaf="spline_ph", columns=Columns(numeric="spline")).fit(*csl)


CALLS: dict[str, Callable[[SoftSurvivalTree, pd.DataFrame, object, Path], object]] = {
    "export_calculator": lambda tree, X, y, folder: export_calculator(tree, folder / "p.html", X, y, after=0),
    "recalibrate": lambda tree, X, y, folder: recalibrate(tree, X, y),
    "score": lambda tree, X, y, folder: tree.score(X, y),
    "plot_groups": lambda tree, X, y, folder: plots.plot_groups(tree, X, y),
    "validate_groups": lambda tree, X, y, folder: validate_groups(tree, X, y),
    "log_likelihood": lambda tree, X, y, folder: tree.log_likelihood(X, y),
}


@pytest.mark.parametrize("call", CALLS)
def test_outcome_without_entry_or_id_raises(
    call: str, tree: SoftSurvivalTree, csl: tuple[pd.DataFrame, Surv], tmp_path: Path
) -> None:
    X, y = csl
    for given, message in (
        ((y.time, y.event), "y has no entry and no id, and the model was trained on counting data"),
        (Surv(y.time, y.event, entry=y.entry), "y has no id, and the model was trained on counting data"),
    ):
        with pytest.raises(DataError, match=message):
            CALLS[call](tree, X, given, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_texts_state_the_condition_or_have_no_survival(
    tree: SoftSurvivalTree, csl: tuple[pd.DataFrame, Surv], tmp_path: Path
) -> None:
    X, _ = csl
    tree.save(tmp_path)
    for each in (tree, PrognosticTree.load(tmp_path)):
        assert f"predictions are {CONDITION}" in each.summary(details=True)
        assert str(each.explain(X.iloc[[0]])).endswith(f", {CONDITION}")
        for text in (each.describe(), export_text(each)):
            assert "median" not in text
            assert "S(" not in text
        html = each._repr_html_()
        assert f"predictions are {CONDITION}" in html
        card = model_card(each)
        assert "one row does not determine survival from time zero" in card
        assert "after=0" in card
        assert "median" not in card.split("## Groups")[1].split("## Limits")[0]


def test_competing_risks_of_start_stop_rows_ask_for_after(tmp_path: Path) -> None:
    data = load_dataset("mgus2").subset(np.arange(300))
    middle = 0.5 * data.time
    cause = np.append(0 * data.cause, data.cause)
    y = Surv(
        np.append(middle, data.time),
        cause,
        entry=np.append(0 * middle, middle),
        id=np.append(np.arange(300), np.arange(300)),
        causes=data.cause_names,
    )
    later = data.frame.assign(age=data.frame["age"] + 1)
    X = pd.concat([data.frame, later], ignore_index=True)
    tree = PrognosticTree(depth=1, leaf="weibull", columns=Columns(numeric="linear")).fit(X, y)
    tree.save(tmp_path)
    times = [50.0, 100.0]
    for each in (tree, PrognosticTree.load(tmp_path)):
        assert each.time_varying_
        for predict in (each.predict_cumulative_incidence, each.predict_survival_function):
            with pytest.raises(ConfigError, match="one row does not determine survival from time zero"):
                predict(X[:3], times)
        found = each.predict_cumulative_incidence(X[:3], times, after=0.0)
        survival = each.predict_survival_function(X[:3], times, after=0.0)
        np.testing.assert_allclose(found.sum(axis=1) + survival, 1, atol=1e-9)
        assert CONDITION in each.summary(details=True)
        assert str(each.explain(X.iloc[[0]])).endswith(CONDITION)
        assert group_table(each, X, y).shape[0] > 0
        with pytest.raises(DataError, match="y has no entry and no id"):
            group_table(each, X, Surv(y.time, cause, causes=data.cause_names))
    assert plots.plot_groups(tree, X, y)[0].get_ylabel().endswith("if the covariates stay as in the row")


def test_time_before_the_first_entry_is_named() -> None:
    """Ages from 60 on: a Weibull regression predicts deaths before, of which the rows have nothing."""
    rng = np.random.default_rng(0)
    entry = rng.uniform(60, 75, 200)
    X, y = (
        pd.DataFrame({"x": rng.normal(size=200)}),
        Surv(entry + rng.exponential(9, 200), [True] * 200, entry=entry),
    )
    with pytest.warns(DataWarning, match=r"No row is at risk before the first entry at 60.04 years"):
        model = SurvivalRegression("weibull", time_unit="years").fit(X, y)
    (text,) = model.late_fit_
    survival = model.predict_survival_function(X, [entry.min()]).mean()
    assert f"survival to it, {survival:.3f} on average" in text
    assert text in model.summary()
    entry[0] = 0.0
    assert not SurvivalRegression("weibull").fit(X, Surv(y.time, y.event, entry=entry)).late_fit_
