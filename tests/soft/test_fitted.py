"""The trained tree without an estimator, and how often rows are encoded and tables of nodes are made."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from sstorch import SoftSurvivalTree
from sstorch.data import Surv, SurvivalData
from sstorch.fitted.tree import FittedTree, Prediction
from sstorch.optim import Nodec
from sstorch.soft.batch import train_batch
from tests.batches import distribution

TREE = SoftSurvivalTree(depth=1, trainer=Nodec(macro_iterations=1), init="random", n_starts=3)
TIMES = np.array([2.0, 20.0, 60.0])


def _fitted(data: SurvivalData, prediction: Prediction = "hbp", **changes: object) -> FittedTree:
    batch = train_batch([data], clone(TREE).set_params(**changes)._batch_settings())
    return batch.fitted(0, 1, prediction=prediction)


@pytest.mark.parametrize("prediction", ["hbp", "mixture"])
@pytest.mark.parametrize("kind", ["survival", "cumulative_hazard", "hazard", "log_hazard"])
def test_curves_in_chunks_are_those_of_the_module(
    small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch, prediction: Prediction, kind: str
) -> None:
    """At times that all rows share, and at times of each row."""
    tree = _fitted(small_data, prediction)
    x = tree.encode(small_data.frame)
    own_times = np.stack([small_data.time, small_data.time / 2], axis=1)
    with torch.no_grad():
        shared, separate = (
            getattr(distribution(tree.module, x, prediction), kind)(torch.as_tensor(at)).numpy()
            for at in (TIMES, own_times)
        )
    np.testing.assert_array_equal(tree.curves(x, TIMES, kind), shared)  # type: ignore[arg-type]
    monkeypatch.setattr("sstorch.fitted.tree._CHUNK_ELEMENTS", 100)
    np.testing.assert_allclose(tree.curves(x, TIMES, kind), shared, rtol=1e-12)  # type: ignore[arg-type]
    np.testing.assert_allclose(tree.curves(x, own_times, kind), separate, rtol=1e-12)  # type: ignore[arg-type]
    assert tree.curves(x[:0], TIMES, kind).shape == (0, 3)  # type: ignore[arg-type]


def test_likelihood_with_entries_and_weights(small_data: SurvivalData) -> None:
    tree = _fitted(small_data, "mixture")
    x, (time, event) = tree.encode(small_data.frame), (small_data.time, small_data.event)
    entry, weight = np.where(np.arange(120) % 2, time / 3, 0.0), np.linspace(0.5, 2, 120)
    at = (np.stack([time, entry], axis=1), np.arange(120))
    hazard = tree.curves(x, at[0], "cumulative_hazard") @ [1.0, -1.0]
    rows = event * np.log(tree.curves(x, time[:, None], "hazard")[:, 0]) - hazard

    def value(entry: object, weight: object = None) -> float:
        outcome = Surv(time, event, entry=entry)
        return tree.log_likelihood(x, SurvivalData(small_data.frame, outcome, sample_weight=weight))

    assert value(entry, weight) == pytest.approx(np.average(rows, weights=weight), rel=1e-12)
    assert value(0 * time) == value(None)
    assert value(entry) != value(None)


def test_falling_curves_are_in_double_precision(small_data: SurvivalData) -> None:
    tree = _fitted(small_data, depth=0, leaf="spline_ph", dtype="float32")
    x, times = tree.encode(small_data.frame), np.linspace(1, 100, 200)
    plain, falling = tree.curves(x, times), tree.falling_curves(x, times)
    assert (plain.dtype, falling.dtype) == (np.float32, np.float64)
    np.testing.assert_array_equal(falling, plain)
