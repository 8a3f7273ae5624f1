"""Negative log-likelihood of rows under each of several components: exact, censored, within intervals."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sstorch.nn.functional import gradients
from sstorch.nn.hazards.base import HazardFamily


class LogTimes(NamedTuple):
    """Outcome of rows, log times in model units, each broadcastable with predictors (..., L, N)."""

    log_time: Tensor  # last time of the row; any finite number of a row within an interval
    event: Tensor  # 1 if the event was observed, be it within an interval, else 0; floating
    log_entry: Tensor | None = None  # time from which the row was at risk, -inf for time zero
    log_lower: Tensor | None = None  # lower bound of an interval, -inf for time zero; None: no intervals
    log_upper: Tensor | None = None  # upper bound; +inf if the time is exact or right-censored

    def unsqueeze(self, dim: int) -> LogTimes:
        """The same with one more dimension."""
        given = {name: part for name, part in self._asdict().items() if part is not None}
        return self._replace(**{name: part.unsqueeze(dim) for name, part in given.items()})


def component_losses(family: HazardFamily, times: LogTimes, linear: Tensor, shape: Tensor) -> Tensor:
    """Negative log-likelihood of every row under every component, given survival to entry, (..., L, N).

    H(t) - c log h(t) - H(entry), and -log(S(lower) - S(upper)) - H(entry) of an event within an interval, in
    model units of time; +inf on overflow. Predictors are (..., L, N), shapes (..., L, 1 or N, m).
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
        first = gradients(loss.sum(), parts, create_graph=True)
        rows = [gradients(each.sum(), parts) for each in first]
    n = len(parts)
    second = {(j, k): (rows[j][k] + rows[k][j]) / 2 for j in range(n) for k in range(j, n)}
    return loss.detach(), [each.detach() for each in first], second
