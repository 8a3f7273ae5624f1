"""Gates distilled from a regression, and leaves trained below gates that stay."""

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.tree import DecisionTreeRegressor

from sstorch import Columns, GatePenalties, GroupPenalties, PrognosticTree, SoftSurvivalTree, load_dataset
from sstorch.data import Schema, SurvivalData
from sstorch.data.design_matrix import DesignMatrix
from sstorch.exceptions import ConfigError
from sstorch.nn import FAMILIES, Topology
from sstorch.objective import TrainingObjective
from sstorch.optim import Distillation, Joint, LBFGSOptions, Leaves, Nodec
from sstorch.optim.joint import most_probable
from sstorch.optim.starts.regression_tree import GateColumns, regression_tree
from sstorch.optim.steps import Batch
from sstorch.optim.working_sets import leaf_step
from sstorch.reading import gate_coefficients
from sstorch.soft.batch import train_batch
from sstorch.soft.settings import BatchSettings
from sstorch.soft.trained_batch import TrainedBatch
from tests.batches import random_sample, random_tree
from tests.conftest import nightly, nightly_but
from tests.flat import soft_tree

TIGHT = LBFGSOptions(gradient_tolerance=1e-10, relative_tolerance=0.0, max_evaluations=5000)


def whas500() -> SurvivalData:
    return load_dataset("whas500")


def numbers(count: int) -> GateColumns:
    return GateColumns(tuple(np.array([j]) for j in range(count)), (False,) * count)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_regression_tree_is_that_of_scikit_learn(depth: int) -> None:
    rng = np.random.default_rng(depth)
    x = rng.normal(size=(300, 4)).round(1)
    target = x[:, 0] + np.sin(3 * x[:, 1]) + 0.1 * rng.normal(size=300)
    rows = DesignMatrix.of(x), target[None], np.full(300, 1 / 300)
    ours = regression_tree(*rows, numbers(4), Topology(depth), 0.08)
    theirs = (
        DecisionTreeRegressor(max_depth=depth, min_samples_leaf=0.08, random_state=0).fit(x, target).tree_
    )
    places, found = {0: 1}, {}
    for k in range(theirs.node_count):
        if theirs.children_left[k] >= 0:
            places[theirs.children_left[k]], places[theirs.children_right[k]] = (
                2 * places[k],
                2 * places[k] + 1,
            )
            found[places[k]] = (theirs.feature[k], theirs.threshold[k])
    assert set(ours) == set(found)
    for node, split in ours.items():
        feature, threshold = found[node]
        assert split.column == feature
        assert -split.constant / split.slope[feature] == pytest.approx(threshold, abs=1e-6)
        assert split.slope[feature] < 0  # left is below


def test_categories_are_cut_into_the_best_two_sets() -> None:
    """Of all sets of six categories and rows without one, that with the least sum of squares."""
    rng = np.random.default_rng(1)
    which = rng.integers(0, 7, 400)
    x = np.eye(7)[which][:, :6]
    target = np.array([0.3, -1.0, 2.0, 0.1, -0.9, 1.8, 0.2])[which] + rng.normal(size=400)
    weight = rng.uniform(0.5, 1.5, 400)
    weight /= weight.sum()
    rows, columns = (DesignMatrix.of(x), target[None], weight), GateColumns((np.arange(6),), (True,))
    (split,) = regression_tree(*rows, columns, Topology(1), 0.0).values()
    left = x @ split.slope + split.constant >= 0

    def within(side: np.ndarray) -> float:
        parts = (side, ~side)
        means = [np.average(target[part], weights=weight[part]) for part in parts]
        return sum(
            (weight[part] * (target[part] - mean) ** 2).sum() for part, mean in zip(parts, means, strict=True)
        )

    best = min(within(np.isin(which, own)) for k in range(1, 7) for own in combinations(range(7), k))
    assert within(left) == pytest.approx(best, rel=1e-12)
    assert all(len(np.unique(left[which == k])) == 1 for k in range(7))


