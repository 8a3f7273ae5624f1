"""NODEC-DR-SST as a whole: what it freezes, what it keeps, and that the batch changes nothing."""

import numpy as np
import pytest
import torch

from sstorch.exceptions import ConfigError
from sstorch.monitoring import Callback, History, StepContext
from sstorch.nn import SoftTree
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim import (
    Engine,
    Nodec,
    TrainingRun,
    initialize_random,
    problem_seed,
)
from tests.batches import blank_tree, random_sample
from tests.conftest import nightly

OBJECTIVE = TrainingObjective(1e-3, 1e-3)
# Compiling takes a minute.
ENGINES = ("torch", nightly("compiled"))


def _start(n: int, depth: int = 2, leaf: str = "log_logistic", n_rows: int = 150) -> tuple[SoftTree, Sample]:
    sample = random_sample(n, n_splits=min(n, 3), n_rows=n_rows, seed=2)
    tree = blank_tree(3, depth, leaf, (n,))
    initialize_random(tree, sample, [problem_seed(0, 0, k) for k in range(n)])
    return tree, sample


class _Recorder(Callback):
    """Keeps, for each step, what is thawed and what moved."""

    def __init__(self, tree: SoftTree) -> None:
        self.tree = tree
        self.seen: list[StepContext] = []

    def on_step(self, context: StepContext) -> None:
        topology, node = context.tree.topology, context.node
        if context.step == "LN":
            working = {f"leaves.{n}." for n in topology.leaves_under(node)}
        elif context.step == "WLR" or node == 1:
            working = {f"gates.{node}."}
        else:
            working = {f"gates.{n}." for n in topology.branches_under(node)}
        before = dict(self.tree.named_parameters())
        moved = False
        for name, parameter in context.tree.named_parameters():
            thawed = any(name.startswith(prefix) for prefix in working)
            assert parameter.requires_grad == thawed, (context.step, node, name)
            assert parameter.grad is None
            own = before[name][context.problems]
            assert not before[name].requires_grad
            if thawed:
                moved |= not torch.equal(parameter, own)
            else:
                assert torch.equal(parameter, own), (context.step, node, name)
        assert moved or context.macro_iteration > 1
        self.seen.append(context)


@pytest.mark.parametrize("depth", [0, 1, 2, nightly(3)])
def test_freezing_is_real_over_a_whole_run(depth: int) -> None:
    tree, sample = _start(12, depth)
    recorder = _Recorder(tree)
    Nodec(macro_iterations=2).train(tree, OBJECTIVE, sample, [recorder])
    steps = {context.step for context in recorder.seen}
    assert steps == ({"LN"} if depth == 0 else {"BN", "WLR", "LN"})
    nodes = {context.node for context in recorder.seen if context.step == "LN"}
    assert nodes == {1} if depth < 2 else nodes == set(range(2, 2**depth))
    if depth == 2:
        # Problems that take different branches at one node are sub-batches of their own.
        split = [c.step for c in recorder.seen if c.macro_iteration == 1 and c.node == 2]
        assert {"BN", "WLR"} <= set(split)
        both = [c.problems.tolist() for c in recorder.seen if c.macro_iteration == 1 and c.node == 2]
        assert not set(both[0]) & set(both[1])
    assert all(parameter.requires_grad for parameter in tree.parameters())


@pytest.mark.parametrize("engine", ENGINES)
def test_history_and_best_so_far(engine: Engine) -> None:
    tree, sample = _start(6)
    with torch.no_grad():
        initial = OBJECTIVE(tree, sample)
    history = Nodec(macro_iterations=4, engine=engine).train(tree, OBJECTIVE, sample)
    with torch.no_grad():
        final = OBJECTIVE(tree, sample)
    macro, steps = history.macro_iterations, history.steps
    first = macro[macro["macro_iteration"] == 0]
    np.testing.assert_allclose(first["objective"], initial, rtol=1e-12)
    last = macro.groupby("problem")["best_objective"].last()
    np.testing.assert_allclose(last, final, rtol=1e-12)
    assert (final < initial).all()
    assert (macro.groupby("problem")["best_objective"].diff().dropna() <= 0).all()
    masses = macro[[f"mass_{n}" for n in (4, 5, 6, 7)]].sum(axis=1)
    np.testing.assert_allclose(masses, 1.0, rtol=1e-12)
    trained = steps[steps["step"] != "SKIP"]
    assert np.isfinite(trained["objective_after"]).all()
    assert (trained["objective_after"] <= trained["objective_before"] + 1e-12).all()
    assert set(trained["status"]) <= {"CONVERGED", "MAX_ITER", "STALLED"}
    assert (trained["evaluations"] > 0).all()
    root = steps[steps["node"] == 1]
    assert (root["rows"] == sample.n_rows.numpy()[root["problem"]]).all()
    own = history.of_problem(3)
    assert len(own.steps) == (steps["problem"] == 3).sum()
    assert (own.steps["problem"] == 0).all()


# Batches of more than 47 of these trees are evaluated in blocks.


