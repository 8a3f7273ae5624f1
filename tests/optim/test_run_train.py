"""Training of any set of nodes, by any minimiser, and trainers made of it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from sstorch import (
    GroupPenalties,
    PrognosticTree,
    SoftSurvivalTree,
    SurvivalData,
)
from sstorch.exceptions import ConfigError
from sstorch.nn import SoftTree
from sstorch.objective import L2Parity, SmallLeaves, TrainingObjective
from sstorch.optim import (
    LBFGSOptions,
    OptimizationResult,
    Status,
    Trainer,
    TrainingRun,
    torch_minimizer,
)
from sstorch.optim.steps import Batch, Step, lbfgs
from sstorch.optim.working_sets import joint_step
from tests.batches import random_sample, random_tree

OBJECTIVE = TrainingObjective(1e-3, 1e-3)
ADAM = torch_minimizer(lambda parameters: torch.optim.Adam(parameters, 0.1), 40)
TORCH_LBFGS = torch_minimizer(lambda p: torch.optim.LBFGS(p, max_iter=30, line_search_fn="strong_wolfe"), 1)
MINIMIZERS = {"lbfgs": lbfgs, "options": LBFGSOptions(max_iterations=5), "Adam": ADAM, "LBFGS": TORCH_LBFGS}
NODES = [{1}, {2, 3}, {6, 7}, {1, 3, 5}, set(range(1, 8))]


def _run(n: int = 4, leaf: str = "weibull", objective: TrainingObjective = OBJECTIVE) -> TrainingRun:
    return TrainingRun(random_tree(n, 2, leaf), objective, random_sample(n, n_splits=2))


def _value(run: TrainingRun, tree: SoftTree | None = None) -> Tensor:
    with torch.no_grad():
        return run.objective(tree or run.tree, run.rows)  # type: ignore[no-any-return]


# ------------------------------------------------------------------ the objective as a function of some nodes


@pytest.mark.parametrize("leaf", ["weibull", "generalized_gamma"])  # gradients in closed form, and without
@pytest.mark.parametrize("nodes", NODES)
def test_gradient_of_some_nodes_is_that_of_autograd(leaf: str, nodes: set[int]) -> None:
    tree, sample = random_tree(3, 2, leaf), random_sample(3)
    step = joint_step(Batch(tree, OBJECTIVE, sample), nodes)
    x = step.read()
    value, gradient = step.value_and_gradient(x)
    with torch.no_grad():
        torch.testing.assert_close(value, OBJECTIVE(tree, sample), rtol=1e-12, atol=1e-12)
    thawed = {id(parameter) for parameter in step.parameters}
    names = [name for name, parameter in tree.named_parameters() if id(parameter) in thawed]
    assert {int(name.split(".")[1]) for name in names} == nodes
    plain = step.objective.data(x.requires_grad_()) + step.objective.penalty(x)
    torch.testing.assert_close(torch.autograd.grad(plain.sum(), x)[0], gradient, rtol=1e-9, atol=1e-11)


# ------------------------------------------------------------------ a step of a run


@pytest.mark.parametrize("minimizer", MINIMIZERS)
@pytest.mark.parametrize("nodes", NODES[1:4])
def test_step_lowers_the_objective_by_its_nodes_alone_and_is_recorded(
    minimizer: str, nodes: set[int]
) -> None:
    run = _run()
    run.active = torch.tensor([0, 2, 3])
    start, before = run.tree.select(torch.arange(4)), _value(run)
    run.take(run.step(nodes, name="MINE", minimizer=MINIMIZERS[minimizer]))  # type: ignore[arg-type]
    after = _value(run)
    assert not run.unimproved.any()
    assert (after[run.active] < before[run.active] - 1e-3).all()
    assert after[1] == before[1]
    for name, parameter in run.tree.named_parameters():
        moved = (parameter != start.get_parameter(name)).reshape(4, -1).any(1)
        assert moved.tolist() == [int(name.split(".")[1]) in nodes and k != 1 for k in range(4)], name
    steps = run.history.steps
    assert (steps["node"] == min(nodes)).all()
    assert steps["problem"].tolist() == [0, 2, 3]
    assert (steps["step"] == "MINE").all()
    np.testing.assert_allclose(steps["objective_before"], before[run.active], rtol=1e-12)
    np.testing.assert_allclose(steps["objective_after"], after[run.active], rtol=1e-12)
    assert (steps["evaluations"] > 1).all()
    torch.testing.assert_close(_value(run, run.best_tree), after, rtol=0, atol=0)
    torch.testing.assert_close(run.best, after, rtol=1e-12, atol=0)
    run.take(run.step(nodes))
    assert run.history.steps["step"].iloc[-1] == "+".join(map(str, sorted(nodes)))


@pytest.mark.parametrize("minimizer", ["lbfgs", "Adam"])
def test_all_penalties_are_part_of_the_objective(minimizer: str) -> None:
    n = 4
    times, rho = np.linspace(0.1, 2.0, 5), torch.full((n,), 5.0, dtype=torch.float64)
    parity = L2Parity(gates="relaxed").penalty(rho, [times], np.zeros(1), [n])
    objective = TrainingObjective(1e-3, 1e-3, row_penalties=[SmallLeaves(10.0, 0.2), parity])
    rows = random_sample(n, n_splits=2)
    rows = replace(rows, group=(torch.arange(60) % 2).expand(n, -1).contiguous(), n_groups=2)
    run = TrainingRun(random_tree(n, 2, "weibull"), objective, rows)
    run.take(run.step({4, 5}, minimizer=MINIMIZERS[minimizer]))  # type: ignore[arg-type]
    np.testing.assert_allclose(run.history.steps["objective_after"], _value(run), rtol=1e-10)
    run.take(run.step({1, 2}, minimizer=MINIMIZERS[minimizer]))  # type: ignore[arg-type]
    with torch.no_grad():
        relaxed = objective.data_term(run.tree, run.rows) + objective.penalty(run.tree)
        relaxed = relaxed + objective.row_penalty(run.tree, run.rows, relaxed=True)
    np.testing.assert_allclose(run.history.steps["objective_after"].tail(n), relaxed, rtol=1e-10)
    assert (run.best <= _value(run) + 1e-12).all()


def _result(x: Tensor) -> OptimizationResult:
    value, count = x.new_full(x.shape[:1], -1e9), torch.ones(len(x), dtype=torch.int64)
    return OptimizationResult(x, value, value, count * Status.CONVERGED, count, value)


@pytest.mark.parametrize("end", [torch.nan, torch.inf, 1e3, 0.0])
def test_minimiser_that_ends_worse_or_not_finite_leaves_the_problem_as_it_was(end: float) -> None:
    run = _run()
    start, before = run.tree.select(torch.arange(4)), _value(run)
    run.take(run.step({1, 4, 5}, minimizer=lambda _, x: _result(x + end)))
    assert run.unimproved.all()
    for name, parameter in run.tree.named_parameters():
        assert torch.equal(parameter, start.get_parameter(name))
    assert torch.equal(_value(run), before)
    steps = run.history.steps
    assert (steps["status"] == ("STALLED" if end else "CONVERGED")).all()
    np.testing.assert_allclose(steps["objective_after"], before, rtol=1e-12)  # not what the minimiser claims


@pytest.mark.parametrize("minimizer", ["lbfgs", "Adam"])
def test_leaf_that_overflows_is_restarted_only_where_leaves_are_trained(minimizer: str) -> None:
    for nodes, finite in (({5}, True), ({1, 2}, False)):
        tree = random_tree(2, 2, "weibull", scale=0.0)
        with torch.no_grad():
            tree.leaf(5).intercept[0] = -500.0
            tree.leaf(5).shape[0] = 3.0
        run = TrainingRun(tree, OBJECTIVE, random_sample(2))
        assert _value(run).isfinite().tolist() == [False, True]
        run.take(run.step(nodes, minimizer=MINIMIZERS[minimizer]))  # type: ignore[arg-type]
        assert _value(run).isfinite().tolist() == [finite, True]
        assert run.history.steps["restarted"].tolist() == [finite, False]
        assert run.history.steps["status"].iloc[0] != "NON_FINITE" or not finite


@pytest.mark.parametrize("nodes", [[], [0], [8], [1, 9], ["a"]])
def test_nodes_that_the_tree_lacks_raise(nodes: Iterable[int]) -> None:
    with pytest.raises(ConfigError, match=r"must be numbers of gates \(1 to 3\) and leaves \(4 to 7\)"):
        _run().step(nodes)
    run = TrainingRun(random_tree(1, 0), OBJECTIVE, random_sample(1))
    with pytest.raises(ConfigError, match=r"numbers of leaves \(1 to 1\), got \[2\]"):
        run.step([2])


# ------------------------------------------------------------------ optimisers of torch


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.Adam(p, 0.1),
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
        lambda p: torch.optim.Adafactor(p, 0.1),  # steps in units of the size of a parameter
        lambda p: torch.optim.LBFGS(p, max_iter=10, line_search_fn="strong_wolfe"),
    ],
)
def test_optimiser_treats_each_problem_as_if_it_were_alone(make: object) -> None:
    minimizer = torch_minimizer(make, 10)  # type: ignore[arg-type]
    tree, sample = random_tree(4, 2), random_sample(4, n_splits=2)
    step = joint_step(Batch(tree, OBJECTIVE, sample))
    together = minimizer(step.objective, step.read())
    for k in range(4):
        alone = minimizer(step.objective.select(slice(k, k + 1)), step.read()[k : k + 1])
        torch.testing.assert_close(together.x[k : k + 1], alone.x, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(together.value[k : k + 1], alone.value, rtol=1e-9, atol=0)


def test_optimiser_takes_the_steps_that_a_loop_of_torch_takes() -> None:
    tree, sample = random_tree(1, 2, "weibull"), random_sample(1)
    step = joint_step(Batch(tree, OBJECTIVE, sample))
    result = torch_minimizer(lambda p: torch.optim.SGD(p, 0.01), 15)(step.objective, step.read())
    optimizer = torch.optim.SGD(tree.parameters(), 0.01)
    for _ in range(15):
        optimizer.zero_grad()
        OBJECTIVE(tree, sample).sum().backward()
        optimizer.step()
    torch.testing.assert_close(result.x, step.read(), rtol=1e-9, atol=1e-11)
    assert result.n_evaluations.tolist() == [16]
    assert result.status.tolist() == [Status.MAX_ITER]


# ------------------------------------------------------------------ trainers


class Pairs(Trainer):
    """As a user writes it: one pass, without settings."""

    def steps(self, run: TrainingRun) -> Iterator[Step]:
        for nodes in permuted([{1}, {2, 3}, {4, 5}, {6, 7}]):
            yield run.step(nodes, minimizer=torch_minimizer(lambda p: torch.optim.Adam(p, 0.1), 40))
        run.end_pass()


def permuted(sets: Sequence[set[int]]) -> list[set[int]]:
    return [sets[k] for k in np.random.default_rng(0).permutation(len(sets))]


@pytest.mark.parametrize(
    "estimator",
    [
        SoftSurvivalTree(trainer=Pairs(), init="random", n_starts=3, min_leaf=0.1),
        PrognosticTree(trainer=Pairs(), penalties=GroupPenalties(ridge=1e-3)),
    ],
)
def test_trainer_of_one_method_trains_estimators(
    estimator: SoftSurvivalTree, small_data: SurvivalData
) -> None:
    tree = estimator.fit(small_data.frame, (small_data.time, small_data.event))
    steps, passes = tree.history_.steps, tree.history_.macro_iterations
    assert steps["step"].tolist() == ["+".join(map(str, sorted(nodes))) for nodes in permuted(NODES_OF_PAIRS)]
    assert passes["macro_iteration"].tolist() == [0, 1]
    assert passes["best_objective"].iloc[1] < passes["best_objective"].iloc[0]
    assert (steps["objective_after"] <= steps["objective_before"]).all()
    again = estimator.__class__(**estimator.get_params(deep=False))
    again.fit(small_data.frame, (small_data.time, small_data.event))
    assert again.objective_ == tree.objective_


NODES_OF_PAIRS = [{1}, {2, 3}, {4, 5}, {6, 7}]