@pytest.mark.parametrize("ancillary", ["constant", "linear"])
def test_shared_slopes_are_one_variable(ancillary: str) -> None:
    """The step is that of all leaves on the subspace of equal slopes: value, gradient, curvature, writing."""
    leaf = {"constant": "log_logistic", "linear": "spline_po"}[ancillary]
    tree, sample = random_tree(3, 2, leaf), random_sample(3)
    objective = TrainingObjective(
        0.3, 0.1, torch.tensor([torch.inf, torch.inf, torch.inf]), offset=0.4, fused_shape=0.2
    )
    with torch.no_grad():
        for node in tree.topology.leaves:
            tree.leaf(node).slope.copy_(tree.leaf(4).slope)
    chance = most_probable(tree, sample)
    shared = leaf_step(Batch(tree, objective, sample), 1, chance, share_slopes=True)
    own = leaf_step(Batch(tree, objective, sample), 1, chance)
    x = shared.read()
    p, m = tree.in_features, len(tree.family.shape_names)
    assert x.shape == (3, p + 4 * (1 + m))
    value, gradient = shared.value_and_gradient(x)
    torch.testing.assert_close(value, own.value_and_gradient(own.read())[0])
    moved = torch.randn(x.shape, dtype=torch.float64)
    ahead, behind = (shared.value_and_gradient(x + side * moved)[0] for side in (1e-6, -1e-6))
    difference = (ahead - behind) / 2e-6
    torch.testing.assert_close(difference, (gradient * moved).sum(-1), rtol=1e-6, atol=1e-8)
    # Second derivatives are exact here: rows of a leaf see its own parameters alone.
    (blocks,) = shared.objective.curvature(x)
    assert blocks.shape == (3, 1, x.shape[1], x.shape[1])
    torch.testing.assert_close(blocks, blocks.mT)
    shared.write(x + moved)
    slopes = torch.stack([tree.leaf(node).slope for node in tree.topology.leaves])
    assert bool((slopes == slopes[0]).all())
    torch.testing.assert_close(shared.read(), x + moved)


@pytest.mark.nightly
def test_slopes_that_are_shared_are_penalised_once() -> None:
    """With levels and shapes held together the tree is the regression, the closer the tighter they are."""
    data = whas500()
    y, times = (data.time, data.event), [100.0, 500.0, 1500.0]
    straight = {"numeric": "piecewise", "n_starts": 1, "ridge": 1e-3, "leaf": "log_logistic"}
    regression = soft_tree(depth=0, trainer=Joint(TIGHT), **straight).fit(data.frame, y)
    curves = regression.predict_survival_function(data.frame, times)
    away = []
    for held in (1e-3, 1e-1, 1e1, 1e3):
        tree = soft_tree(
            depth=2, init="distilled", trainer=Leaves(TIGHT), offset=held, fused_shape=held, **straight
        ).fit(data.frame, y)
        assert (
            np.ptp([tree.module_.leaf(node).slope.detach().numpy() for node in range(4, 8)], axis=0).max()
            == 0
        )
        away.append(np.abs(tree.predict_survival_function(data.frame, times) - curves).max())
    assert away == sorted(away, reverse=True)
    assert away[0] > 0.05
    assert away[-1] < 1e-4


@pytest.mark.parametrize("ridge", ["estimated", nightly(1e-3)])
@pytest.mark.parametrize("leaf", nightly_but({"weibull"}, FAMILIES))
def test_every_leaf_has_real_groups(leaf: str, ridge: float | str) -> None:
    data = whas500()
    penalties = GroupPenalties(ridge=ridge)
    tree = PrognosticTree(2, leaf, penalties=penalties).fit(data.frame, (data.time, data.event))
    shares = np.bincount(tree.apply(data.frame), minlength=5)[1:] / len(data)
    # Gates of residuals may leave a side too small to divide.
    n_groups = tree.choice_.n_groups if ridge == "estimated" else 4
    assert (shares >= 0.1 - 1e-9).sum() == (shares > 0).sum() == n_groups > 1
    assert np.isfinite(tree.log_likelihood(data.frame, (data.time, data.event)))
    assert tree.log_likelihood(data.frame, (data.time, data.event)) > -50


SHAPES = ((1, 0.3), (2, 0.2), (3, 0.1), (4, 0.05), (3, 0.0))


@pytest.mark.parametrize(
    ("shape", "gate_features"),
    [((2, 0.2), 2), ((3, 0.1), 1), *map(nightly, SHAPES, (1, None, 2, 1, None))],
)
def test_leaves_are_as_large_as_asked_for(shape: tuple[int, float], gate_features: int | None) -> None:
    depth, min_leaf = shape
    data = load_dataset("gbsg2")
    tree = PrognosticTree(depth=depth, min_leaf=min_leaf, gate_features=gate_features)
    tree.fit(data.frame, (data.time, data.event))
    counts = np.bincount(tree.apply(data.frame), minlength=2**depth + 1)
    assert counts[counts > 0].min() >= min_leaf * len(data) - 1e-6
    columns = gate_coefficients(tree).query("coefficient != 0").groupby("node")["column"].nunique()
    if gate_features is not None:
        assert columns.max() <= gate_features


@pytest.mark.parametrize(
    ("gate_numeric", "gate_features"), [("log", 1), nightly("piecewise", 2), nightly("spline", None)]
)
def test_gates_may_be_curved(gate_numeric: str, gate_features: int | None) -> None:
    """A gate on one column is a threshold of the column itself, or of its logarithm."""
    data = load_dataset("gbsg2")
    tree = PrognosticTree(columns=Columns(gate_numeric=gate_numeric), gate_features=gate_features)
    tree.fit(data.frame, (data.time, data.event))
    counts = np.bincount(tree.apply(data.frame), minlength=5)[1:]
    assert counts.min() >= 0.1 * len(data) - 1e-6
    if gate_features == 1:
        plain = PrognosticTree(gate_features=1).fit(data.frame, (data.time, data.event))
        # Halfway between two values is elsewhere for a logarithm, but the training rows are cut alike.
        np.testing.assert_array_equal(tree.apply(data.frame), plain.apply(data.frame))


