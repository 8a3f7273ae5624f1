"""The compiled engine compared with torch: the same functions, the same steps, the same refusals."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

from sstorch.bench.flat import soft_tree
from sstorch.data import SurvivalData
from sstorch.exceptions import ConfigError
from sstorch.monitoring import ProgressBar
from sstorch.nn import FAMILIES, SoftTree, make_family
from sstorch.objective import Monotone, Sample, TrainingObjective
from sstorch.optim import Engine, Joint, LBFGSOptions, Leaves, Nodec, NodecJoint, Trainer
from sstorch.optim.compiled import jit, visits
from sstorch.optim.compiled.problems import CompiledProblems
from sstorch.optim.engine import compiled_problems
from tests.batches import blank_tree, random_sample, with_entry
from tests.conftest import nightly

KERNELS = [name for name, make in FAMILIES.items() if make().kernel is not None]
P, P_GATE = 4, 3


def _problems(
    leaf: str, ancillary: str = "constant", entry: bool = False, depth: int = 2, n: int = 4
) -> tuple[SoftTree, Sample]:
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
    family = make_family(leaf, ancillary=ancillary)
    zero = torch.zeros(n, dtype=torch.float64)
    family = family.prepare(sample.log_time, sample.event, sample.weight, zero)
    tree = blank_tree(P, depth, family, (n,), n_gate_features=P_GATE)
    with torch.no_grad():
        for name, parameter in tree.named_parameters():
            draw = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_((1.0 if name.startswith("gates") else 0.2) * draw)
    return tree, sample


def _objective(n: int = 4) -> TrainingObjective:
    """Every penalty on parameters, some with a coefficient a problem."""
    return TrainingObjective(
        ridge=0.1,
        gate_ridge=torch.linspace(0.01, 0.05, n, dtype=torch.float64),
        fused=0.3,
        gate_sparsity=0.02,
        roughness=0.2,
        curved=torch.arange(P) % 2 == 0,
        monotone=Monotone(torch.full((n,), 10.0), torch.eye(2, P, dtype=torch.float64).expand(n, 2, P)),
        offset=torch.linspace(0.1, 0.2, n, dtype=torch.float64),
        fused_shape=0.05,
    )


def _by_autograd(tree: SoftTree, objective: TrainingObjective, sample: Sample) -> tuple[Tensor, Tensor]:
    value = objective(tree, sample)
    parameters = [parameter for parameter in tree.parameters() if parameter.numel()]
    gradients = iter(torch.autograd.grad(value.sum(), parameters))
    slopes = tree.select(torch.arange(tree.n_problems))
    with torch.no_grad():
        for parameter in slopes.parameters():
            if parameter.numel():
                parameter.copy_(next(gradients))
    parts = slopes.gate_parameters().flatten(), slopes.leaf_parameters().flatten()
    return value.detach(), torch.cat([part.flatten(1) for part in parts], dim=1).detach()


@pytest.mark.parametrize("entry", [False, True], ids=["from zero", "late entry"])
@pytest.mark.parametrize("ancillary", ["constant", "linear"])
@pytest.mark.parametrize("leaf", KERNELS)
def test_value_and_gradient_are_those_of_the_objective(leaf: str, ancillary: str, entry: bool) -> None:
    for depth in (0, 2):
        tree, sample = _problems(leaf, ancillary, entry, depth)
        objective = _objective()
        if ancillary == "linear":
            objective = TrainingObjective(ridge=0.1, gate_ridge=0.01, fused=0.3)
        expected = _by_autograd(tree, objective, sample)
        problems = CompiledProblems(tree, objective, sample)
        everyone = torch.arange(tree.n_problems)
        value, gradient = problems.value_and_gradient(everyone)
        torch.testing.assert_close(value, expected[0], rtol=1e-12, atol=1e-12)
        scale = expected[1].abs().amax(-1, keepdim=True)
        torch.testing.assert_close(gradient / scale, expected[1] / scale, rtol=0, atol=1e-12)
        assert torch.equal(problems.objective(everyone), value)


@pytest.mark.nightly
@pytest.mark.parametrize("leaf", [*KERNELS[:3], *map(nightly, KERNELS[3:])])
@pytest.mark.parametrize("shared", [False, True], ids=["own slopes", "shared slopes"])
def test_leaves_end_where_those_of_torch_end(leaf: str, shared: bool) -> None:
    tight = LBFGSOptions(max_iterations=1000, gradient_tolerance=1e-9, relative_tolerance=0.0)
    objective = TrainingObjective(0.05, fused=torch.inf if shared else 0.0, offset=0.1, fused_shape=0.1)
    ends = []
    for engine in ("torch", "compiled"):
        tree, sample = _problems(leaf)
        history = Leaves(tight, engine=cast(Engine, engine)).train(tree, objective, sample)
        assert history.steps["step"].tolist() == ["LN"] * 4
        ends.append(history.steps["objective_after"].to_numpy())
        if shared:
            slopes = tree.leaf_parameters().slope
            assert torch.equal(slopes, slopes[:, :1].expand_as(slopes))
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-8)


TRAINERS: dict[str, Trainer] = {
    "nodec": Nodec(macro_iterations=4),
    "patience": Nodec(macro_iterations=4, patience=4),
    "joint": Joint(),
    "nodec+joint": NodecJoint(Nodec(macro_iterations=2)),
}


@pytest.mark.nightly
@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize(
    "leaf", ["log_logistic", *map(nightly, ("spline_ph", "logistic_hazard", "log_normal"))]
)
def test_objectives_are_as_low_as_torchs(leaf: str, trainer: str) -> None:
    objective, found, columns = TrainingObjective(1e-3, 1e-3), [], []
    for engine in ("torch", "compiled"):
        tree, sample = _problems(leaf, n=60)
        history = replace(TRAINERS[trainer], engine=cast(Engine, engine)).train(tree, objective, sample)
        with torch.no_grad():
            value = objective(tree, sample).numpy()
        by_problem = history.macro_iterations.groupby("problem")
        np.testing.assert_allclose(by_problem["best_objective"].last(), value, rtol=1e-9)
        found.append(value)
        columns.append([*history.steps, *history.macro_iterations])
    assert columns[0] == columns[1]
    # Paths part where a step is cut off: torch minimises the leaves of a step together, the kernels one by
    # one. Minima differ, none systematically better.
    assert (found[1] - found[0]).mean() < 0.003
    best = [values.reshape(2, -1).min(1) for values in found]
    assert (best[1] - best[0] < 0.001).all()


@pytest.mark.nightly
@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_problem_is_trained_to_the_same_bits_alone_and_on_any_number_of_threads(trainer: str) -> None:
    # Leaves that overflow would be torch's, whose sums depend on its threads.
    tree, sample = _problems("log_logistic", n=6)
    objective, n_threads = TrainingObjective(1e-3, 1e-3), torch.get_num_threads()
    ends = []
    try:
        for threads, some in ((1, torch.arange(6)), (2, torch.arange(6)), (1, torch.tensor([0, 3]))):
            torch.set_num_threads(threads)
            part, rows = tree.select(some), sample.select(some)
            replace(TRAINERS[trainer], engine="compiled").train(part, objective, rows)
            ends.append(part.state_dict())
    finally:
        torch.set_num_threads(n_threads)
    for name, value in ends[0].items():
        assert torch.equal(value, ends[1][name])
        assert torch.equal(value[[0, 3]], ends[2][name])


@pytest.mark.nightly
@pytest.mark.parametrize("depth", [3, nightly(6)])
def test_deep_trees_and_many_rows(depth: int) -> None:
    sample = random_sample(1, n_rows=3000, seed=1)
    tree = blank_tree(3, depth, "log_logistic", (1,))
    with torch.no_grad():
        for parameter in tree.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    objective = TrainingObjective(1e-3, 1e-3)
    problems = CompiledProblems(tree, objective, sample)
    value, gradient = problems.value_and_gradient(torch.arange(1))
    expected = _by_autograd(tree, objective, sample)
    torch.testing.assert_close(value, expected[0], rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, expected[1], rtol=0, atol=1e-12 * float(expected[1].abs().max()))
    before = float(value)
    Nodec(macro_iterations=1, engine="compiled").train(tree, objective, sample)
    with torch.no_grad():
        assert float(objective(tree, sample)) < before


@pytest.mark.nightly
@pytest.mark.parametrize("limits", [{"max_iterations": 0}, {"max_evaluations": 1}])
@pytest.mark.parametrize("engine", ["torch", "compiled"])
def test_without_iterations_a_start_stays(engine: Engine, limits: dict[str, int]) -> None:
    tree, sample = _problems("log_logistic")
    before = {name: value.clone() for name, value in tree.state_dict().items()}
    history = Joint(LBFGSOptions(**limits), engine=engine).train(tree, TrainingObjective(1e-3), sample)
    assert history.steps["evaluations"].tolist() == [1] * 4
    assert all(torch.equal(value, before[name]) for name, value in tree.state_dict().items())


@pytest.mark.nightly
def test_rows_held_out_choose_the_point() -> None:
    tree, sample = _problems("weibull")
    kept = torch.rand(sample.weight.shape, generator=torch.Generator().manual_seed(1)) < 0.7
    held_out = replace(sample, weight=sample.weight * ~kept)
    sample = replace(sample, weight=sample.weight * kept)
    history = Nodec(macro_iterations=3, engine="compiled").train(
        tree, TrainingObjective(1e-3), sample, (), held_out
    )
    with torch.no_grad():
        loss = TrainingObjective()(tree, held_out)
    last = history.macro_iterations.groupby("problem")["best_objective"].last()
    np.testing.assert_allclose(last, loss, rtol=1e-10)


class TorchOnly(Joint):
    """A trainer without compiled steps."""

    compiled_from = None


REFUSED = [
    (TorchOnly(), {}, {}, "TorchOnly trains by torch alone"),
    (Nodec(), {"leaf": "generalized_gamma"}, {}, "leaf 'generalized_gamma' has no compiled loss"),
    (Nodec(), {"dtype": "float32"}, {}, "double precision alone: use dtype='float64'"),
]


@pytest.mark.parametrize(("trainer", "parameters", "_", "message"), REFUSED)
def test_what_it_cannot_train_is_refused_or_left_to_torch(
    trainer: Trainer,
    parameters: dict[str, object],
    _: object,
    message: str,
    small_data: SurvivalData,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"depth": 1, "n_starts": 1, "trainer": trainer, **parameters}
    y = (small_data.time, small_data.event)
    with pytest.raises(ConfigError, match=message):
        soft_tree(engine="compiled", **given).fit(small_data.frame, y)
    if "leaf" not in parameters:
        if trainer.compiled_from is not None:
            monkeypatch.setattr(type(trainer), "compiled_from", 1)
        soft_tree(engine="auto", **given).fit(small_data.frame, y)


def test_auto_is_compiled_where_there_is_much_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree, sample = _problems("weibull")

    def problems(engine: Engine, many: float) -> CompiledProblems | None:
        return compiled_problems(
            engine, None, tree, TrainingObjective(), sample, many, ProgressBar().on_compile
        )

    assert problems("auto", sample.weight.numel() + 1) is None
    assert problems("torch", 1) is None
    assert problems("auto", sample.weight.numel()) is not None
    assert problems("compiled", math.inf) is not None
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(jit, "cache_folder", lambda: tmp_path / "none")
    problems("compiled", math.inf)
    assert "once on this machine" in capsys.readouterr().err


def test_an_engine_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="engine must be one of auto, torch, compiled, got 'numba'"):
        Nodec(engine=cast(Engine, "numba"))


def test_a_family_that_changes_another_has_no_kernel() -> None:
    class Slower(type(make_family("weibull"))):  # type: ignore[misc]
        name = "slower"

    assert make_family("weibull").kernel == "weibull"
    assert Slower().kernel is None


@pytest.mark.nightly
def test_the_package_is_loaded_without_numba() -> None:
    code = "import sys, sstorch, sstorch.optim; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.nightly
def test_kernels_lie_in_a_folder_of_their_version(tmp_path: Path) -> None:
    code = (
        "from numba import types\n"
        "from sstorch.optim.compiled.families import n_pairs\n"
        "from sstorch.optim.compiled.jit import address, cache_folder\n"
        "print(address(n_pairs, types.int64(types.int64, types.int64)), cache_folder())"
    )
    folder = tmp_path / "cache"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder)},
    )
    where, place = done.stdout.split()
    assert int(where) > 0
    assert Path(place).parent == folder
    assert list(Path(place).rglob("*.nbc"))


def test_names_of_statuses_and_steps_agree() -> None:
    from sstorch.objective.penalties import GateGroupLasso
    from sstorch.optim.batched_lbfgs import Status
    from sstorch.optim.compiled import curvature, lbfgs, steps
    from sstorch.optim.steps import base

    for name in ("CONVERGED", "MAX_ITER", "STALLED", "NON_FINITE"):
        assert getattr(lbfgs, name) == Status[name]
    assert (curvature.MAX_ROWS, curvature.MAX_BLOCK) == (base.MAX_ROWS, base.MAX_BLOCK)
    assert visits.CEILING == base.LOSS_CEILING
    assert steps.SMOOTHING == GateGroupLasso.SMOOTHING


@pytest.mark.parametrize("crowded_left", [True, False])
def test_reassigned_rows_are_the_first_of_a_stable_order(crowded_left: bool) -> None:
    rng = np.random.default_rng(4)
    losses, reach = rng.integers(0, 3, (2, 60)).astype(float), np.full((2, 60), 0.5)  # many ties
    left = rng.random(60) < (0.8 if crowded_left else 0.2)
    expected = left.copy()
    own = np.flatnonzero(left == crowded_left)
    order = np.argsort(-(reach * losses).sum(0)[own], kind="stable")
    expected[own[order[: int(0.4 * len(own))]]] ^= True
    visits._swap.py_func(losses, reach, left, left.mean(), 0.4)  # type: ignore[attr-defined]  # of numba
    np.testing.assert_array_equal(left, expected)
