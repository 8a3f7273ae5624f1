"""Steps in float32, accepted in float64."""

import pytest
import torch
from torch import Tensor

from sstorch.nn import SoftTree
from sstorch.objective import Shards, TrainingObjective
from sstorch.optim import (
    LBFGSOptions,
    Nodec,
    OptimizationResult,
    initialize_random,
    minimize_step,
    minimize_step_in_single,
    problem_seed,
)
from sstorch.optim.sharded_step import ShardedStep
from sstorch.optim.steps import BranchStep, JointStep, LeafStep
from tests.batches import random_sample, random_tree

OBJECTIVE = TrainingObjective(0.02, 0.03, torch.tensor([0.0, 0.04, 0.1, 1.0]))


def _step(leaf: str, n_shards: int) -> ShardedStep:
    tree, sample = random_tree(4, 2, leaf), random_sample(4, n_splits=2, n_rows=150)
    rows = Shards.cut(sample, n_shards).restrict(lambda part: tree.visits(part.x, 2))
    return ShardedStep.make(rows, lambda part: LeafStep.make(tree, OBJECTIVE, part, 2))


@pytest.mark.parametrize("leaf", ["log_logistic", "spline_po", "log_normal", "piecewise_exponential"])
@pytest.mark.parametrize("n_shards", [1, 3])
def test_the_minimum_to_single_precision(leaf: str, n_shards: int) -> None:
    step = _step(leaf, n_shards)
    start = step.read()
    low = minimize_step_in_single(step, start, LBFGSOptions())
    high = minimize_step(step, start, LBFGSOptions())
    assert low.x.dtype == low.value.dtype == low.gradient_norm.dtype == torch.float64
    torch.testing.assert_close(low.value, high.value, rtol=1e-4, atol=1e-4)
    exact, gradient = step.value_and_gradient(low.x)
    torch.testing.assert_close(low.value, exact, rtol=0, atol=0)
    torch.testing.assert_close(low.gradient_norm, gradient.abs().amax(-1), rtol=0, atol=0)
    assert torch.equal(step.read(), start)


def test_float32_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    step, seen = _step("log_logistic", 1), []
    evaluate = LeafStep.data_and_gradient

    def note(self: LeafStep, x: Tensor) -> tuple[Tensor, Tensor]:
        seen.append((x.dtype, self.probability.dtype, self.sample.log_time.dtype))
        return evaluate(self, x)

    monkeypatch.setattr(LeafStep, "data_and_gradient", note)
    minimize_step_in_single(step, step.read(), LBFGSOptions())
    assert all(len(set(kinds)) == 1 for kinds in seen)
    assert sum(kinds[0] == torch.float64 for kinds in seen) == 2
    assert sum(kinds[0] == torch.float32 for kinds in seen) > 5


def test_what_is_no_better_in_double_is_not_accepted() -> None:
    tree, sample = random_tree(4, 1), random_sample(4, n_splits=2, n_rows=150)
    step = ShardedStep.whole(JointStep.make(tree, TrainingObjective(0.1, 0.1), sample))
    tight = LBFGSOptions(gradient_tolerance=1e-11, relative_tolerance=0.0)
    best: OptimizationResult = minimize_step(step, step.read(), tight)
    again = minimize_step_in_single(step, best.x, LBFGSOptions())
    assert (again.value <= best.value).all()
    stays = (again.x == best.x).all(-1)
    assert (stays | (again.value < best.value)).all()
    torch.testing.assert_close(again.x, best.x, rtol=1e-6, atol=1e-6)


def test_a_gate_step_and_a_whole_run() -> None:
    tree, sample = random_tree(4, 2), random_sample(4, n_splits=2, n_rows=150)
    step = ShardedStep.whole(BranchStep.make(tree, OBJECTIVE, sample, 1))
    assert (minimize_step_in_single(step, step.read(), LBFGSOptions()).value < step.value()).all()
    objective, values = TrainingObjective(1e-3, 1e-3), []
    for minimizer in (minimize_step, minimize_step_in_single):
        tree = SoftTree(3, 2, "log_logistic", (4,))
        initialize_random(tree, sample, [problem_seed(0, 0, k) for k in range(4)])
        Nodec(macro_iterations=4, minimizer=minimizer).train(tree, objective, sample)
        assert tree.gate(1).weight.dtype == torch.float64
        values.append(objective(tree, sample).detach())
    assert float((values[0] - values[1]).abs().mean()) < 0.05
