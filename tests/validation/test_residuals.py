"""Residuals and dfbeta against R's survreg, against refits, and where they have no value."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sstorch import Columns, Penalties, PrognosticTree, Surv, SurvivalRegression, inference
from sstorch.exceptions import ConfigError
from sstorch.validation import residuals

HERE = Path(__file__).parent
IN_R: dict[str, Any] = json.loads((HERE / "residuals_in_r.json").read_text())
ROWS = pd.read_csv(HERE.parent / "inference" / "inference_in_r.csv")
X, Y = ROWS[["age", "marker", "arm"]], Surv(ROWS["time"], ROWS["event"])


def regression(leaf: str = "weibull", **penalties: float) -> SurvivalRegression:
    return SurvivalRegression(leaf, Penalties(**({"ridge": 0.0} | penalties)), Columns(numeric="linear"))


@pytest.fixture(scope="module")
def weibull() -> SurvivalRegression:
    return regression().fit(X, Y)


def test_residuals_of_weibull_are_those_of_survreg(weibull: SurvivalRegression) -> None:
    # R has positive residuals for survival that is longer than expected.
    deviance = residuals(weibull, X, Y, "deviance")["event"][:40]
    assert -deviance.to_numpy() == pytest.approx(np.array(IN_R["deviance"]), abs=1e-6)
    order = [*((name, "per unit") for name in ("age", "marker")), ("arm", "both vs control")]
    dfbeta = residuals(weibull, X, Y, "dfbeta")[[*order, ("arm", "drug vs control")]][:40]
    assert dfbeta.to_numpy() == pytest.approx(np.array(IN_R["dfbeta"]), abs=1e-7)


def test_residuals_sum_to_zero_at_the_maximum(weibull: SurvivalRegression) -> None:
    labels = [f"row {k}" for k in range(len(X))]
    outcome = Surv(ROWS["time"].to_numpy(), ROWS["event"].to_numpy())
    martingale = residuals(weibull, X.set_axis(labels), outcome)
    assert martingale["event"].sum() == pytest.approx(0, abs=1e-6)
    assert list(martingale.index) == labels
    hazard = residuals(weibull, X, Y, "cox_snell")["event"].to_numpy()
    at_own_time = weibull.predict_survival_function(X, times=ROWS["time"].to_numpy()).diagonal()
    assert hazard == pytest.approx(-np.log(at_own_time), rel=1e-9)


def test_dfbeta_is_the_change_by_a_refit_without_the_row() -> None:
    options = {"ridge": 0.002, "roughness": 0.01}
    entry = np.where(np.arange(len(X)) % 3 == 0, 0.3 * ROWS["time"], 0.0)
    weight = np.where(np.arange(len(X)) % 5 == 0, 2.0, 1.0)
    y = Surv(ROWS["time"], ROWS["event"], entry=entry)
    model = regression("log_logistic", **options).fit(X, y, weight)
    found = residuals(model, X, y, "dfbeta", weight)
    full = inference.coefficients(model)["estimate"][found.columns]
    moved, exact = [], []
    for row in found.abs().sum(axis=1).sort_values().index[5::25]:
        kept = np.arange(len(X)) != row
        fewer = regression("log_logistic", **options).fit(X[kept], y[kept], weight[kept])
        exact.append(full - inference.coefficients(fewer)["estimate"][found.columns])
        moved.append(found.loc[row])
    # One Newton step is short by the leverage of the row.
    errors = np.array(inference.coefficients(model)["standard error"][found.columns])
    one_step, refitted = np.array([moved, exact]) / errors
    assert np.abs(one_step - refitted).max() < 0.1 * np.abs(refitted).max()
    assert np.corrcoef(one_step.ravel(), refitted.ravel())[0, 1] > 0.995


def test_competing_causes_have_residuals_of_their_own() -> None:
    cause = np.where(ROWS["event"] == 0, 0, 1 + (np.arange(len(X)) % 2))
    y = Surv(ROWS["time"], cause, causes=("relapse", "death"))
    model, single = regression().fit(X, y), Surv(ROWS["time"], cause == 1)
    both = residuals(model, X, y)
    assert list(both.columns) == ["relapse", "death"]
    other = residuals(regression().fit(X, single), X, single)["event"]
    assert both["relapse"].to_numpy() == pytest.approx(other.to_numpy(), abs=1e-6)
    assert residuals(model, X, y, "dfbeta").columns.names == ["cause", "term", "contrast"]
    with pytest.raises(ConfigError, match="kind must be one of martingale"):
        residuals(model, X, y, "score")  # type: ignore[arg-type]


def test_dfbeta_of_groups_has_their_numbers() -> None:
    rng, arm = np.random.default_rng(0), np.arange(200) % 2
    x = rng.normal(size=200)
    time = rng.weibull(1.2, 200) * np.exp(np.where(arm == 1, 1.0 + 1.5 * x, -1.5 * x))
    frame, y = pd.DataFrame({"arm": arm, "x": x}), Surv(np.minimum(time, 4.0), time <= 4.0)
    tree = PrognosticTree(1, "weibull", "residuals", columns=Columns(numeric="linear")).fit(frame, y)
    assert tree.tree_.group_numbers.tolist() == [2, 1]  # from left to right
    size = residuals(tree, frame, y, "dfbeta").abs().groupby(tree.apply(frame)).mean()
    for group in (1, 2):
        assert size[str(group)]["x", "per unit"].idxmax() == group
