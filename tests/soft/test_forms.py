"""One frame in several forms (dense, sparse, categories, text): the same predictions in a fold."""

from collections.abc import Callable, Iterator
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


def _numeric(frame: pd.DataFrame) -> Iterator[Any]:
    """Forms of the indicators of the same frame, one of them 0 in all training rows of some folds."""
    numbers = pd.get_dummies(frame, dtype=float)
    values = numbers.to_numpy()
    yield values
    yield scipy.sparse.csr_array(values)
    yield scipy.sparse.csc_matrix(values)
    rows, columns = np.nonzero(np.ones_like(values))  # zeros are stored, too, and each value in two halves
    halves = np.concatenate([0.5 * values.ravel()] * 2)
    yield scipy.sparse.coo_array((halves, (np.tile(rows, 2), np.tile(columns, 2))), shape=values.shape)
    yield numbers
    yield numbers.astype(pd.SparseDtype(float, 0.0))
    yield numbers.astype(pd.SparseDtype(float, np.nan))


@pytest.mark.parametrize("forms", [_labelled, nightly(_numeric)])
@pytest.mark.parametrize("model", ["regression", nightly("tree")])
@pytest.mark.parametrize("seed", [0, nightly(1), nightly(2)])
def test_forms_of_one_frame_give_one_model(
    seed: int, model: str, forms: Callable[[pd.DataFrame], Iterator[Any]]
) -> None:
    frame, y = _simulated(seed)
    test = stratified_folds(y.event, 3, seed) == 0
    curves = []
    for X in forms(frame):
        rows = X.tocsr() if scipy.sparse.issparse(X) else X
        fitted = MODELS[model].fit(rows[~test], y[~test])
        curves.append(fitted.predict_survival_function(rows[test], [0.3, 1.0]))
    assert np.isfinite(curves[0]).all()
    for number, found in enumerate(curves):
        np.testing.assert_allclose(found, curves[0], rtol=0, atol=1e-10, err_msg=f"form {number}")
