"""Annealing of the sharpness of gates: its schedule, and that only the gates of its passes feel it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from sstorch.exceptions import ConfigError
from sstorch.monitoring import Callback, History, StepContext
from sstorch.nn import SoftTree
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim import (
    Annealing,
    LBFGSOptions,
    Nodec,
    NodecJoint,
    greedy_tree,
    initialize_hard,
    initialize_random,
    problem_seed,
)
from sstorch.optim.steps import BranchStep
from tests.batches import random_sample, random_tree

OBJECTIVE = TrainingObjective(1e-3, 1e-3)
ANNEALING = Annealing(0.02, 2)


def _start(n: int = 6) -> tuple[SoftTree, Sample]:
    sample = random_sample(n, n_splits=2, n_rows=120, seed=4)
    tree = SoftTree(3, 2, "log_logistic", (n,))
    initialize_random(tree, sample, [problem_seed(1, 0, k) for k in range(n)])
    return tree, sample


def _weights(tree: SoftTree, nodes: list[int]) -> torch.Tensor:
    """Weights of gates, shape (R, len(nodes), p)."""
    return torch.stack([tree.gate(node).weight.detach() for node in nodes], dim=1)


def test_the_coefficient_falls_in_a_line_to_zero_and_stays_there() -> None:
    np.testing.assert_allclose(
        [Annealing(0.3, 3).coefficient(k) for k in range(1, 7)], [0.3, 0.2, 0.1, 0, 0, 0], atol=1e-16
    )
    assert Annealing(5.0, 1).coefficient(1) == 5.0
    assert Annealing(5.0, 1).coefficient(2) == 0.0


def test_the_limit_is_half_the_squared_norm_of_the_weights_and_the_objective_is_left_alone() -> None:
    tree, sample = random_tree(3, 2), random_sample(3)
    penalties = list(OBJECTIVE.gate_penalties)
    restrained = ANNEALING.restrain(OBJECTIVE, 2, torch.device("cpu"))
    with torch.no_grad():
        more = restrained(tree, sample) - OBJECTIVE(tree, sample)
    weights = _weights(tree, [1, 2, 3])
    torch.testing.assert_close(more, 0.01 / 2 * weights.square().sum((1, 2)))
    assert list(OBJECTIVE.gate_penalties) == penalties
    assert ANNEALING.restrain(OBJECTIVE, 3, torch.device("cpu")) is OBJECTIVE


def test_a_temperature_beside_a_ridge_is_a_larger_ridge() -> None:
    """sigmoid(s w.x) with the ridge lambda on w is sigmoid(v.x) with the ridge lambda / s^2 on v = s w."""
    s, tree, sample = 0.1, random_tree(4, 2), random_sample(4)
    cold = tree.select(torch.arange(4))
    with torch.no_grad():
        for node in (1, 2, 3):
            for parameter in cold.gate(node).parameters():
                parameter.mul_(s)
        ridge = 1e-3 / 2 * _weights(tree, [1, 2, 3]).square().sum((1, 2))
        tempered = TrainingObjective()(cold, sample) + ridge
        torch.testing.assert_close(tempered, TrainingObjective(gate_ridge=1e-3 / s**2)(cold, sample))


class _Watch(Callback):
    """Largest gate weight after each BN step of a pass, and E of the batch after each pass."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.norms: dict[int, list[float]] = {}
        self.values: list[torch.Tensor] = []
        self.best: list[torch.Tensor] = []

    def on_train_begin(self, tree: SoftTree, macro_iterations: int) -> None:
        self.tree = tree

    def on_step(self, context: StepContext) -> None:
        if context.step == "BN":
            nodes = [1] if context.node == 1 else context.tree.topology.branches_under(context.node)
            norm = _weights(context.tree, nodes).norm(dim=-1).max()
            self.norms.setdefault(context.macro_iteration, []).append(float(norm))

    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        with torch.no_grad():
            self.values.append(OBJECTIVE(self.tree, self.sample))
        newest = history.last_macro_iteration()
        np.testing.assert_allclose(
            newest["objective"], self.values[-1][newest["problem"].to_list()], rtol=1e-12
        )
        self.best.append(torch.tensor(newest["best_objective"].to_numpy()))


