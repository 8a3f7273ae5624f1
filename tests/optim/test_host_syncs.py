"""A GPU waits for the host only where the batched L-BFGS looks which problems are done."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import sstorch
from sstorch.nn import DesignMatrix, SoftTree
from sstorch.objective import Ridge, Sample, TrainingObjective
from sstorch.optim import Joint, LBFGSOptions, Leaves, Nodec, Trainer, steps
from sstorch.optim.batched_lbfgs import OptimizationResult, _Problems
from tests.batches import random_sample, random_tree, to_device
from tests.conftest import nightly

LOOK = "optim/batched_lbfgs: _Problems.running"
COMPACTION = "data/design_matrix: DesignMatrix.select"

PLAIN = TrainingObjective(1e-3, 1e-4)
PENALISED = TrainingObjective(1e-3, 1e-4, own=[Ridge(0.1)])
SHORT = LBFGSOptions(max_iterations=8)

# ------------------------------------------------------------------ what would stall a GPU, seen on a CPU

_ROOT = Path(sstorch.__file__).parent
# Operators whose result, or its size, the host has to know; on CUDA each waits for the stream. lift_fresh is
# what torch.tensor(...) does with a list: a copy from pageable memory, which waits as well.
_OPERATORS = (
    "aten::_local_scalar_dense",
    "aten::nonzero",
    "aten::masked_select",
    "aten::equal",
    "aten::bincount",
    "aten::repeat_interleave",
    "aten::lift_fresh",
    "aten::_unique2",
    "aten::unique_dim",
    "aten::unique_consecutive",
)
# On a CPU these do not reach the dispatcher.
_METHODS = {Tensor.tolist: "tolist", Tensor.numpy: "numpy", Tensor.cpu: "cpu", Tensor.__array__: "numpy"}


def _place() -> str:
    """Module and function of the innermost frame of the package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _ROOT not in Path(frame.f_code.co_filename).parents:
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    name = path.relative_to(_ROOT).with_suffix("").as_posix() if _ROOT in path.parents else path.stem
    return f"{name}: {frame.f_code.co_qualname}"


def _waits(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    name = operator.name().split(".")[0]
    if name == "aten::repeat_interleave":
        return kwargs.get("output_size") is None
    if name in ("aten::index", "aten::index_put", "aten::index_put_"):
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return name in _OPERATORS


class _Found:
    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self.found = found


class _Operators(_Found, TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _waits(func, args, kwargs or {}):
            self.found.append(_place())
        return func(*args, **(kwargs or {}))


class _Methods(_Found, TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _METHODS:
            self.found.append(_place())
        return func(*args, **(kwargs or {}))


@contextmanager
def host_syncs() -> Iterator[list[str]]:
    """Collect the places, ``"optim/batched_lbfgs: minimize"``, at which the host reads a tensor."""
    found: list[str] = []
    with _Methods(found), _Operators(found):
        yield found


# ------------------------------------------------------------------ fits

FITS = pytest.mark.parametrize(
    ("leaf", "trainer", "objective"),
    [
        nightly("log_logistic", Nodec(macro_iterations=2, lbfgs=SHORT), PLAIN),
        ("weibull", Nodec(macro_iterations=1, lbfgs=SHORT), PENALISED),
        ("exponential", Joint(SHORT), PENALISED),
        ("gompertz", Nodec(macro_iterations=1, lbfgs=SHORT), PLAIN),
        nightly("log_normal", Joint(SHORT), PLAIN),
        nightly("spline_ph", Nodec(macro_iterations=1, lbfgs=SHORT), PLAIN),
        ("spline_po", Leaves(SHORT), PENALISED),
        ("piecewise_exponential", Nodec(macro_iterations=1, lbfgs=SHORT), PLAIN),
    ],
)


def batch(leaf: str) -> tuple[SoftTree, Sample]:
    return random_tree(6, 2, leaf), random_sample(6, n_splits=2)


@contextmanager
def within_minimize(guard: Any) -> Iterator[None]:
    """Every L-BFGS of a fit runs under the context manager that ``guard`` makes."""
    whole = steps.minimize

    def guarded(*args: Any) -> OptimizationResult:
        with guard():
            return whole(*args)

    with patch.object(steps, "minimize", guarded):
        yield


@FITS
def test_no_look_at_tensors_within_a_minimisation(
    leaf: str, trainer: Trainer, objective: TrainingObjective
) -> None:
    tree, sample = batch(leaf)
    places: list[str] = []

    @contextmanager
    def recorded() -> Iterator[None]:
        with host_syncs() as found:
            yield
        places.extend(found)

    with within_minimize(recorded):
        trainer.train(tree, objective, sample)
    assert LOOK in places
    assert set(places) <= {LOOK, COMPACTION}


@contextmanager
def no_waiting() -> Iterator[None]:
    """CUDA raises where the host would wait, but at the two known places."""

    def allowed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            torch.cuda.set_sync_debug_mode("default")
            try:
                return method(*args)
            finally:
                torch.cuda.set_sync_debug_mode("error")

        return call

    look, select = allowed(_Problems.running), allowed(DesignMatrix.select)
    with (
        patch.object(_Problems, "running", look),
        patch.object(DesignMatrix, "select", select),
        warnings.catch_warnings(action="ignore"),  # the mode warns that it is a prototype
    ):
        try:
            torch.cuda.set_sync_debug_mode("error")
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
@FITS
def test_cuda_does_not_wait_within_a_minimisation(
    leaf: str, trainer: Trainer, objective: TrainingObjective
) -> None:
    tree, sample = batch(leaf)
    trainer.train(tree, objective, sample)
    on_gpu, rows = batch(leaf)
    on_gpu, rows = on_gpu.to("cuda"), to_device(rows, "cuda")
    with within_minimize(no_waiting):
        trainer.train(on_gpu, objective, rows)
    here, there = objective(tree, sample), objective.to("cpu")(on_gpu.to("cpu"), sample)
    torch.testing.assert_close(there, here, rtol=0, atol=1e-3)  # sums have other orders, paths may part
