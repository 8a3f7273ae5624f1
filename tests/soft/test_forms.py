"""One frame in several forms (dense, sparse, categories, text): the same predictions in a fold."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from sstorch import PrognosticTree, Surv, SurvivalRegression
from sstorch.data.folds import stratified_folds
from tests.conftest import nightly

pytestmark = pytest.mark.filterwarnings("ignore::sstorch.exceptions.DataWarning")

MODELS = {"regression": SurvivalRegression("weibull"), "tree": PrognosticTree(depth=1, leaf="weibull")}
NAMES = ["site", "stage", "again"]


def _simulated(seed: int, n: int = 120) -> tuple[pd.DataFrame, Surv]:
    """Numbers, one of them mostly 0; categories with rare levels, a copy of one, and missing values."""
    rng = np.random.default_rng(seed)
    n_levels = int(rng.choice([3, 18, 25]))  # those of more than 16 are stored as codes
    code = np.minimum(rng.exponential(n_levels / 4, n).astype(int), n_levels - 1)
    code[0] = n_levels - 1
    frame = pd.DataFrame({"a": rng.normal(size=n).round(2), "rare": 0.0})
    frame.loc[rng.integers(0, n, 2), "rare"] = 1.0
    frame["site"] = pd.Series(np.array([f"s{k:02d}" for k in range(n_levels)])[code], dtype=object)
    frame["stage"] = pd.Series(rng.choice(["I", "II", "III"], n), dtype=object)
    frame.loc[rng.integers(0, n, 4), "site"] = np.nan
    frame["again"] = frame["stage"]
    effect = frame["a"] + rng.normal(size=n_levels)[code]
    time, end = rng.weibull(1.3, n) * np.exp(-0.5 * effect), rng.uniform(0.5, 3, n)
    return frame, Surv(np.minimum(time, end) + 1e-3, time <= end)


def _labelled(frame: pd.DataFrame) -> Iterator[Any]:
    """Forms of a frame with categories; the first is the reference."""
    yield frame
    categories = frame.astype(dict.fromkeys(NAMES, "category"))
    yield categories
    yield frame.astype(dict.fromkeys(NAMES, "string"))
    yield frame.where(frame.notna(), None)
    yield categories.assign(site=categories["site"].cat.add_categories(["unused", "other"]))
    yield frame.assign(
        **{name: pd.Categorical(frame[name], sorted(frame[name].dropna().unique())[::-1]) for name in NAMES}
    )
    yield frame.assign(rare=pd.arrays.SparseArray(frame["rare"], fill_value=0.0))


@pytest.mark.parametrize("model", ["regression", nightly("tree")])
@pytest.mark.parametrize("seed", [0, nightly(1), nightly(2)])
def test_forms_of_one_frame_give_one_model(seed: int, model: str) -> None:
    frame, y = _simulated(seed)
    test = stratified_folds(y.event, 3, seed) == 0
    curves = []
    for X in _labelled(frame):
        fitted = MODELS[model].fit(X[~test], y[~test])
        curves.append(fitted.predict_survival_function(X[test], [0.3, 1.0]))
    assert np.isfinite(curves[0]).all()
    for number, found in enumerate(curves):
        np.testing.assert_allclose(found, curves[0], rtol=0, atol=1e-10, err_msg=f"form {number}")


def test_sparse_rows_are_those_of_the_array() -> None:
    frame, y = _simulated(0)
    values = pd.get_dummies(frame, dtype=float).to_numpy()
    expected, found = (
        MODELS["regression"].fit(X, y).predict_survival_function(X, [0.3, 1.0])
        for X in (values, scipy.sparse.csr_array(values))
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
