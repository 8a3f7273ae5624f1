"""The compiled engine compared with torch: the same functions, the same steps, the same refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numba import njit

from sstorch._types import FloatArray
from sstorch.exceptions import ConfigError
from sstorch.monitoring import History
from sstorch.nn import SoftTree, make_family
from sstorch.objective import Sample, SmallLeaves, TrainingObjective
from sstorch.objective.penalties import Monotone
from sstorch.optim import LBFGSOptions, Nodec, Thresholds, Trainer, TrainingRun, batched_lbfgs
from sstorch.optim.compiled import jit, minimizer, passes, rows
from sstorch.optim.compiled.trees import CompiledTrees
from sstorch.optim.nodec import Engine, compiled_trees, link_of
from sstorch.optim.steps import MAX_ROWS, Batch
from sstorch.optim.working_sets import LOSS_CEILING, MAX_BLOCK, joint_step
from tests.batches import blank_tree, random_sample, random_tree, with_entry, within_intervals
from tests.conftest import nightly

FAMILIES = ["exponential", "weibull", "log_logistic", "spline_ph", "spline_po"]
P, P_GATE = 4, 3
RIDGES = TrainingObjective(1e-2, torch.linspace(0.01, 0.05, 4, dtype=torch.float64))
TIGHT = LBFGSOptions(max_iterations=500, gradient_tolerance=1e-10, relative_tolerance=0.0)


def _problems(leaf: str, entry: bool = False, depth: int = 2, n: int = 4) -> tuple[SoftTree, Sample]:
    """Trees whose gates see the first features and whose leaves the last, on weighted rows of two splits.

    Rows that entered late are of subjects with several.
    """
    sample = random_sample(n, n_splits=2, n_rows=230, p=P + 1, seed=3)
    generator = torch.Generator().manual_seed(5)
    weight = sample.weight * torch.rand(sample.weight.shape, generator=generator, dtype=torch.float64)
    sample = replace(sample, weight=weight)
    if entry:
        per_subject = torch.linspace(1.0, 3.0, n, dtype=torch.float64)[:, None]
        sample = replace(with_entry(sample), rows_per_subject=per_subject)
    zero = torch.zeros(n, dtype=torch.float64)
    family = make_family(leaf).prepare(sample.log_time, sample.event, sample.weight, zero)
    tree = blank_tree(P, depth, family, (n,), n_gate_features=P_GATE)
    with torch.no_grad():
        for name, parameter in tree.named_parameters():
            draw = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_((1.0 if name.startswith("gates") else 0.2) * draw)
    return tree, sample


def _train(engine: str, trainer: Trainer, tree: SoftTree, sample: Sample, *given: Any) -> History:
    objective = RIDGES if tree.n_problems == 4 else TrainingObjective(1e-3, 1e-3)
    return replace(trainer, engine=cast(Engine, engine)).train(tree, objective, sample, *given)


# ------------------------------------------------------------------ functions


@njit
def _evaluate(model: Any, x: Any, times: Any, ends: Any, ridge: Any, theta: Any) -> Any:
    gradient, w = np.empty(theta.size), np.empty((40, 256))
    return rows.evaluate(model, x, times, ends, ridge, theta, gradient, w), gradient


@njit
def _metric(model: Any, x: Any, times: Any, ends: Any, ridge: Any, theta: Any, h: Any) -> None:
    rows.metric(model, x, times, ends, ridge, theta, h, np.empty((40, 256)))


# Link, whether the index is a spline, shapes and gates; of a leaf, a logistic regression, gates.
STEPS = {
    **{f"affine {link}": (link, 0, 1, 0) for link in range(2)},
    **{f"spline {link}": (link, 1, 2, 0) for link in range(2)},
    "without shape": (rows.EXP, 0, 0, 0),
    "regression": (rows.BERNOULLI, 0, 0, 0),
    "gate": (0, 0, 0, 1),
    "gates": (0, 0, 0, 7),
}


@pytest.mark.parametrize("step", STEPS)
def test_gradients_and_curvatures_are_those_of_differences(step: str) -> None:
    link, spline, s, n_gates = STEPS[step]
    rng = np.random.default_rng(3)
    p, n = 5, 64
    d = (p + 1) * n_gates if n_gates else p + 1 + s
    x, times = rng.random((2, p + 1, n)), rng.random((2, 2 + 2 * max(s, 1), n))
    times[:, 0] *= link != rows.BERNOULLI
    times[:, 1] = times[:, 1] < 0.5
    ends, theta = rng.random((2, n_gates + 1, n)), rng.normal(size=d)
    model = (link, spline, 1 if n_gates == 0 else 0, p, s, n_gates)
    ridge = rng.random(d) + (100.0 if step.startswith("affine") else 0.0)  # which makes it definite
    given = model, x, times, ends, ridge

    def value(at: FloatArray) -> float:
        return float(_evaluate(*given, at)[0])

    gradient, moves = _evaluate(*given, theta)[1], 1e-6 * np.eye(d)
    differences = [(value(theta + move) - value(theta - move)) / 2e-6 for move in moves]
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-6)
    if n_gates == 0:
        inverse = np.empty((1, d, d))
        _metric(*given, theta, inverse)
        hessian = [
            (_evaluate(*given, theta + move)[1] - _evaluate(*given, theta - move)[1]) / 2e-6 for move in moves
        ]
        np.testing.assert_allclose(inverse[0] @ hessian, np.eye(d), atol=1e-5)
        diagonal = np.empty((d, 1, 1))
        _metric(*given, theta, diagonal)
        np.testing.assert_allclose(1 / diagonal.ravel(), np.diag(hessian), rtol=1e-5)


@pytest.mark.parametrize("entry", [False, True], ids=["from zero", "late entry"])
@pytest.mark.parametrize("leaf", FAMILIES)
def test_where_a_tree_stands_is_what_torch_says(leaf: str, entry: bool) -> None:
    for depth in (0, 2, 3):
        tree, sample = _problems(leaf, entry, depth)
        engine = CompiledTrees(tree, RIDGES, sample, str(link_of(tree.family)))
        run = TrainingRun(tree, RIDGES, sample, (), compiled=engine)
        standing = engine.train_pass(run, (0.1, 0.3, 0.4), LBFGSOptions(max_iterations=5), None)
        step = joint_step(Batch(tree, RIDGES, sample))
        value, gradient = step.value_and_gradient(step.read())
        torch.testing.assert_close(standing[0], value, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(standing[1], gradient.abs().amax(-1), rtol=1e-9, atol=1e-10)
        ends = torch.nn.functional.one_hot(tree.apply_leaf(sample.x), 2**depth)
        masses = (sample.normalised_weight[..., None] * ends).sum(-2)
        torch.testing.assert_close(standing[2], masses, rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------ steps


@pytest.mark.parametrize(
    "thresholds", ["eps_paper", Thresholds(0.49, 0.45, 0.4)], ids=["paper", "reassigned"]
)
@pytest.mark.parametrize("entry", [False, True], ids=["from zero", "late entry"])
@pytest.mark.parametrize("leaf", [*FAMILIES[:3], *map(nightly, FAMILIES[3:])])
def test_a_step_ends_where_that_of_torch_ends(leaf: str, entry: bool, thresholds: str | Thresholds) -> None:
    trainer = Nodec(thresholds, macro_iterations=1, lbfgs=TIGHT)
    found = []
    for engine in ("torch", "compiled"):
        tree, sample = _problems(leaf, entry, depth=1)
        found.append(_train(engine, trainer, tree, sample).steps)
    of_torch, own = found
    names = ["problem", "node", "step", "rows"]
    assert own[names].to_dict() == of_torch[names].to_dict()
    assert set(own["step"]) >= {"LN"}
    for column in ("objective_before", "objective_after"):
        np.testing.assert_allclose(own[column], of_torch[column], rtol=1e-10, err_msg=column)


def test_the_records_are_those_of_torch() -> None:
    found = []
    for engine in ("torch", "compiled"):
        tree, sample = _problems("log_logistic")
        weight = sample.weight.clone()
        weight[0, 1:] = 0  # one row: nothing to train
        found.append(_train(engine, Nodec(macro_iterations=2), tree, replace(sample, weight=weight)))
    assert 0 not in set(found[1].steps["problem"])
    for table, key in (
        ("steps", ["problem", "macro_iteration", "node", "step"]),
        ("macro_iterations", ["problem"]),
    ):
        of_torch, own = (getattr(history, table) for history in found)
        assert own.dtypes.to_dict() == of_torch.dtypes.to_dict()
        assert own[key].to_dict() == of_torch[key].to_dict()
        numbers = [part[part["problem"] == 0].select_dtypes("number") for part in (own, of_torch)]
        np.testing.assert_allclose(*numbers, rtol=1e-9, atol=1e-12)


def test_a_tree_is_trained_to_the_same_bits_alone_and_on_any_number_of_threads() -> None:
    tree, sample = _problems("log_logistic", n=6)
    n_threads, ends = torch.get_num_threads(), []
    try:
        for threads, some in ((1, torch.arange(6)), (2, torch.arange(6)), (1, torch.tensor([3]))):
            torch.set_num_threads(threads)
            part = tree.select(some)
            _train("compiled", Nodec(macro_iterations=3), part, sample.select(some))
            ends.append(part.state_dict())
    finally:
        torch.set_num_threads(n_threads)
    for name, value in ends[0].items():
        assert torch.equal(value, ends[1][name])
        assert torch.equal(value[[3]], ends[2][name])


@pytest.mark.parametrize("crowded_left", [True, False])
def test_reassigned_rows_are_the_first_of_a_stable_order(crowded_left: bool) -> None:
    rng = np.random.default_rng(4)
    for n_values in (1, 3, 1000):
        error = rng.integers(0, n_values, 60).astype(float)  # ties
        left = rng.random(60) < (0.8 if crowded_left else 0.2)
        own = np.flatnonzero(left == crowded_left)
        for count in (1, len(own) // 2, len(own)):
            expected, label = left.copy(), left.copy()
            expected[own[np.argsort(-error[own], kind="stable")[:count]]] ^= True
            passes.swap.py_func(error, count, left, crowded_left, label)
            np.testing.assert_array_equal(label, expected)


def test_numbers_are_those_of_torch() -> None:
    from sstorch.optim.batched_lbfgs import Status

    for name in ("CONVERGED", "MAX_ITER", "STALLED", "NON_FINITE"):
        assert getattr(minimizer, name) == Status[name]
    assert (rows.MAX_ROWS, rows.MAX_BLOCK) == (MAX_ROWS, MAX_BLOCK)
    assert passes.CEILING == LOSS_CEILING
    for name in ("C1", "C2", "MAX_TRIALS"):
        assert getattr(minimizer, name) == getattr(batched_lbfgs, name)


# ------------------------------------------------------------------ choice of the engine


MONOTONE = Monotone(torch.ones(2), torch.zeros(2, 1, 3))


class Slower(type(make_family("weibull"))):  # type: ignore[misc]
    name = "slower"


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("leaf 'spline_probit' has no compiled loss", {"leaf": "spline_probit"}),
    ("leaf 'slower' has no compiled loss", {"leaf": Slower()}),
    ("ancillary='linear' is not supported", {"leaf": make_family("weibull", ancillary="linear")}),
    ("double precision alone: use dtype='float64'", {"tree": random_tree(2, 1).float()}),
    ("penalties on rows", {"objective": TrainingObjective(row_penalties=[SmallLeaves(10.0, 0.2)])}),
    ("Monotone is not supported", {"objective": TrainingObjective(monotone=MONOTONE)}),
    ("times within intervals", {"rows": within_intervals(random_sample(2))}),
]


@pytest.mark.parametrize(("message", "given"), REFUSED)
def test_what_it_cannot_train_raises(message: str, given: dict[str, Any]) -> None:
    tree = given.get("tree") or random_tree(2, 1, given.get("leaf", "weibull"))
    objective, rows = given.get("objective", TrainingObjective(1e-3)), given.get("rows", random_sample(2))
    with pytest.raises(ConfigError, match=message):
        compiled_trees("compiled", tree, objective, rows)
    assert compiled_trees("torch", tree, objective, rows) is None


def test_auto_is_compiled_where_there_is_much_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, sample = _problems("weibull")
    for many, is_compiled in ((sample.weight.numel() + 1, False), (sample.weight.numel(), True)):
        monkeypatch.setattr("sstorch.optim.nodec.MANY_ROWS", many)
        assert (compiled_trees("auto", tree, RIDGES, sample) is not None) == is_compiled


def test_a_relative_cache_of_the_user_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jit.numba.config, "CACHE_DIR", "")
    home = Path.home() / ".cache"
    for given, expected in (("", home), ("here", home), (str(tmp_path), tmp_path)):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert jit.cache_folder.__wrapped__().parent == expected / "sstorch"
