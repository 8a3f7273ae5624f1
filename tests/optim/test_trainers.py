"""The rivals of the decomposition behind one interface."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone

from sstorch import PrognosticTree, SoftSurvivalTree, SurvivalData
from sstorch.exceptions import ConfigError, DataError
from sstorch.monitoring import Callback, History, StepContext
from sstorch.nn import SoftTree
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim import (
    Joint,
    LBFGSOptions,
    Leaves,
    Nodec,
    NodecJoint,
    Trainer,
    initialize_random,
    problem_seed,
)
from sstorch.optim.steps import Batch
from sstorch.optim.working_sets import joint_step
from sstorch.soft import train_batch
from sstorch.soft.problems import _held_in
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


# ------------------------------------------------------------------ rows held out


@pytest.mark.parametrize("trainer", TRAINERS)
def test_the_best_point_is_the_one_with_the_lowest_loss_on_the_rows_held_out(trainer: Trainer) -> None:
    tree, sample = _start()
    keep = torch.arange(120) % 4 > 0
    inside, outside = (replace(sample, weight=sample.weight * part) for part in (keep, ~keep))
    seen: list[torch.Tensor] = []

    class Watch(Callback):
        def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
            seen.append(torch.tensor(history.last_macro_iteration()["best_objective"].to_numpy()))

    with torch.no_grad():
        before = TrainingObjective()(tree, outside)
    trainer.train(tree, OBJECTIVE, inside, [Watch()], outside)
    with torch.no_grad():
        after = TrainingObjective()(tree, outside)
    assert (after <= before).all()
    torch.testing.assert_close(after, seen[-1], rtol=1e-12, atol=0)
    trained, _ = _start()
    trainer.train(trained, OBJECTIVE, inside)
    with torch.no_grad():
        assert (after <= TrainingObjective()(trained, outside) + 1e-12).all()


@pytest.mark.nightly
def test_holdout_in_the_estimator(small_data: SurvivalData) -> None:
    y = (small_data.time, small_data.event)
    tree = SoftSurvivalTree(
        depth=2, trainer=Nodec(macro_iterations=2, holdout=0.25), init="random", n_starts=4
    )
    batch = train_batch([small_data, small_data], tree._batch_settings())
    assert torch.equal(batch.criterion[: batch.n_starts].argmin(), torch.tensor(batch.best_start(0)))
    assert not torch.equal(batch.criterion, batch.objective)
    fitted = tree.fit(small_data.frame, y)
    again = clone(tree).fit(small_data.frame, y)
    assert fitted.objective_ == again.objective_
    plain = clone(tree).set_params(trainer=Nodec(macro_iterations=2)).fit(small_data.frame, y)
    assert plain.objective_ != fitted.objective_


def test_rows_held_out_are_a_share_of_the_rows_with_and_without_events(small_data: SurvivalData) -> None:
    settings = SoftSurvivalTree(
        depth=1, trainer=Nodec(holdout=0.2), init="random", n_starts=3
    )._batch_settings()
    kept = _held_in([small_data, small_data.subset(range(80))], settings, 1)
    assert kept.shape == (6, 120)
    assert torch.equal(kept[0], kept[2])
    out = ~kept[0].numpy()
    for event in (True, False):
        rows = small_data.event == event
        assert out[rows].sum() == round(0.2 * rows.sum())
    assert kept[3:, 80:].all()


def test_joint_training_stops_after_a_lap_that_does_not_improve_the_held_out_loss() -> None:
    tree, sample = _start()
    keep = torch.arange(120) % 4 > 0
    inside, outside = (replace(sample, weight=sample.weight * part) for part in (keep, ~keep))
    with pytest.raises(ConfigError, match="lap must be at least 1"):
        Joint(lap=0)
    trainer = Joint(holdout=0.25, lap=1)
    history = trainer.train(tree, OBJECTIVE, inside, held_out=outside)
    assert trainer.n_passes == 1000
    for _, own in history.macro_iterations.groupby("problem"):
        best = own["best_objective"].to_numpy()
        falls = np.diff(best) < 0
        assert falls[:-1].all()  # of the laps the last alone improved nothing
        assert not falls[-1]
        assert len(own) < 30
    with torch.no_grad():
        after = TrainingObjective()(tree, outside)
    lowest = history.macro_iterations.groupby("problem")["best_objective"].min()
    np.testing.assert_allclose(after.numpy(), lowest, rtol=1e-12)
    whole, _ = _start()
    Joint(lap=1).train(whole, OBJECTIVE, inside, held_out=outside)  # at one go, the last point or the first
    with torch.no_grad():
        assert after.mean() < TrainingObjective()(whole, outside).mean()


@pytest.mark.parametrize("holdout", [-0.1, 1.0, True, "half"])
def test_holdout_out_of_range_is_refused(holdout: object) -> None:
    with pytest.raises(ConfigError, match="holdout must be a share"):
        Leaves(holdout=holdout)  # type: ignore[arg-type]


@pytest.mark.filterwarnings(r"ignore:\d+ (events? in|columns after):sstorch.exceptions.DataWarning")
def test_a_holdout_without_events_is_refused(small_data: SurvivalData) -> None:
    event = np.arange(120) < 2
    with pytest.raises(DataError, match=r"holdout=0.1 leaves out 0 of 2 rows with an event"):
        PrognosticTree(trainer=Leaves(holdout=0.1)).fit(small_data.frame, (small_data.time, event))
