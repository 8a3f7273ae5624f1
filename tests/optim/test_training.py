"""Trainers as a whole: what they freeze and keep, and the records, with both engines where there are two."""

import numpy as np
import pytest
import torch
from torch import Tensor

from sstorch.exceptions import ConfigError
from sstorch.monitoring import Callback, History
from sstorch.nn import SoftTree
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim import Joint, Nodec, NodecJoint, Trainer
from sstorch.optim.nodec import Engine
from sstorch.optim.run import TrainingRun
from sstorch.optim.starts.clusters import initialize_random, problem_seed
from sstorch.optim.steps import Step
from tests.batches import blank_tree, random_sample, watched_steps, with_entry
from tests.conftest import covering, nightly

OBJECTIVE = TrainingObjective(1e-3, 1e-3)
SHORT = Nodec(macro_iterations=2)
# Compiling takes a minute.
ENGINES = pytest.mark.parametrize("engine", ["torch", nightly("compiled")])


def start(n: int, depth: int = 2, leaf: str = "log_logistic", n_rows: int = 150) -> tuple[SoftTree, Sample]:
    sample = random_sample(n, n_splits=min(n, 3), n_rows=n_rows, seed=2)
    tree = blank_tree(3, depth, leaf, (n,))
    initialize_random(tree, sample, [problem_seed(0, 0, k) for k in range(n)])
    return tree, sample


@torch.no_grad()
def value(tree: SoftTree, sample: Sample) -> Tensor:
    return OBJECTIVE(tree, sample)  # type: ignore[no-any-return]


class Spy(Callback):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.passes: list[int] = []

    def on_train_begin(self, tree: SoftTree, macro_iterations: int) -> None:
        self.events.append(f"begin {macro_iterations}")

    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        self.passes.append(macro_iteration)

    def on_train_end(self, history: History) -> None:
        self.events.append("end")


# ------------------------------------------------------------------ all trainers


@pytest.mark.parametrize(
    ("trainer", "leaf"),
    covering([SHORT, Joint(), NodecJoint(SHORT)], ["exponential", "weibull", "spline_po"]),
)
def test_every_trainer_improves_every_problem_and_leaves_it_at_its_best(trainer: Trainer, leaf: str) -> None:
    tree, sample = start(6, leaf=leaf, n_rows=120)
    sample = with_entry(sample)
    before, spy = value(tree, sample), Spy()
    history = trainer.train(tree, OBJECTIVE, sample, [spy])
    after = value(tree, sample)
    assert (after <= before).all()
    assert (after < before).sum() >= 5
    best = history.macro_iterations.groupby("problem")["best_objective"].min()
    np.testing.assert_allclose(after, best, rtol=1e-9)
    assert spy.events == [f"begin {trainer.n_passes}", "end"]
    assert spy.passes == list(range(trainer.n_passes + 1))
    assert all(parameter.requires_grad for parameter in tree.parameters())


# ------------------------------------------------------------------ the decomposition


@pytest.mark.parametrize("depth", [0, 1, 2, nightly(3)])
def test_freezing_is_real_over_a_whole_run(depth: int) -> None:
    tree, sample = start(12, depth)
    seen: list[Step] = []

    def check(run: TrainingRun, step: Step, before: SoftTree) -> None:
        """What is thawed and what moved."""
        topology, node, moved = tree.topology, step.node, False
        if step.name == "LN":
            working = {f"leaves.{n}." for n in topology.leaves_under(node)}
        else:
            branches = [node] if step.name == "WLR" or node == 1 else topology.branches_under(node)
            working = {f"gates.{n}." for n in branches}
        for name, parameter in step.batch.tree.named_parameters():
            thawed = any(name.startswith(prefix) for prefix in working)
            assert parameter.requires_grad == thawed, (step.name, node, name)
            assert parameter.grad is None
            assert not run.tree.get_parameter(name).requires_grad
            assert torch.equal(parameter, run.tree.get_parameter(name)[step.batch.problems])
            same = torch.equal(parameter, before.get_parameter(name))
            assert thawed or same, (step.name, node, name)
            moved |= not same
        assert moved or run.n_passes
        seen.append(step)

    with watched_steps(check):
        steps = SHORT.train(tree, OBJECTIVE, sample).steps
    assert set(steps["step"]) == ({"LN"} if depth == 0 else {"BN", "WLR", "LN"})
    nodes = {step.node for step in seen if step.name == "LN"}
    assert nodes == {1} if depth < 2 else nodes == set(range(2, 2**depth))
    if depth == 2:
        # Problems that take different branches at one node are sub-batches of their own.
        both = steps[(steps["macro_iteration"] == 1) & (steps["node"] == 2) & (steps["step"] != "LN")]
        assert {"BN", "WLR"} == set(both["step"])
        assert both["problem"].is_unique


@ENGINES
def test_history_has_the_steps_and_the_best_so_far(engine: Engine) -> None:
    tree, sample = start(6)
    initial = value(tree, sample)
    history = Nodec(macro_iterations=4, engine=engine).train(tree, OBJECTIVE, sample)
    final, macro, steps = value(tree, sample), history.macro_iterations, history.steps
    np.testing.assert_allclose(macro[macro["macro_iteration"] == 0]["objective"], initial, rtol=1e-12)
    best = macro.groupby("problem")["best_objective"]
    np.testing.assert_allclose(best.last(), final, rtol=1e-12)
    assert (final < initial).all()
    assert (best.diff().dropna() <= 0).all()
    np.testing.assert_allclose(macro[[f"mass_{n}" for n in (4, 5, 6, 7)]].sum(axis=1), 1.0, rtol=1e-12)
    root = steps[steps["node"] == 1]
    assert np.isfinite(steps["objective_after"]).all()
    assert (steps["objective_after"] <= steps["objective_before"] + 1e-12).all()
    assert set(steps["status"]) <= {"CONVERGED", "MAX_ITER", "STALLED"}
    assert (steps["evaluations"] > 0).all()
    assert (root["rows"] == sample.n_rows.numpy()[root["problem"]]).all()
    own = history.of_problem(3)
    assert len(own.steps) == (steps["problem"] == 3).sum()
    assert (own.steps["problem"] == 0).all()


