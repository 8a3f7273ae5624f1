from itertools import pairwise

import numpy as np
import pytest
import torch

from sstorch import SoftSurvivalTree, SurvivalData
from sstorch.nn import SoftTree
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim import Joint, LBFGSOptions, initialize_greedy, initialize_grown, problem_seed
from sstorch.optim.starts.grown import MIN_EVENTS, split_leaves
from sstorch.optim.starts.hard import StartDraw
from tests.batches import random_sample, with_entry
from tests.conftest import nightly


def _rows(n: int = 80, p: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = np.round(rng.uniform(size=(n, p)), 1)
    return x, rng.integers(0, 2, n), rng.uniform(size=n), rng.integers(0, 3, n)


def test_splits_are_the_best_of_all_on_repeated_rows() -> None:
    x, leaf, hazard, repeats = _rows()
    event = np.random.default_rng(1).uniform(size=80) < 0.7
    feature, threshold = split_leaves(
        x,
        np.argsort(x, axis=0, kind="stable"),
        leaf,
        2,
        repeats * event,
        repeats * hazard,
        np.ones(80),
        StartDraw(repeats, np.array([0, 2])),
    )
    rows = np.repeat(np.arange(80), repeats)  # a draw counts as so many rows
    for number in range(2):
        own = rows[leaf[rows] == number]

        def explained(side: np.ndarray) -> float:
            return float(event[side].sum() * np.log(event[side].sum() / hazard[side].sum()))

        gains = {}
        for j in (0, 2):
            for cut in np.unique(x[own, j])[:-1]:
                left, right = own[x[own, j] <= cut], own[x[own, j] > cut]
                if min(event[left].sum(), event[right].sum()) >= MIN_EVENTS:
                    gains[j, cut] = explained(left) + explained(right) - explained(own)
        (j, cut), _ = max(gains.items(), key=lambda item: item[1])
        assert feature[number] == j
        above = x[own, j][x[own, j] > cut].min()
        assert threshold[number] == pytest.approx((cut + above) / 2)


def test_leaves_that_cannot_be_split() -> None:
    x, leaf, hazard, _ = _rows()
    everyone = StartDraw(np.ones(80, dtype=np.int64), None)
    order = np.argsort(x, axis=0, kind="stable")
    few = (np.arange(80) < 2 * MIN_EVENTS - 1).astype(float)
    assert (split_leaves(x, order, leaf * 0, 2, few, hazard, np.ones(80), everyone)[0] == -1).all()
    constant = np.zeros_like(x)
    assert (split_leaves(constant, order, leaf, 2, np.ones(80), hazard, np.ones(80), everyone)[0] == -1).all()


def test_a_heavy_row_does_not_keep_others_from_being_split() -> None:
    x, leaf, hazard, _ = _rows()
    draw, order = StartDraw(np.ones(80, dtype=np.int64), None), np.argsort(x, axis=0, kind="stable")
    weight = np.r_[1.0, np.full(79, 0.01)]
    found = split_leaves(x, order, leaf, 2, np.ones(80), hazard, weight, draw)
    assert (found[0] >= 0).all()
    scaled = split_leaves(x, order, leaf, 2, np.ones(80), hazard, 7 * weight, draw)
    np.testing.assert_array_equal(found, scaled)


def test_late_entry_is_no_effect() -> None:
    """The time before a row was observed is not time at risk, and whoever entered late is no better off."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 3)).round(2)
    late = rng.uniform(size=400) < 0.5
    X[:, 0] = late
    entry = np.where(late, 60.0, 20.0)
    time = entry + rng.exponential(10, 400)
    tree = SoftSurvivalTree(
        1, "exponential", n_starts=1, init="grown", trainer=Joint(LBFGSOptions(max_iterations=1))
    )
    tree.fit(X, (time, np.ones(400, dtype=bool)), entry=entry)
    assert int(tree.module_.gate(1).weight.abs().argmax()) != 0


@pytest.mark.parametrize(
    ("leaf", "entry"),
    [
        ("log_logistic", True),
        nightly("spline_ph", False),
        nightly("log_logistic", False),
        nightly("spline_ph", True),
    ],
)
def test_a_level_starts_no_worse_than_the_trained_tree_above(leaf: str, entry: bool) -> None:
    sample = _strong_sample()
    sample = with_entry(sample) if entry else sample
    seeds = [problem_seed(0, 0, 0)] * 2
    objective = TrainingObjective(torch.tensor([1e-3, 1e-2], dtype=torch.float64))
    family = SoftTree(3, 1, leaf).family.prepare(
        sample.log_time[:1], sample.event[:1], sample.weight[:1], torch.zeros(1, dtype=torch.float64)
    )
    family = family.select(torch.zeros(2, dtype=torch.long))
    values = []
    for depth in range(3):
        tree = SoftTree(3, depth, family, (2,))
        initialize_grown(tree, objective, sample, seeds)
        with torch.no_grad():
            values.append(objective(tree, sample))
    # Each grows from the one before after at most 200 iterations, which only lower the objective.
    for above, below in pairwise(values):
        assert (below <= above + 1e-9).all()
    assert (values[2] < values[0] - 0.03).all()


def test_growing_finds_what_a_greedy_tree_misses() -> None:
    """An effect that turns its sign with another feature, which no feature shows alone."""
    sample = _strong_sample()
    found = {}
    for name, start in (("grown", initialize_grown), ("greedy", initialize_greedy)):
        tree, objective = SoftTree(3, 2, "weibull", (1,)), TrainingObjective(1e-3)
        own = sample.select(torch.tensor([0]))
        start(tree, objective, own, [problem_seed(0, 0, 0)])
        Joint().train(tree, objective, own)
        with torch.no_grad():
            found[name] = float(objective(tree, own))
    assert found["grown"] < found["greedy"] + 0.02


def test_starts_do_not_depend_on_the_batch_and_differ() -> None:
    sample = random_sample(6, n_splits=2, n_rows=120)
    seeds = [problem_seed(3, split, start) for split in range(2) for start in range(3)]
    batch, objective = SoftTree(3, 2, batch_shape=(6,)), TrainingObjective(1e-2, 1e-3)
    initialize_grown(batch, objective, sample, seeds)
    own = sample.select(torch.tensor([3, 4]))
    alone = SoftTree(3, 2, batch_shape=(2,))
    initialize_grown(alone, objective, own, seeds[3:5])
    with torch.no_grad():
        together = objective(batch, sample)[3:5]
        torch.testing.assert_close(objective(alone, own), together, rtol=1e-5, atol=0)
    gates = batch.gate_parameters().weight
    assert not torch.equal(gates[0], gates[1])


def test_grown_start_in_the_estimator(gbsg2: SurvivalData) -> None:
    y = (gbsg2.time, gbsg2.event)
    parameters = {"n_starts": 1, "init": "grown", "trainer": "joint", "gate_ridge": 1e-3}
    tree = SoftSurvivalTree(2, **parameters).fit(gbsg2.frame, y)
    assert tree.score(gbsg2.frame, y) > 0.68
    assert SoftSurvivalTree(2, **parameters).fit(gbsg2.frame, y).objective_ == tree.objective_
    assert SoftSurvivalTree(0, **parameters).fit(gbsg2.frame, y).score(gbsg2.frame, y) > 0.65


def _strong_sample() -> Sample:
    sample = random_sample(2, n_rows=150)
    x = sample.x.matrices[0]
    risk = 3 * torch.where((x[:, 0] > 0.5) == (x[:, 1] > 0.4), 1.0, -1.0)
    return Sample(sample.x, sample.log_time - risk, sample.event, sample.weight)