def test_gates_are_soft_at_first_and_records_and_best_points_are_of_the_objective_itself() -> None:
    tree, sample = _start()
    watch = _Watch(sample)
    Nodec(macro_iterations=5, annealing=ANNEALING).train(tree, OBJECTIVE, sample, [watch])
    plain, _ = _start()
    unrestrained = _Watch(sample)
    Nodec(macro_iterations=5).train(plain, OBJECTIVE, sample, [unrestrained])
    softest = [max(watch.norms[k]) for k in (1, 2, 3, 5)]
    assert softest[0] < 0.5 * max(unrestrained.norms[1])
    assert softest[0] < softest[2]
    assert softest[1] < softest[3]
    # The returned tree is the best point of E, wherever it was, and so the record says.
    with torch.no_grad():
        final = OBJECTIVE(tree, sample)
    np.testing.assert_allclose(watch.best[-1], final, rtol=1e-12)
    lowest = torch.stack(watch.values).amin(0)
    assert (final <= lowest + 1e-12).all()
    assert (torch.stack(watch.best).diff(dim=0) <= 0).all()


def test_every_gate_step_minimises_the_objective_of_its_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[float]] = []
    make = BranchStep.make.__func__  # type: ignore[attr-defined]

    def spy(cls: type[BranchStep], tree: SoftTree, objective: TrainingObjective, *rest: Any) -> BranchStep:
        seen[-1:] = [[float(p.coefficient) for p in objective.gate_penalties]]  # type: ignore[arg-type, union-attr]
        step: BranchStep = make(cls, tree, objective, *rest)
        return step

    class Passes(Callback):
        def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
            seen.append([])

    monkeypatch.setattr(BranchStep, "make", classmethod(spy))
    tree, sample = _start()
    trainer = NodecJoint(Nodec(macro_iterations=4, annealing=Annealing(0.02, 2)))
    trainer.train(tree, OBJECTIVE, sample, [Passes()])
    # The pass of the polish has no gate step.
    assert seen[:4] == [[1e-3, 0.02], [1e-3, 0.01], [1e-3], [1e-3]]


def test_a_sharp_start_is_softened_and_patience_waits_for_the_end() -> None:
    sample = random_sample(2, n_rows=120, seed=4)
    late = 3.0 * (sample.x.matrices[0, :, 0] > 0.4)
    sample = replace(sample, log_time=sample.log_time + late)
    x, time = sample.x.matrices[0].numpy(), sample.log_time[0].exp().numpy()
    hard = greedy_tree(x, time, sample.event[0].numpy() > 0, np.ones(120), 2)
    last: dict[Annealing | None, int] = {}
    norm: dict[Annealing | None, float] = {}
    for annealing in (Annealing(1.0, 3), None):
        tree = SoftTree(3, 2, "log_logistic", (2,))
        initialize_hard(tree, OBJECTIVE, sample, [hard, hard], sharpness=100.0)
        assert float(_weights(tree, [1]).norm(dim=-1).max()) == pytest.approx(100.0)
        watch = _Watch(sample)
        trainer = Nodec(macro_iterations=6, patience=1, annealing=annealing)
        history = trainer.train(tree, OBJECTIVE, sample, [watch])
        norm[annealing] = watch.norms[1][0]
        last[annealing] = history.steps["macro_iteration"].max()
    assert norm[Annealing(1.0, 3)] < 0.2 * norm[None]
    assert last[None] <= 2
    assert last[Annealing(1.0, 3)] == 4  # the first iteration after annealing spends the patience


def test_what_annealing_ends_with_is_stationary_for_the_objective_itself() -> None:
    """Depth 1: at the end of many passes the gate step has nothing left to do."""
    sample = random_sample(3, n_rows=150, seed=6)
    tree = random_tree(3, 1, seed=3)
    tight = LBFGSOptions(max_iterations=500, gradient_tolerance=1e-9, relative_tolerance=0.0)
    trainer = Nodec(macro_iterations=200, annealing=Annealing(0.5, 5), lbfgs=tight, gradient_tolerance=1e-6)
    history = trainer.train(tree, TrainingObjective(1e-2, 1e-2), sample)
    last = history.macro_iterations.groupby("problem").last()
    assert (last["gradient_norm"] < 1e-4).all()


@pytest.mark.parametrize(
    "values", [{"start": 0.0}, {"start": np.inf}, {"start": True}, {"passes": 0}, {"passes": 1.5}]
)
def test_settings_out_of_range_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"annealing.{next(iter(values))} must be"):
        Annealing(**values)


def test_annealing_that_would_never_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="passes must be below macro_iterations = 3"):
        Nodec(macro_iterations=3, annealing=Annealing(passes=3))