def test_an_interrupted_run_leaves_the_best_trees_so_far() -> None:
    class Interruption(Callback):
        ended = False

        def on_step(self, context: StepContext) -> None:
            if context.macro_iteration == 2 and context.step == "LN":
                raise KeyboardInterrupt

        def on_train_end(self, history: History) -> None:
            self.ended = True

    tree, sample = _start(5)
    one = tree.select(torch.arange(5))
    Nodec(macro_iterations=1).train(one, OBJECTIVE, sample)
    callback = Interruption()
    with pytest.raises(KeyboardInterrupt):
        Nodec(macro_iterations=3).train(tree, OBJECTIVE, sample, [callback])
    assert callback.ended
    assert all(parameter.requires_grad for parameter in tree.parameters())
    with torch.no_grad():
        assert (OBJECTIVE(tree, sample) <= OBJECTIVE(one, sample) + 1e-12).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_patience_and_gradient_retire_problems(engine: Engine) -> None:
    tree, sample = _start(5, depth=0)
    history = Nodec(macro_iterations=10, gradient_tolerance=1e-3, engine=engine).train(
        tree, OBJECTIVE, sample
    )
    assert history.macro_iterations["macro_iteration"].max() < 10
    tree, sample = _start(5)
    patient = Nodec(macro_iterations=4).train(tree.select(torch.arange(5)), OBJECTIVE, sample)
    hasty = Nodec(macro_iterations=4, patience=1, engine=engine).train(tree, OBJECTIVE, sample)
    assert len(hasty.steps) < len(patient.steps)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_leaf_region_without_events_keeps_its_leaves(engine: Engine) -> None:
    tree, sample = _start(2, depth=1)
    with torch.no_grad():
        tree.gate(1).weight.zero_()
        tree.gate(1).bias.fill_(5.0)
    before = {k: v.clone() for k, v in tree.state_dict().items()}
    sample.event[1] = 0.0
    history = Nodec(macro_iterations=2, engine=engine).train(tree, OBJECTIVE, sample)
    skipped = history.steps[history.steps["step"] == "SKIP"]
    assert set(skipped["problem"]) == {1}
    assert torch.equal(tree.state_dict()["leaves.2.slope"][1], before["leaves.2.slope"][1])
    for value in tree.state_dict().values():
        assert torch.isfinite(value).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_an_overflowing_leaf_starts_again(engine: Engine) -> None:
    tree, sample = _start(2, depth=0, leaf="weibull")
    with torch.no_grad():
        tree.leaf(1).shape[0] = 30.0
        tree.leaf(1).intercept[0] = -5.0
        assert not torch.isfinite(OBJECTIVE(tree, sample)[0])
    history = Nodec(macro_iterations=1, engine=engine).train(tree, OBJECTIVE, sample)
    with torch.no_grad():
        value = OBJECTIVE(tree, sample)
    assert torch.isfinite(value).all()
    assert history.steps.set_index("problem")["restarted"].sort_index().tolist() == [True, False]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_point_that_overflows_does_not_retire_a_problem(engine: Engine) -> None:
    tree, sample = _start(2, depth=1, leaf="weibull")
    with torch.no_grad():
        tree.leaf(3).shape[0] = 6.0
        tree.leaf(3).intercept[0] = -5.0
    sample.event[0] = 0.0  # its LN steps are skipped, so the point stays where it is
    history = Nodec(macro_iterations=3, gradient_tolerance=0.0, engine=engine).train(tree, OBJECTIVE, sample)
    assert (history.macro_iterations.groupby("problem")["macro_iteration"].max() == 3).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_any_finite_point_is_better_than_a_start_that_is_none(engine: Engine) -> None:
    tree, sample = _start(1, depth=1, leaf="weibull")
    with torch.no_grad():
        tree.leaf(2).intercept.fill_(-5000.0)
        assert not torch.isfinite(OBJECTIVE(tree, sample)).any()
    Nodec(macro_iterations=2, engine=engine).train(tree, OBJECTIVE, sample)
    with torch.no_grad():
        assert torch.isfinite(OBJECTIVE(tree, sample)).all()


def test_one_row_is_skipped() -> None:
    tree, sample = _start(1)
    with torch.no_grad():
        top = sample.x.to_dense()[0, :, 0].sort(descending=True).values
        tree.gate(1).weight.copy_(torch.tensor([[1e3, 0.0, 0.0]]))
        tree.gate(1).bias.fill_(-1e3 * float(top[:2].mean()))
    run = TrainingRun(tree, OBJECTIVE, sample, ())
    assert list(Nodec()._visit(run, 2, Nodec().thresholds)) == []
    steps = run.history.steps
    assert steps[["step", "rows"]].to_numpy().tolist() == [["SKIP", 1]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"eps": "eps_best"}, "eps must be one of eps_paper, eps_ordered"),
        ({"macro_iterations": 0}, "macro_iterations must be at least 1"),
        ({"zeta": 0.0}, "zeta must be in"),
        ({"patience": 0}, "patience must be at least 1"),
    ],
)
def test_settings_out_of_range_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Nodec(**values)  # type: ignore[arg-type]
