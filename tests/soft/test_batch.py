"""One batch of settings compared with a batch for each of them, and the trained trees of a batch."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

from sstorch import SoftSurvivalTree, Surv, SurvivalData, SurvivalRegression
from sstorch.data import Schema
from sstorch.data.design_matrix import DesignMatrix
from sstorch.fitted.tree import FittedTree, Prediction
from sstorch.optim import Joint, LBFGSOptions, Nodec
from sstorch.soft.batch import train_batch
from sstorch.soft.problems import fit_preprocessors, gate_deviations, stack_splits
from sstorch.soft.settings import Coefficients
from tests.batches import distribution

GRID = [Coefficients(ridge, gate_ridge) for ridge in (1e-3, 0.1) for gate_ridge in (1e-3, 0.01)]
# Long runs over rough ground amplify rounding; so many iterations of all parameters do not.
SHORT = Joint(LBFGSOptions(max_iterations=15))


@pytest.mark.parametrize(("depth", "trainer"), [(0, "nodec"), (1, Joint()), (2, SHORT)])
def test_settings_are_a_dimension_of_the_batch(
    small_data: SurvivalData, depth: int, trainer: str | Joint
) -> None:
    """Each tree is that of a batch of its own setting."""
    splits = [small_data.subset(range(90)), small_data.subset(range(30, 120))]
    settings = SoftSurvivalTree(depth=depth, trainer=trainer, init="random", n_starts=2)._batch_settings()
    batch = train_batch(splits, settings, coefficients=GRID)
    assert batch.tree.n_problems == 2 * len(GRID) * 2
    times = torch.tensor([5.0, 20.0, 60.0], dtype=torch.float64)
    for k, own in enumerate(GRID):
        changed = replace(settings, ridge=own.ridge, gate_ridge=own.gate_ridge)
        assert changed.coefficients == own
        alone = train_batch(splits, changed)
        for split in range(2):
            there = torch.tensor([batch.position(split, start, k) for start in range(2)])
            here = torch.tensor([alone.position(split, start) for start in range(2)])
            # Starts may end in one point, or in its mirror image: rounding says which is the best.
            both = [batch.best_start(split, k), alone.best_start(split)]
            best, other = alone.objective[here[both]]
            torch.testing.assert_close(best, other, rtol=1e-6, atol=1e-8)
            torch.testing.assert_close(batch.objective[there], alone.objective[here], rtol=1e-6, atol=1e-8)
            rows = torch.as_tensor(batch.preprocessors[split].transform(small_data.frame))
            curves, others = (
                found.tree.select(some)(rows).most_probable().survival(times)
                for found, some in ((batch, there), (alone, here))
            )
            torch.testing.assert_close(curves, others, rtol=0, atol=1e-3 if depth else 1e-5)


def test_deviations_of_gates_are_those_of_the_rows_of_each_split(small_data: SurvivalData) -> None:
    frame, weight = small_data.frame.assign(constant=1.0), np.where(np.arange(120) % 2, 1.0, 3.0)
    whole = SurvivalData(frame, small_data.y)
    weighted = SurvivalData(frame, small_data.y.weighted(weight))
    splits = [weighted.subset(range(70)), whole.subset(range(30, 120))]
    settings = SoftSurvivalTree(leaf="log_logistic", init="random", n_starts=2)._batch_settings()
    preprocessors = fit_preprocessors(splits, settings, Schema.of(frame))
    features = [each.transform(part.frame) for each, part in zip(preprocessors, splits, strict=True)]
    x = DesignMatrix.stack(features)
    found = gate_deviations(*stack_splits(splits, x, preprocessors[0], settings)).numpy()
    for k, (part, z) in enumerate(zip(splits, features, strict=True)):
        mean = np.average(z, axis=0, weights=part.sample_weight)
        deviation = np.sqrt(np.average((z - mean) ** 2, axis=0, weights=part.sample_weight))
        expected = np.where(deviation > 0, deviation, 1.0)
        assert (deviation == 0).any()
        np.testing.assert_allclose(found[2 * k : 2 * k + 2], [expected, expected], rtol=1e-12)


TREE = SoftSurvivalTree(depth=1, trainer=Nodec(macro_iterations=1), init="random", n_starts=3)
TIMES = np.array([2.0, 20.0, 60.0])


def _fitted(data: SurvivalData, prediction: Prediction = "hbp", **changes: object) -> FittedTree:
    batch = train_batch([data], clone(TREE).set_params(**changes)._batch_settings())
    return batch.fitted(0, 1, prediction=prediction)


@pytest.mark.parametrize("prediction", ["hbp", "mixture"])
@pytest.mark.parametrize("kind", ["survival", "cumulative_hazard", "hazard", "log_hazard"])
def test_curves_in_chunks_are_those_of_the_module(
    small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch, prediction: Prediction, kind: Any
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
    np.testing.assert_array_equal(tree.curves(x, TIMES, kind), shared)
    monkeypatch.setattr("sstorch.fitted.tree._CHUNK_ELEMENTS", 100)
    np.testing.assert_allclose(tree.curves(x, TIMES, kind), shared, rtol=1e-12)
    np.testing.assert_allclose(tree.curves(x, own_times, kind), separate, rtol=1e-12)
    assert tree.curves(x[:0], TIMES, kind).shape == (0, 3)


def test_no_rows_have_no_predictions(small_data: SurvivalData) -> None:
    """Also where splines are inverted, and at times of each row."""
    tree, none = SurvivalRegression("spline_ph").fit(small_data.frame, small_data.y), small_data.frame[:0]
    assert tree.predict_quantile(none).shape == tree.predict_rmst(none, 9.0, after=1.0).shape == (0,)
    assert tree.predict_survival_function(none, TIMES, after=[]).shape == (0, 3)


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