def test_interrupted_run_leaves_the_best_trees_so_far() -> None:
    def interrupt(run: TrainingRun, step: Step, before: SoftTree) -> None:
        if run.n_passes == 1 and step.name == "LN":
            raise KeyboardInterrupt

    tree, sample = start(5)
    one = tree.select(torch.arange(5))
    Nodec(macro_iterations=1).train(one, OBJECTIVE, sample)
    callback = Spy()
    with pytest.raises(KeyboardInterrupt), watched_steps(interrupt):
        Nodec(macro_iterations=3).train(tree, OBJECTIVE, sample, [callback])
    assert callback.events[-1] == "end"
    assert all(parameter.requires_grad for parameter in tree.parameters())
    assert (value(tree, sample) <= value(one, sample) + 1e-12).all()


@ENGINES
def test_patience_and_gradient_retire_problems(engine: Engine) -> None:
    tree, sample = start(5, depth=0)
    tolerant = Nodec(macro_iterations=10, gradient_tolerance=1e-3, engine=engine)
    assert tolerant.train(tree, OBJECTIVE, sample).macro_iterations["macro_iteration"].max() < 10
    tree, sample = start(5)
    patient = Nodec(macro_iterations=4).train(tree.select(torch.arange(5)), OBJECTIVE, sample)
    hasty = Nodec(macro_iterations=4, patience=1, engine=engine).train(tree, OBJECTIVE, sample)
    assert len(hasty.steps) < len(patient.steps)


@ENGINES
def test_region_without_events_keeps_its_leaves(engine: Engine) -> None:
    tree, sample = start(2, depth=1)
    with torch.no_grad():
        tree.gate(1).weight.zero_()
        tree.gate(1).bias.fill_(5.0)
    before = tree.leaf(2).slope.detach().clone()
    sample.event[1] = 0.0
    steps = Nodec(macro_iterations=2, engine=engine).train(tree, OBJECTIVE, sample).steps
    assert not ((steps["problem"] == 1) & (steps["step"] == "LN")).any()
    assert torch.equal(tree.leaf(2).slope[1], before[1])
    assert all(torch.isfinite(part).all() for part in tree.state_dict().values())


@pytest.mark.parametrize("engine", ["torch", "compiled"])
def test_leaf_that_overflows_starts_again_and_any_finite_point_is_better(engine: Engine) -> None:
    tree, sample = start(2, depth=0, leaf="weibull")
    with torch.no_grad():
        tree.leaf(1).shape[0] = 30.0
        tree.leaf(1).intercept[0] = -5.0
    assert value(tree, sample).isfinite().tolist() == [False, True]
    steps = Nodec(macro_iterations=1, engine=engine).train(tree, OBJECTIVE, sample).steps
    assert steps.set_index("problem")["restarted"].sort_index().tolist() == [True, False]
    assert value(tree, sample).isfinite().all()
    tree, sample = start(1, depth=1, leaf="weibull")
    with torch.no_grad():
        tree.leaf(2).intercept.fill_(-5000.0)
    assert not value(tree, sample).isfinite().any()
    Nodec(macro_iterations=2, engine=engine).train(tree, OBJECTIVE, sample)
    assert value(tree, sample).isfinite().all()


@ENGINES
def test_point_that_overflows_does_not_retire_a_problem(engine: Engine) -> None:
    tree, sample = start(2, depth=1, leaf="weibull")
    with torch.no_grad():
        tree.leaf(3).shape[0] = 6.0
        tree.leaf(3).intercept[0] = -5.0
    sample.event[0] = 0.0  # its LN steps are skipped, so the point stays where it is
    history = Nodec(macro_iterations=3, gradient_tolerance=0.0, engine=engine).train(tree, OBJECTIVE, sample)
    assert (history.macro_iterations.groupby("problem")["macro_iteration"].max() == 3).all()


def test_node_with_one_row_is_skipped() -> None:
    tree, sample = start(1)
    with torch.no_grad():
        top = sample.x.to_dense()[0, :, 0].sort(descending=True).values
        tree.gate(1).weight.copy_(torch.tensor([[1e3, 0.0, 0.0]]))
        tree.gate(1).bias.fill_(-1e3 * float(top[:2].mean()))
    run = TrainingRun(tree, OBJECTIVE, sample, ())
    assert list(Nodec()._visit(run, 2, Nodec().thresholds)) == []


@pytest.mark.parametrize(
    ("values", "word"),
    [({"eps": "best"}, "eps"), ({"macro_iterations": 0}, "macro_iterations"), ({"zeta": 0.0}, "zeta"),
     ({"patience": 0}, "patience"), ({"gradient_tolerance": -1.0}, "gradient_tolerance")],
)  # fmt: skip
def test_settings_out_of_range_raise(values: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        Nodec(**values)  # type: ignore[arg-type]
