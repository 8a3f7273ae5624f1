"""Trees whose leaves see curves of numeric columns."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from sstorch import Columns, Penalties, SoftSurvivalTree, SurvivalRegression
from sstorch.data import SurvivalData
from sstorch.data.encodings import NaturalSpline, Piecewise
from sstorch.optim import Joint, LBFGSOptions
from sstorch.reading import export_text, gate_coefficients, leaf_coefficients
from tests.flat import soft_tree

EXACT = Joint(LBFGSOptions(gradient_tolerance=1e-10, relative_tolerance=0.0, max_evaluations=5000))
GRID = [0.0, 200.0, 800.0, 1600.0, 4000.0]


def fitted(data: SurvivalData, depth: int = 0, **parameters: object) -> SoftSurvivalTree:
    settings = {"n_starts": 1, "trainer": EXACT if depth == 0 else "joint"} | parameters
    return soft_tree(depth=depth, **settings).fit(data.frame, data.y)


def bends(x: pd.Series) -> np.ndarray:
    knots = np.unique(np.quantile(x, [0.25, 0.5, 0.75]))
    return np.maximum(x.to_numpy()[:, None] - knots[(knots > x.min()) & (knots < x.max())], 0)


@pytest.mark.parametrize("leaf", ["exponential", "weibull"])
def test_depth_0_is_the_likelihood_on_the_same_design(leaf: str, gbsg2: SurvivalData) -> None:
    """Its maximum does not depend on how a design is written: SciPy on one made by NumPy and SciPy."""
    data = SurvivalData(gbsg2.frame[["age", "progrec", "estrec"]], gbsg2.y)
    tree = fitted(data, leaf=leaf, numeric="piecewise", ridge=0.0, roughness=0.0)
    columns = [part for name in data.frame for part in (data.frame[[name]], bends(data.frame[name]))]
    x = np.column_stack([np.ones(len(data)), *columns])
    # An orthogonal basis of the same space: columns of some splines add up to others.
    left, size, _ = np.linalg.svd(x / np.abs(x).max(axis=0), full_matrices=False)
    x = left[:, size > 1e-9 * size[0]] * np.sqrt(len(x))
    log_time, event = np.log(data.time / np.exp(np.log(data.time).mean())), data.event.astype(float)

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        shape = np.exp(theta[0]) if leaf == "weibull" else 1.0
        g = x @ theta[1:]
        hazard = np.exp(g + shape * log_time)
        value = (hazard - event * (np.log(shape) + g + (shape - 1) * log_time)).mean()
        slope = hazard - event
        of_shape = ((hazard - event) * log_time * shape - event).mean() if leaf == "weibull" else 0.0
        return value, np.r_[of_shape, x.T @ slope / len(x)]

    best = minimize(loss, np.zeros(1 + x.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-9})
    assert tree.objective_ == pytest.approx(best.fun, abs=1e-6)


@pytest.mark.parametrize("encoding", [Piecewise(4), NaturalSpline(4)], ids=str)
def test_a_large_roughness_leaves_the_straight_line(encoding: object, gbsg2: SurvivalData) -> None:
    straight, stiff = fitted(gbsg2), fitted(gbsg2, numeric=encoding, roughness=1e6)
    curves = (tree.predict_survival_function(gbsg2.frame, GRID) for tree in (stiff, straight))
    np.testing.assert_allclose(*curves, atol=1e-6)
    assert stiff.objective_ == pytest.approx(straight.objective_, abs=1e-6)
    soft = fitted(gbsg2, numeric=encoding, roughness=1e-4)
    own, line = (tree.log_likelihood(gbsg2.frame, gbsg2.y) for tree in (soft, straight))
    assert own > line


@pytest.mark.parametrize("numeric", ["auto", "spline", "piecewise", "linear"])
def test_one_number_for_ridge_shrinks_the_whole_effect(numeric: str) -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=300)})
    y = rng.exponential(np.exp(-np.sin(2 * X["x"].to_numpy()))), rng.random(300) < 0.7

    def span(ridge: float) -> float:
        columns = Columns(numeric=numeric)
        model = SurvivalRegression("weibull", Penalties(ridge=ridge), columns)
        return float(np.ptp(model.fit(X, y).predict_survival_function(X, [0.5])))

    spans = [span(ridge) for ridge in (0.01, 1.0, 1e6)]
    assert spans == sorted(spans, reverse=True)  # .393, .535, .538 with curves
    assert spans[-1] < 1e-4


ENCODED = {
    "numeric": {"age": "spline", "pnodes": "log", "progrec": "piecewise(6)"},
    "gate_numeric": {"age": "piecewise"},
    "interactions": [("age", "horTh"), ("age", "progrec")],
}


@pytest.mark.parametrize("depth", [0, 2])
def test_tables_speak_of_columns(depth: int, gbsg2: SurvivalData) -> None:
    tree = fitted(gbsg2, depth, **ENCODED)
    group = int(tree.tree_.group_numbers[0])
    table, curves = leaf_coefficients(tree).loc[group], ["s(age)", "log(pnodes)", "s(progrec)"]
    assert {*curves, "age:horTh=yes", "age:progrec", "tsize", "tgrade=III"} <= set(table.index)
    assert not [name for name in table.index if "~" in name]
    assert set(table.loc[curves, "column"]) == {"age", "pnodes", "progrec"}
    # The effect of a curve is the most it changes the predictor within the training range.
    age = np.linspace(21, 80, 2001)
    grid = gbsg2.frame.iloc[[0] * len(age)].assign(age=age, horTh="no")
    x = tree.preprocessor_.transform(grid)
    places = [k for k, f in enumerate(tree.preprocessor_.leaf_features) if f.columns == ("age",)]
    slope = tree.module_.leaf(2**depth).slope.detach().numpy()
    curve = x[:, x.shape[1] - len(slope) :][:, places] @ slope[places]
    assert abs(table.loc["s(age)", "effect"]) == pytest.approx(np.ptp(curve), rel=1e-4)
    assert np.sign(table.loc["s(age)", "effect"]) == (1 if curve.argmax() > curve.argmin() else -1)
    if depth:
        names = gate_coefficients(tree).index.unique("feature")
        assert {"s(age)", "pnodes", "progrec"} <= set(names)
        assert not {"s(progrec)", "log(pnodes)"} & set(names)
        assert " s(age)" in export_text(tree, n_terms=None)
