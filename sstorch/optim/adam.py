"""Adam on mini-batches, for data too large for steps on all rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sstorch.exceptions import ConfigError
from sstorch.optim.run import Trainer, TrainingRun
from sstorch.optim.steps import freeze_except


@dataclass(frozen=True)
class Adam(Trainer):
    """Settings of Adam over all gates and leaves, with a learning rate that falls to zero along a cosine.

    Every problem has its own moments; all see the same rows in the same order. A problem whose gradient is
    not finite sits that step out.

    Attributes:
        epochs: passes over the rows.
        batch_size: rows of a step.
        learning_rate: at the beginning.
        seed: of the order of the rows.

    Raises:
        ConfigError: if a value is out of range.

    References:
        Kingma and Ba (2015), "Adam: a method for stochastic optimization".
    """

    epochs: int = 50
    batch_size: int = 256
    learning_rate: float = 0.02
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, an integer, got {getattr(self, name)!r}")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate must be positive, got {self.learning_rate!r}")

    @property
    def n_passes(self) -> int:
        """See :attr:`Trainer.n_passes`: epochs."""
        return self.epochs

    def advance(self, run: TrainingRun) -> None:
        """See :meth:`Trainer.advance`."""
        # A part of the rows may lack the one that stands for its equals.
        tree, sample = run.tree, replace(run.sample, merged_weight=None)
        n_rows = sample.weight.shape[1]
        parameters = [parameter for parameter in tree.parameters() if parameter.numel()]
        optimizer = torch.optim.Adam(parameters, lr=self.learning_rate)
        n_steps = self.epochs * math.ceil(n_rows / self.batch_size)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_steps)
        order = torch.Generator().manual_seed(self.seed)
        for _ in range(self.epochs):
            for rows in torch.randperm(n_rows, generator=order).split(self.batch_size):
                freeze_except(tree, parameters)
                part = sample.take(rows.to(sample.weight.device).expand(tree.n_problems, -1))
                value = run.objective(tree, part, relaxed=True)
                gradients = torch.autograd.grad(value.sum(), parameters)
                usable = _all_finite(gradients)
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    mask = usable.reshape(-1, *(1,) * (gradient.ndim - 1))
                    parameter.grad = torch.where(mask, gradient, torch.zeros_like(gradient))
                optimizer.step()
                schedule.step()
            optimizer.zero_grad()
            run.keep_best()
            run.end_pass(run.active)


def _all_finite(gradients: tuple[Tensor, ...]) -> Tensor:
    """Whether all gradients of a problem are finite, boolean (R,)."""
    finite = [
        gradient.flatten(1).isfinite().all(1) if gradient.ndim > 1 else gradient.isfinite()
        for gradient in gradients
    ]
    return torch.stack(finite).all(0)
