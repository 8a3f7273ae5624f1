"""Negative log-likelihood of rows under each of several components: exact, censored, within intervals."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sstorch.nn.hazards.base import HazardFamily


class LogTimes(NamedTuple):
    """Outcome of rows, log times in model units, each broadcastable with predictors (..., L, N).

    Attributes:
        log_time: last time of the row; any finite number of a row within an interval.
        event: 1 if the event was observed, be it within an interval, else 0; floating.
        log_entry: time from which the row was at risk, -inf for time zero; None for time zero in all rows.
        log_lower: lower bound of an interval, -inf for time zero; None if no time is an interval.
        log_upper: upper bound of an interval; +inf if the time is exact or right-censored.
    """

    log_time: Tensor
    event: Tensor
    log_entry: Tensor | None = None
    log_lower: Tensor | None = None
    log_upper: Tensor | None = None

    def unsqueeze(self, dim: int) -> LogTimes:
        """The same with one more dimension."""
        log_time, event, *others = (None if part is None else part.unsqueeze(dim) for part in self)
        assert log_time is not None
        assert event is not None
        return LogTimes(log_time, event, *others)


def component_losses(family: HazardFamily, times: LogTimes, linear: Tensor, shape: Tensor) -> Tensor:
    """Negative log-likelihood of every row under every component, given survival to entry.

    H(t) - c log h(t) - H(entry), and -log(S(lower) - S(upper)) - H(entry) of an event within an interval.

    Args:
        family: of the components.
        times: outcome of the rows.
        linear: linear predictors, shape (..., L, N).
        shape: shape parameters, shape (..., L, 1 or N, m).

    Returns:
        shape (..., L, N), in model units of time; +inf on overflow.
    """
    log_time, event, log_entry, log_lower, log_upper = times
    loss = family.loss(log_time, event, linear, shape, log_entry)
    if log_lower is None or log_upper is None:
        return loss
    within = log_upper.isfinite()
    bounds = torch.where(within, log_lower, log_time), torch.where(within, log_upper, log_time)
    alone = family.interval_loss(*bounds, linear, shape)
    if log_entry is not None:
        before = family.hazard_before(log_entry, log_time, linear, shape)
        alone = alone - before.masked_fill(alone.isinf(), 0.0)
    return torch.where(within, alone, loss)


def derivatives_by_autograd(
    family: HazardFamily, times: LogTimes, linear: Tensor, shape: Tensor, weight: Tensor
) -> tuple[Tensor, list[Tensor], dict[tuple[int, int], Tensor]]:
    """Losses of rows (K, L, M) and their derivatives in g, number 0, and the shapes, without a graph.

    The outcome is (K, 1, M), predictors and shapes as in :func:`component_losses`; rows without weight
    (K, 1, M) are zero. Second derivatives come by pairs j <= k.
    """
    with torch.enable_grad():
        parts = [linear, *shape.expand(*linear.shape, -1).unbind(-1)]
        parts = [part.detach().clone().requires_grad_() for part in parts]
        stacked = torch.stack(parts[1:], -1) if parts[1:] else shape.new_zeros(*linear.shape, 0)
        loss = torch.where(weight > 0, component_losses(family, times, parts[0], stacked), 0.0)
        first = torch.autograd.grad(
            loss.sum(), parts, create_graph=True, allow_unused=True, materialize_grads=True
        )
        rows = [
            torch.autograd.grad(
                each.sum(), parts, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            if each.requires_grad
            else [torch.zeros_like(part) for part in parts]
            for each in first
        ]
    n = len(parts)
    second = {(j, k): (rows[j][k] + rows[k][j]) / 2 for j in range(n) for k in range(j, n)}
    return loss.detach(), [each.detach() for each in first], second
