"""The rivals of the decomposition behind one interface."""

import numpy as np
import pytest
import torch

from sstorch.monitoring import Callback, History, StepContext
from sstorch.nn import SoftTree
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim import (
    Joint,
    LBFGSOptions,
    Nodec,
    NodecJoint,
    Trainer,
    initialize_random,
    problem_seed,
)
from sstorch.optim.steps import Batch
from sstorch.optim.working_sets import joint_step
from tests.batches import blank_tree, random_sample, with_entry
from tests.conftest import covering

OBJECTIVE = TrainingObjective(1e-3, 1e-3)
SHORT = Nodec(macro_iterations=2)
TRAINERS = [SHORT, Joint(), NodecJoint(SHORT)]


def _start(n: int = 6, depth: int = 2, leaf: str = "log_logistic") -> tuple[SoftTree, Sample]:
    sample = random_sample(n, n_splits=2, n_rows=120, seed=4)
    tree = blank_tree(3, depth, leaf, (n,))
    initialize_random(tree, sample, [problem_seed(1, 0, k) for k in range(n)])
    return tree, sample


def _value(tree: SoftTree, sample: Sample) -> torch.Tensor:
    with torch.no_grad():
        return OBJECTIVE(tree, sample)  # type: ignore[no-any-return]


class _Spy(Callback):
    def __init__(self) -> None:
        self.events: list[str] = []
        self.passes: list[int] = []

    def on_train_begin(self, tree: SoftTree, macro_iterations: int) -> None:
        self.events.append(f"begin {macro_iterations}")

    def on_step(self, context: StepContext) -> None:
        self.events.append(context.step)

    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        self.passes.append(macro_iteration)

    def on_train_end(self, history: History) -> None:
        self.events.append("end")


@pytest.mark.parametrize(("trainer", "leaf"), covering(TRAINERS, ["exponential", "weibull", "spline_po"]))
def test_every_trainer_improves_every_problem_and_leaves_it_at_its_best(trainer: Trainer, leaf: str) -> None:
    tree, sample = _start(leaf=leaf)
    sample = with_entry(sample)
    before, spy = _value(tree, sample), _Spy()
    history = trainer.train(tree, OBJECTIVE, sample, [spy])
    after = _value(tree, sample)
    assert (after <= before).all()
    assert (after < before).sum() >= 5
    best = history.macro_iterations.groupby("problem")["best_objective"].min()
    np.testing.assert_allclose(after, best, rtol=1e-9)
    assert spy.events[0] == f"begin {trainer.n_passes}"
    assert spy.events[-1] == "end"
    assert spy.passes == list(range(trainer.n_passes + 1))
    assert all(parameter.requires_grad for parameter in tree.parameters())


def test_joint_ends_at_stationary_points_of_the_whole_objective() -> None:
    tree, sample = _start(depth=1)
    trainer = Joint(LBFGSOptions(gradient_tolerance=1e-7, relative_tolerance=0.0, max_iterations=5000))
    history = trainer.train(tree, OBJECTIVE, sample)
    step = joint_step(Batch(tree, OBJECTIVE, sample))
    _, gradient = step.value_and_gradient(step.read())
    assert gradient.abs().max() < 1e-6
    assert (history.steps["step"] == "JOINT").all()


def test_the_polish_never_loses_what_the_decomposition_found() -> None:
    alone, sample = _start()
    polished, _ = _start()
    nodec = Nodec(macro_iterations=3)
    nodec.train(alone, OBJECTIVE, sample)
    history = NodecJoint(nodec).train(polished, OBJECTIVE, sample)
    assert (_value(polished, sample) < _value(alone, sample) - 1e-6).any()
    assert (_value(polished, sample) <= _value(alone, sample) + 1e-12).all()
    steps = history.steps
    assert set(steps.loc[steps["macro_iteration"] == steps["macro_iteration"].max(), "step"]) == {"JOINT"}


def test_joint_restarts_leaves_that_overflow() -> None:
    tree, sample = _start(leaf="weibull")
    with torch.no_grad():
        tree.leaf(5).intercept.fill_(-500.0)
        tree.leaf(5).shape.fill_(3.0)
        for node in (1, 2):
            tree.gate(node).weight.zero_()
    assert not _value(tree, sample).isfinite().any()
    history = Joint().train(tree, OBJECTIVE, sample)
    assert _value(tree, sample).isfinite().all()
    assert history.steps["restarted"].all()
