"""Many small Cox models at once: ridge, ties after Breslow, left truncation."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from sstorch.optim.lbfgs import LBFGSOptions, minimize

# A start needs no more digits than the data have.
_OPTIONS = LBFGSOptions(max_iterations=100, gradient_tolerance=1e-5, relative_tolerance=1e-8)


@dataclass(frozen=True)
class _PartialLikelihood:
    """Negative log partial likelihoods of K data sets, each the mean over its n rows; rows sorted by time.

    Attributes:
        x: (K, n, p), columns of mean zero and standard deviation one, or zero where they are constant.
        weight: (K, n), 1, or 0 for rows that only pad. Every row has an event.
        first: (K, n), position of the first row with the time of each row.
        last: (K, n), position of the last one, of those that count.
        entry_order: (K, n), rows in the order of their entry.
        entered_late: (K, n), how many in that order enter before each row's time.
        before_entry: (K, n), how many rows have their event at or before the entry of each row.
        ridge: coefficient of (1/2) ||beta||^2.
    """

    x: Tensor
    weight: Tensor
    first: Tensor
    last: Tensor
    entry_order: Tensor
    entered_late: Tensor
    before_entry: Tensor
    ridge: float

    @classmethod
    def of(cls, x: Tensor, time: Tensor, entry: Tensor, weight: Tensor, ridge: float) -> _PartialLikelihood:
        """Sort the rows, which time in (K, n) does already; padding comes last."""
        entry_order = entry.argsort(dim=1)
        return cls(
            x=x,
            weight=weight,
            first=torch.searchsorted(time, time),
            last=torch.searchsorted(time, time, right=True) - 1,
            entry_order=entry_order,
            entered_late=torch.searchsorted(entry.gather(1, entry_order), time),
            before_entry=torch.searchsorted(time, entry, right=True),
            ridge=ridge,
        )

    def select(self, problems: Tensor) -> _PartialLikelihood:
        """The same for some of the data sets."""
        parts = {
            item.name: getattr(self, item.name)[problems] for item in fields(self) if item.name != "ridge"
        }
        return replace(self, **parts)

    def breslow(self, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log relative risk of each row (K, n), hazard steps summed up to each (K, n + 1), log risk sets.

        The steps are divided by the largest relative risk, and so are the relative risks.
        """
        score = torch.einsum("knp,kp->kn", self.x, beta).masked_fill(self.weight == 0, -torch.inf)
        score = score - score.amax(1, keepdim=True)
        relative = score.exp()
        at_risk = _sums_from(relative).gather(1, self.first)
        # Those not under observation yet at the time of an event.
        at_risk = at_risk - _sums_from(relative.gather(1, self.entry_order)).gather(1, self.entered_late)
        at_risk = at_risk.clamp_min(torch.finfo(at_risk.dtype).tiny)
        return score, torch.nn.functional.pad((self.weight / at_risk).cumsum(1), (1, 0)), at_risk.log()

    def value_and_gradient(self, beta: Tensor) -> tuple[Tensor, Tensor]:
        """Values (K,) and gradients (K, p), which sum the martingale residuals."""
        score, steps, log_risk = self.breslow(beta)
        n = self.weight.sum(1)
        loss = torch.where(self.weight > 0, log_risk - score, 0.0).sum(1) / n
        observed = steps.gather(1, self.last + 1) - steps.gather(1, self.before_entry)
        residual = (score.exp() * observed - self.weight) / n[:, None]
        gradient = torch.einsum("kn,knp->kp", residual, self.x) + self.ridge * beta
        return loss + 0.5 * self.ridge * beta.square().sum(1), gradient


def _sums_from(values: Tensor) -> Tensor:
    """Sums from each position to the end, and zero after the end, (K, n + 1)."""
    return torch.nn.functional.pad(values.flip(1).cumsum(1).flip(1), (0, 1))


def cox_cumulative_hazards(x: Tensor, time: Tensor, entry: Tensor, weight: Tensor, ridge: float) -> Tensor:
    """Fit K Cox models to rows that all have an event; the cumulative hazard of each row at its own time.

    Features are standardised, as lifelines does, so that the ridge treats them alike.

    Args:
        x: (K, n, p).
        time: event times > 0, (K, n).
        entry: times from which the rows were observed, (K, n), below their times.
        weight: 1, or 0 for rows that only pad, (K, n).
        ridge: coefficient of (1/2) ||beta||^2 beside the mean negative log partial likelihood.

    Returns:
        H(t_i | x_i) from time zero, (K, n), rows in the given order; 0 for padding.

    References:
        Breslow (1974), Biometrics 30, 89-99.
    """
    order = time.masked_fill(weight == 0, torch.inf).argsort(dim=1, stable=True)
    inverse = order.argsort(dim=1)
    weight, entry = weight.gather(1, order), entry.gather(1, order)
    time = time.gather(1, order).masked_fill(weight == 0, torch.inf)
    x = x.gather(1, order[..., None].expand_as(x))
    n = weight.sum(1)[:, None, None]
    centred = (x - (weight[..., None] * x).sum(1, keepdim=True) / n) * weight[..., None]
    spread = (centred.square().sum(1, keepdim=True) / (n - 1).clamp_min(1.0)).sqrt()
    constant = spread <= 1e-12 * x.abs().amax(dim=(1, 2), keepdim=True).clamp_min(1.0)
    scaled = centred / spread.masked_fill(constant, torch.inf)
    loss = _PartialLikelihood.of(scaled, time, entry, weight, ridge)
    score, steps, _ = loss.breslow(minimize(loss, x.new_zeros(x.shape[0], x.shape[2]), _OPTIONS).x)
    return (score.exp() * steps.gather(1, loss.last + 1)).gather(1, inverse)
