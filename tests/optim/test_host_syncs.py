"""A GPU waits for the host only where the batched L-BFGS looks which problems are done."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
import torch

from sstorch.nn import DesignMatrix, SoftTree
from sstorch.objective import Ridge, Sample, TrainingObjective
from sstorch.optim import Joint, LBFGSOptions, Leaves, Nodec, Trainer, steps
from sstorch.optim.batched_lbfgs import OptimizationResult, _Problems
from tests.batches import random_sample, random_tree, to_device
from tests.conftest import nightly
from tests.host_syncs import host_syncs

LOOK = "optim/batched_lbfgs: _Problems.running"
COMPACTION = "data/design_matrix: DesignMatrix.select"

PLAIN = TrainingObjective(1e-3, 1e-4)
PENALISED = TrainingObjective(1e-3, 1e-4, own=[Ridge(0.1)])
SHORT = LBFGSOptions(max_iterations=8)


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
