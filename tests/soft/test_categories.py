"""Categories as codes, indicators, text and sparse columns: one model."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from torch import Tensor

from sstorch import Columns, PrognosticTree, Surv, SurvivalRegression, memory
from sstorch.checks import blocks
from sstorch.data import Schema, SurvivalData, folds_of, preprocessing
from sstorch.data.folds import stratified_folds
from sstorch.exceptions import ConfigError
from sstorch.soft.batch import train_batch
from tests.conftest import nightly

pytestmark = pytest.mark.filterwarnings("ignore::sstorch.exceptions.DataWarning")


def simulated(n: int, levels: int, seed: int, missing: bool = True) -> tuple[pd.DataFrame, Surv]:
    """Numbers, two categories, one of them of few levels, and times that depend on both."""
    rng = np.random.default_rng(seed)
    code = np.minimum(rng.exponential(levels / 4, n).astype(int), levels - 1)
    frame = pd.DataFrame(rng.normal(size=(n, 2)).round(2), columns=["a", "b"])
    frame.insert(1, "site", pd.Categorical.from_codes(code, [f"s{k:02d}" for k in range(levels)]))
    frame["stage"] = rng.choice(["I", "II", "III"], n)
    if missing:
        frame.loc[rng.integers(0, n, 3), "site"] = np.nan
        frame.loc[rng.integers(0, n, 3), "a"] = np.nan
    effect = frame.a.fillna(0) * (frame.b > 0) + rng.normal(size=levels)[code]
    time = rng.weibull(1.3, n) * np.exp(-0.5 * effect)
    end = rng.uniform(0.5, 3, n)
    return frame, Surv(np.minimum(time, end) + 1e-3, time <= end)


@pytest.fixture
def indicators(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """All categories as indicators."""
    monkeypatch.setattr(preprocessing, "CODED_LEVELS", 10**9)
    return monkeypatch


@pytest.mark.parametrize("teacher", ["residuals", "predictor"])
def test_tree_of_codes_is_that_of_indicators(teacher: str, indicators: pytest.MonkeyPatch) -> None:
    frame, y = simulated(400, 30, seed=3)
    new = frame.assign(site=frame.site.cat.add_categories("other").where(frame.index % 7 > 0, "other"))
    plain = PrognosticTree(depth=2, teacher=teacher).fit(frame, y)
    expected = plain.predict(new), plain.apply(new), plain.predict_leaf_proba(new), plain.summary()
    indicators.undo()
    coded = PrognosticTree(depth=2, teacher=teacher).fit(frame, y)
    assert coded.preprocessor_.encode(frame).shape == plain.preprocessor_.transform(frame).shape
    np.testing.assert_allclose(coded.predict(new), expected[0], rtol=1e-10)
    np.testing.assert_array_equal(coded.apply(new), expected[1])
    np.testing.assert_allclose(coded.predict_leaf_proba(new), expected[2], atol=1e-10)
    assert coded.summary() == expected[3]
    assert plain.choice_ is not None
    assert coded.choice_ is not None
    pd.testing.assert_frame_equal(coded.choice_.penalties, plain.choice_.penalties, rtol=1e-8)


@pytest.mark.nightly
def test_folds_of_codes_are_those_of_indicators(indicators: pytest.MonkeyPatch) -> None:
    # Splits of different lengths, in small blocks, so that some blocks are beyond the rows of a split.
    frame, y = simulated(200, 25, seed=1)
    data = SurvivalData(frame, y)
    fold = folds_of(data, 3, 0)
    splits = [data.subset(np.flatnonzero(fold < 2)), data.subset(np.flatnonzero(fold == 1)), data]
    settings = PrognosticTree(depth=1, leaf="weibull")._batch_settings()
    risks = []
    for coded in (False, True):
        if coded:
            indicators.undo()
            indicators.setattr("sstorch.data.design_matrix.blocks", partial(blocks, elements=2000))
            indicators.setattr("sstorch.optim.linear_hazards._ELEMENTS", 3000)
        batch = train_batch(splits, settings, Schema.of(frame))
        trees = [batch.fitted(split, 0) for split in range(3)]
        risks.append([tree.risk(tree.encode(data.frame), data.event_times) for tree in trees])
    np.testing.assert_allclose(risks[1], risks[0], rtol=1e-10)


def test_fit_beyond_memory_raises_before_rows_are_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    frame, y = simulated(60, 20, seed=1)
    monkeypatch.setattr(memory, "_SMALL", 0)
    monkeypatch.setenv(memory.VARIABLE, "20kB")
    with pytest.raises(ConfigError, match=r"60 rows with .* take .*fewer"):
        SurvivalRegression("weibull").fit(frame, y)


def test_category_of_a_product_is_not_coded() -> None:
    frame, y = simulated(120, 20, seed=1, missing=False)
    model = SurvivalRegression("weibull", columns=Columns(interactions=[("site", "a")])).fit(frame, y)
    features = model.preprocessor_.encode(frame)
    assert isinstance(features, Tensor)
    np.testing.assert_array_equal(features, model.preprocessor_.transform(frame))


NAMES = ["site", "stage", "again"]
MODELS = {"regression": SurvivalRegression("weibull"), "tree": PrognosticTree(depth=1, leaf="weibull")}


def forms(frame: pd.DataFrame) -> Iterator[Any]:
    """One frame of objects in several forms; the first is the reference."""
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
@pytest.mark.parametrize("levels", [18, nightly(3), nightly(25)])  # those of more than 16 are codes
def test_forms_of_one_frame_give_one_model(levels: int, model: str) -> None:
    frame, y = simulated(120, levels, seed=levels)
    frame = frame.astype({"site": object}).assign(again=frame["stage"], rare=np.eye(120)[:, 7])
    test = stratified_folds(y.event, 3, 0) == 0
    curves = []
    for X in forms(frame):
        fitted = MODELS[model].fit(X[~test], y[~test])
        curves.append(fitted.predict_survival_function(X[test], [0.3, 1.0]))
    assert np.isfinite(curves[0]).all()
    for number, found in enumerate(curves):
        np.testing.assert_allclose(found, curves[0], rtol=0, atol=1e-10, err_msg=f"form {number}")
    values = pd.get_dummies(frame, dtype=float).to_numpy()
    expected, found = (
        MODELS["regression"].fit(X, y).predict_survival_function(X, [0.3, 1.0])
        for X in (values, scipy.sparse.csr_array(values))
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