def test_a_target_that_is_constant_makes_no_gates() -> None:
    rng = np.random.default_rng(0)
    y = (rng.exponential(size=40), np.ones(40, dtype=bool))
    tree = PrognosticTree().fit(pd.DataFrame({"x": np.ones(40)}), y)
    assert set(tree.apply(pd.DataFrame({"x": np.ones(40)}))) == {1}


def test_leaves_of_each_class_by_default() -> None:
    groups = PrognosticTree()._batch_settings()
    assert groups == BatchSettings.check(gate_ridge=0.0)
    assert (groups.init, type(groups.trainer), groups.n_starts) == ("distilled", Leaves, 1)
    assert (groups.fused, groups.offset, groups.fused_shape) == (np.inf, 0.1, 0.01)
    assert (groups.gate_features, groups.min_leaf) == (1, 0.1)
    assert groups.estimated
    gates = SoftSurvivalTree()._batch_settings()
    assert (gates.init, type(gates.trainer), gates.n_starts) == ("distilled", Leaves, 1)
    assert gates.estimated
    assert gates.trains_gates
    fixed = SoftSurvivalTree(trainer="nodec")._batch_settings()
    assert (fixed.init, fixed.trainer, fixed.n_starts) == ("distilled", Nodec(), 1)
    assert (fixed.fused, fixed.offset, fixed.fused_shape) == (0.0, 0.0, 0.0)
    assert (fixed.ridge, fixed.gate_ridge, fixed.gate_ridge_units) == (1e-3, 1e-3, "range")
    assert fixed.numeric.plain == "linear"
    assert not fixed.trains_gates
    assert SoftSurvivalTree(init="random")._batch_settings().trainer == Nodec()
    assert SoftSurvivalTree(penalties=GatePenalties(ridge=0.1))._batch_settings().ridge == 0.1
    published = SoftSurvivalTree.paper()._batch_settings()
    assert (published.init, published.trainer, published.n_starts) == ("random", Nodec.paper(), 20)


def test_distilled_starts_are_one() -> None:
    trained = SoftSurvivalTree(init="distilled", trainer="joint", n_starts=7)._batch_settings()
    assert (trained.init, trained.n_starts, trained.gate_features, trained.min_leaf) == (
        "distilled",
        1,
        1,
        0.1,
    )
    start = Distillation(gate_features=3, min_leaf=0.2)
    options = SoftSurvivalTree(init=start, trainer="joint")._batch_settings()
    assert (options.n_starts, options.gate_features, options.min_leaf) == (1, 3, 0.2)


def test_distilled_and_random_starts_are_those_of_each_kind(gbsg2: SurvivalData) -> None:
    rows = [gbsg2.subset(range(400)), gbsg2.subset(range(200, 600))]
    schema = Schema.of(gbsg2.frame)

    def starts(init: Any, n_starts: int) -> TrainedBatch:
        tree = SoftSurvivalTree(
            init=init, n_starts=n_starts, trainer=Joint(lbfgs=LBFGSOptions(max_iterations=1)), min_leaf=0.1
        )
        return train_batch(rows, tree._batch_settings(), schema)

    both, one, other = starts("distilled+random", 3), starts("distilled", 1), starts("random", 3)
    for split in range(2):
        for start in range(3):
            source, place = (one, split) if start == 0 else (other, 3 * split + start)
            expected = source.tree.select(place).state_dict()
            found = both.tree.select(both.position(split, start)).state_dict()
            for name, value in expected.items():
                torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-9)


def test_automatic_encodings_are_smooth_in_leaves_and_linear_in_gates() -> None:
    named = BatchSettings.check(numeric={"age": "auto", "nodes": "log"}, gate_numeric="auto").encodings
    assert named.leaves.plain == {"age": "smooth(5)", "nodes": "log"}
    assert named.gates.is_linear
    assert BatchSettings.check().encodings.leaves.plain == "smooth(5)"
    regression = BatchSettings.check(depth=0).encodings
    assert regression.gates == regression.leaves


def test_what_cannot_be_is_refused() -> None:
    for parameters in (
        {"trainer": "nodec", "fused": np.inf},
        {"gate_features": 0},
        {"min_leaf": 0.5},
        {"offset": np.inf},
        {"offset": -1.0},
    ):
        with pytest.raises(ConfigError):
            BatchSettings.check(**parameters)
