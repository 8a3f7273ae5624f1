"""The rivals of the decomposition behind one interface, and the race between starts."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from sstorch import PrognosticTree, SoftSurvivalTree, SurvivalData
from sstorch.bench import cross_validate
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
    Race,
    Trainer,
    initialize_random,
    problem_seed,
)
from sstorch.optim.steps import JointStep
from sstorch.soft import train_batch
from sstorch.soft.problems import _held_in
from tests.batches import random_sample, with_entry
from tests.conftest import covering

OBJECTIVE = TrainingObjective(1e-3, 1e-3)
SHORT = Nodec(macro_iterations=2)
TRAINERS = [SHORT, Joint(), NodecJoint(SHORT)]


def _start(n: int = 6, depth: int = 2, leaf: str = "log_logistic") -> tuple[SoftTree, Sample]:
    sample = random_sample(n, n_splits=2, n_rows=120, seed=4)
    tree = SoftTree(3, depth, leaf, (n,))
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
    step = JointStep.make(tree, OBJECTIVE, sample)
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


# ------------------------------------------------------------------ the race


def test_survivors_are_the_best_of_each_split() -> None:
    value = torch.tensor([3.0, 1.0, 2.0, 4.0, 9.0, 8.0, torch.inf, 7.0, 7.0])
    race = Race(after=(1, 3), keep=0.5)
    counts = (4, 5)
    assert race.survivors(value, counts, 0).all()
    assert race.survivors(value, counts, 1).tolist() == [0, 1, 1, 0, 0, 1, 0, 1, 1]
    assert race.survivors(value, counts, 2).tolist() == [0, 1, 1, 0, 0, 1, 0, 1, 1]
    assert race.survivors(value, counts, 3).tolist() == [0, 1, 0, 0, 0, 0, 0, 1, 1]
    assert Race((1,), 0.1).survivors(torch.arange(10.0), (10,), 1).sum() == 1
    assert Race((1, 2), 0.1).survivors(torch.arange(10.0), (10,), 9).sum() == 1


@pytest.mark.parametrize(("after", "keep"), [((0, 1), 0.5), ((2, 2), 0.5), ((1,), 0.0), ((1,), 1.0)])
def test_race_settings_out_of_range_are_refused(after: tuple[int, ...], keep: float) -> None:
    with pytest.raises(ConfigError, match="race"):
        Race(after, keep)


def test_a_race_trains_the_survivors_as_without_it_and_saves_the_rest() -> None:
    raced, sample = _start(n=8)
    full, _ = _start(n=8)
    with_race = Nodec(macro_iterations=4, race=Race((1, 2))).train(raced, OBJECTIVE, sample)
    without = Nodec(macro_iterations=4).train(full, OBJECTIVE, sample)
    dropped = with_race.dropped()
    assert len(dropped) == 6
    assert without.dropped() == set()
    stayed = [k for k in range(8) if k not in dropped]
    torch.testing.assert_close(_value(raced, sample)[stayed], _value(full, sample)[stayed], rtol=1e-6, atol=0)
    assert with_race.steps["evaluations"].sum() < 0.7 * without.steps["evaluations"].sum()
    # Whoever goes on was, after the first pass, among the best half of its split.
    first = without.macro_iterations.query("macro_iteration == 1").sort_values("problem")["best_objective"]
    for split in (range(4), range(4, 8)):
        half = set(first.iloc[list(split)].nsmallest(2).index - first.index[0])
        assert {k for k in stayed if k in split} <= {int(k) for k in half}
    # The record of a start ends with the pass that dropped it.
    table = with_race.macro_iterations
    for problem in dropped:
        own = table[table["problem"] == problem]
        assert own["dropped"].tolist() == [False] * (len(own) - 1) + [True]


def test_a_race_of_the_joint_trainer_goes_in_laps() -> None:
    raced, sample = _start(n=8)
    full, _ = _start(n=8)
    trainer = Joint(race=Race((1, 2)), lap=15)
    history = trainer.train(raced, OBJECTIVE, sample)
    without = Joint().train(full, OBJECTIVE, sample)
    assert trainer.n_passes == 3
    ends = history.macro_iterations.query("macro_iteration > 0").groupby("macro_iteration").size()
    assert ends.tolist() == [8, 4, 2]
    stayed = [k for k in range(8) if k not in history.dropped()]
    assert [k // 4 for k in stayed] == [0, 1]
    # A lap begins a new search from where the last one ended: the same minimum, or another one.
    assert (_value(raced, sample)[stayed] < _value(full, sample)[stayed] + 0.02).all()
    assert history.steps["evaluations"].sum() < 0.7 * without.steps["evaluations"].sum()
    # Where no start can be dropped there are no rounds.
    alone = raced.select(torch.tensor([0]))
    history = trainer.train(alone, OBJECTIVE, sample.select(torch.tensor([0])))
    assert history.macro_iterations["macro_iteration"].max() == 1
    with pytest.raises(ConfigError, match="lap must be at least 1"):
        Joint(lap=0)
    with pytest.raises(ConfigError, match="race of nodec"):
        NodecJoint(joint=trainer)


def test_scores_tell_which_starts_finished(small_data: SurvivalData) -> None:
    trainer = Nodec(macro_iterations=2, race=Race((1,)))
    tree = SoftSurvivalTree(depth=1, trainer=trainer, init="random", n_starts=4)
    result = cross_validate(tree, small_data, n_folds=3, seed=0)
    finished = result.scores.groupby(["fold", "part"])["finished"].sum()
    assert (finished == 2).all()
    assert result.scores.loc[result.scores["chosen"], "finished"].all()
    assert "finished starts" in result.table().index.get_level_values("trees")
    assert isinstance(result.table(), pd.DataFrame)


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
