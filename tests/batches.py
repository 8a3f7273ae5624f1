"""Batches of random trees on random rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from sstorch.nn import DesignMatrix, HazardFamily, SoftTree, SurvivalDistribution, make_family
from sstorch.objective import Sample
from sstorch.optim import TrainingRun
from sstorch.optim.steps import Step


def blank_tree(
    p: int,
    depth: int = 2,
    leaf: str | HazardFamily = "log_logistic",
    batch_shape: tuple[int, ...] = (),
    dtype: torch.dtype = torch.float64,
    **options: Any,
) -> SoftTree:
    """A tree of zeros in double precision; its family takes the constants that it has for those of rows."""
    family = make_family(leaf)
    family._prepared = True
    return SoftTree(p, depth, family, batch_shape=batch_shape, dtype=dtype, start="zeros", **options)


def random_tree(
    n_problems: int,
    depth: int,
    leaf: str | HazardFamily = "log_logistic",
    p: int = 3,
    seed: int = 0,
    scale: float = 1.0,
) -> SoftTree:
    generator = torch.Generator().manual_seed(seed)
    tree = blank_tree(p, depth, leaf, (n_problems,))
    with torch.no_grad():
        for name, parameter in tree.named_parameters():
            draw = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.copy_(scale * draw if name.startswith("gates") else 0.3 * draw)
    return tree


def distribution(tree: SoftTree, x: torch.Tensor, prediction: str) -> SurvivalDistribution:
    """What a tree predicts by the most probable path ("hbp") or by all leaves."""
    return tree(x).most_probable() if prediction == "hbp" else tree(x)  # type: ignore[no-any-return]


def random_sample(n_problems: int, n_splits: int = 1, n_rows: int = 60, p: int = 3, seed: int = 0) -> Sample:
    """Rows of ``n_splits`` splits, problems spread over them, the last rows of the last split padding."""
    generator = torch.Generator().manual_seed(seed + 1000)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    base = n_problems // n_splits
    counts = (base,) * (n_splits - 1) + (n_problems - base * (n_splits - 1),)
    repeat = torch.tensor(counts)
    log_time = torch.log(-torch.log(uniform(n_splits, n_rows)))
    event = (uniform(n_splits, n_rows) < 0.6).double()
    weight = torch.ones(n_splits, n_rows, dtype=torch.float64)
    matrices = uniform(n_splits, n_rows, p)
    if n_splits > 1:
        weight[-1, -3:] = 0.0
        matrices[-1, -3:] = matrices[-1, :1]
    return Sample(
        DesignMatrix(matrices, counts),
        log_time.repeat_interleave(repeat, 0),
        event.repeat_interleave(repeat, 0),
        weight.repeat_interleave(repeat, 0),
    )


def with_entry(sample: Sample, seed: int = 0) -> Sample:
    """The same rows, half of which were observed from a later time on."""
    generator = torch.Generator().manual_seed(seed)
    draw = torch.rand(sample.log_time.shape, generator=generator, dtype=torch.float64)
    return replace(sample, log_entry=torch.where(draw < 0.5, sample.log_time + draw.log(), -torch.inf))


def within_intervals(sample: Sample, seed: int = 0) -> Sample:
    """The same rows, two thirds of those with an event known up to an interval, a third from zero on."""
    generator = torch.Generator().manual_seed(seed)
    draw = torch.rand(2, *sample.log_time.shape, generator=generator, dtype=torch.float64)
    within = (sample.event > 0) & (draw[0] < 2 / 3)
    lower = torch.where(draw[0] < 1 / 3, -torch.inf, sample.log_time - draw[1])
    upper = torch.where(within, sample.log_time + draw.mean(0), torch.inf)
    return replace(sample, log_lower=lower, log_upper=upper)


def to_device(sample: Sample, device: str) -> Sample:
    return Sample(
        DesignMatrix(sample.x.to_dense().to(device), sample.x.counts),
        sample.log_time.to(device),
        sample.event.to(device),
        sample.weight.to(device),
        None if sample.log_entry is None else sample.log_entry.to(device),
    )


def with_groups(sample: Sample, n_groups: int = 2, seed: int = 0) -> Sample:
    """The same rows with a sensitive group each, drawn with unequal shares."""
    generator = torch.Generator().manual_seed(seed)
    draw = torch.rand(sample.weight.shape, generator=generator, dtype=torch.float64)
    group = (draw.square() * n_groups).long()
    return replace(sample, group=group, n_groups=n_groups)


@contextmanager
def watched_steps(look: Callable[[TrainingRun, Step, SoftTree], None]) -> Iterator[None]:
    """Call a function after every step of a run, with the run, the step and its trees before it."""
    take = TrainingRun.take

    def watched(run: TrainingRun, step: Step) -> None:
        before = run.tree.select(step.batch.problems)
        take(run, step)
        look(run, step, before)

    with patch.object(TrainingRun, "take", watched):
        yield


class AutogradFunction:
    """Values (K,) of x (K, d) and problem numbers (K,), of which k depends on row k, and their gradients."""

    def __init__(self, f: Callable[[Tensor, Tensor], Tensor], problems: Tensor | int) -> None:
        self._f = f
        self._problems = torch.arange(problems) if isinstance(problems, int) else problems

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self._problems = self._problems.to(x.device)
        with torch.inference_mode(False), torch.enable_grad():
            x = x.detach().clone().requires_grad_()
            value = self._f(x, self._problems)
            (gradient,) = torch.autograd.grad(value.sum(), x)
        return value.detach(), gradient

    def select(self, problems: Tensor) -> AutogradFunction:
        return AutogradFunction(self._f, self._problems.to(problems.device)[problems])
