"""Life tables: hazards of intervals that are logistic in the covariates."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from sstorch._types import FloatArray
from sstorch.nn.functional import log_expm1, sigmoid_and_softplus, softplus
from sstorch.nn.hazards.base import Ancillary, Derivatives, HazardFamily, LogTimes
from sstorch.nn.hazards.numeric import check_placement, pick, placed

# Log odds between which starting values lie: an interval without events determines none.
_LIMIT = 16.0
# So many times the last end is later than anything that the intervals can show.
_HORIZON = 1000.0


class LogisticHazard(HazardFamily):
    """Life table: one logit per interval of time, for times recorded in few distinct values.

    A subject event-free at the start of interval k has the event in it with probability h_k, logit h_k = g +
    alpha_k, at a uniform time: S is linear between ends, S_k = S_{k-1} (1 - h_k). Intervals are open on the
    left and closed on the right; a time within a relative distance of the square root of the machine
    precision from an end is at this end. If all events are at ends, the likelihood is that of grouped times:
    an event contributes log(S_{k-1} - S_k). If censored times are too, the curve without covariates equals
    Kaplan-Meier. A row censored within an interval is treated as event-free until then: survival is
    overestimated if events are only found at the ends (visits) but subjects drop out at any time.

    Shape parameters are the alpha_k, then one alpha for the time beyond the last end, with a constant hazard
    of log(1 + exp(g + alpha)) per total length of the intervals; without events there it is almost zero.
    From a thousand times the last end on S is constant: a quantile later than that is not reached, and a mean
    that depends on it is infinite. Only the sum of the intercept of g and a constant added to all alpha_k is
    identified.

    Args:
        times: maximum number of ends: the distinct training event times, or equally spaced quantiles of these
            if there are more. Or the ends, increasing, in original time units.
        ancillary: as in :class:`HazardFamily`.

    Raises:
        ConfigError: an argument is out of range.

    References:
        Cox (1972), JRSS B 34, 187-220, section 6 (the logistic model of grouped times); Kvamme and Borgan
        (2021), Lifetime Data Analysis 27, 710-736 (constant density interpolation).
    """

    name, ratio, corner_name = "logistic_hazard", "odds ratio", "intervals that end"
    closed_form, overflows = True, False
    sized_by_rows = ("ends",)
    ends: Tensor

    def __init__(self, times: int | Sequence[float] = 30, ancillary: Ancillary = "constant") -> None:
        super().__init__(ancillary)
        self.times = check_placement("times", times, 1, 1)
        count = self.times if isinstance(self.times, int) else len(self.times)
        # Until training rows give better ones: even in log time around the unit of model time.
        self.register_buffer("ends", torch.linspace(-1.0, 1.0, count, dtype=torch.float64))

    @property
    @override
    def shape_names(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*(f"log_odds_{k + 1}" for k in range(self.ends.shape[-1])), "log_odds_beyond")

    # ------------------------------------------------------------------ the distribution

    @override
    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        return self.terms(log_time, linear, shape)[0]

    @override
    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        # A share u of interval k adds -log(1 - u h_k).
        ends = self._aligned(self.ends, max(log_time.ndim, linear.ndim))
        number, log_left, log_length, excess = _places(log_time, ends)
        logits = linear[..., None] + shape
        own, inside = pick(logits, number), number < ends.shape[-1]
        rest = softplus(own + log_left)
        hazard = pick(_before(logits, ends), number) + softplus(own) * torch.where(inside, 1.0, excess) - rest
        return hazard, _log_rate(own, inside) - rest - log_length

    @override
    def basis(self, log_time: Tensor) -> Tensor:
        return torch.stack([*_places(log_time, self._aligned(self.ends, log_time.ndim))], dim=-2)

    @override
    @torch.no_grad()
    def derivatives(
        self,
        times: LogTimes,
        linear: Tensor,
        shape: Tensor,
        basis: Tensor | None = None,
        second: bool = True,
    ) -> Derivatives:
        """See :meth:`HazardFamily.derivatives`.

        With l the logit of the row's own interval and r what is left of it, the loss is the sum of softplus
        over the intervals that have begun, less (1 - c) softplus(l + log r) + c (l - log length).
        """
        if not times.is_plain:
            return super().derivatives(times, linear, shape, basis, second)
        event, basis = times.event, self.basis(times.log_time.squeeze(-2)) if basis is None else basis
        number, log_left, log_length, excess = (part[:, None] for part in basis.unbind(-2))
        number, ends = number.long(), self._aligned(self.ends, event.ndim)
        logits = linear[..., None] + shape
        # A logit counts where its interval has begun, that beyond the last end as long as time ran there.
        begun = (number[..., None] >= torch.arange(ends.shape[-1], device=number.device)) & _exist(ends)
        count = torch.cat([begun.to(event.dtype), excess[..., None]], -1)
        own, inside, partly = pick(logits, number), number < ends.shape[-1], (1 - event) * log_left.isfinite()
        odds, risen = sigmoid_and_softplus(logits)
        slope, rest = sigmoid_and_softplus((own + log_left).clamp(min=-1e4))
        loss = torch.matmul(risen.unsqueeze(-2), count.unsqueeze(-1)).squeeze(-1).squeeze(-1)
        loss.addcmul_(event, log_length - _log_rate(own, inside)).addcmul_(partly, rest, value=-1)
        # Derivative of the log rate; of log softplus a straight line far below zero, where softplus vanishes.
        own_odds, own_risen = sigmoid_and_softplus(own)
        straight = inside | (own < -_LIMIT)
        of_rate = torch.where(straight, 1.0, own_odds / own_risen.clamp(min=torch.finfo(risen.dtype).tiny))
        pairs: dict[tuple[int, int], Tensor] = {}
        if second:
            bent = (1 - odds).mul_(odds).mul_(count)
            bent_rate = torch.where(straight, 0.0, of_rate * (1 - own_odds - of_rate))
            _add_at(bent, number, -(partly * slope * (1 - slope) + event * bent_rate))
            pairs[0, 0] = bent.sum(-1)
            for k, part in enumerate(bent.unbind(-1), start=1):  # no logit but g acts on two intervals
                pairs[0, k] = pairs[k, k] = part
        first = odds.mul_(count)
        _add_at(first, number, -(partly * slope + event * of_rate))
        return loss, [first.sum(-1), *first.unbind(-1)], pairs

    @override
    def log_quantile(self, cumulative_hazard: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        ends, logits = self._aligned(self.ends, linear.ndim), linear[..., None] + shape
        before = _before(logits, ends)
        # The last interval that begins below the target.
        number = (before[..., 1:] < cumulative_hazard[..., None]).sum(-1)
        inside, rest = number < ends.shape[-1], cumulative_hazard - pick(before, number)
        # A share (1 - exp(-rest)) / h_k, bounded where H gets to the target within the interval.
        share = -torch.expm1(-torch.where(inside, rest, 0.0))
        share = share * (1 + torch.exp(-torch.where(inside, pick(logits, number), 0.0)))
        left, length = (pick(part, number) for part in _bounds(ends))
        time = torch.where(inside, left + share.clamp(max=1.0) * length, 1.0)
        rate = softplus(logits[..., -1]).clamp(min=torch.finfo(linear.dtype).tiny)
        excess = torch.log1p(torch.where(inside, 0.0, rest) / rate)
        beyond = ends[..., -1] + torch.where(excess > _log_excess(ends), torch.inf, excess)
        return torch.where(inside, time.log(), beyond)

    @override
    def corners(self) -> Tensor:
        return self.ends

    # ------------------------------------------------------------------ starting values and ends

    @override
    def start(
        self, log_time: Tensor, event: Tensor, weight: Tensor, log_entry: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Events of each interval per row at risk, as in a life table, with an intercept of zero.

        A row censored within an interval, or at risk from a time within it, counts by its share of it. This
        is maximum likelihood if all times are at ends. Log odds stay within a limit, which those of an
        interval without events reach.
        """
        ends, share = self._aligned(self.ends, log_time.ndim), weight / weight.sum(-1, keepdim=True)
        none = share.new_zeros(len(share), ends.shape[-1] + 1)

        def exposure(number: Tensor, log_left: Tensor, _: Tensor, excess: Tensor) -> Tensor:
            ended = none.scatter_add(-1, number, share)
            own = torch.where(number < ends.shape[-1], -torch.expm1(log_left), excess)
            return none.scatter_add(-1, number, share * own) + ended.flip(-1).cumsum(-1).flip(-1) - ended

        number, log_left, *others = _places(log_time, ends)
        at_risk = exposure(number, log_left.masked_fill(event > 0, -torch.inf), *others)
        if log_entry is not None:
            at_risk = at_risk - exposure(*_places(log_entry, ends))
        least = torch.finfo(share.dtype).tiny
        rate = none.scatter_add(-1, number, share * event) / at_risk.clamp(min=least)
        tail = log_expm1(rate[:, -1:].clamp(min=least))
        shape = torch.cat([rate[:, :-1].clamp(max=1).logit(), tail], -1).clamp(-_LIMIT, _LIMIT)
        return torch.zeros_like(shape[:, 0]), shape

    guess = start

    @override
    def _constants(self, *rows: Tensor) -> dict[str, Tensor]:
        # No more intervals than the training rows need; those of no length at the end, for problems with
        # fewer, hold no row.
        ends = placed(self.times, rows, "intervals", self._ends_of)
        width = max(map(len, ends))
        padded = np.stack([np.pad(own, (0, width - len(own)), "edge") for own in ends])
        return {"ends": torch.as_tensor(padded).to(rows[0])}

    def _ends_of(self, log_times: FloatArray) -> FloatArray:
        distinct = np.unique(log_times)
        distinct = distinct[np.diff(distinct, append=np.inf) > _tolerance(torch.float64)]
        assert isinstance(self.times, int)
        if len(distinct) <= self.times:
            return distinct
        shares = np.arange(1, self.times + 1) / self.times
        return np.unique(np.quantile(log_times, shares, method="higher"))


def _places(log_time: Tensor, ends: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of log times among log ends, which have one dimension more, in the shape of the times."""
    # Returns: number of the interval, from 0, n beyond the last end; the log share of it that is left, -inf
    # at its end and beyond the last; its log length, beyond that of all; the time beyond in units of that.
    y, near = log_time[..., None], _tolerance(ends.dtype)
    number = (y > ends + near).sum(-1)
    left, length = (pick(part, number) for part in _bounds(ends))
    beyond = number == ends.shape[-1]
    over = beyond | ((y >= ends - near).sum(-1) > number)
    length = torch.where(beyond, left, length)
    share = ((left + length - torch.exp(log_time)) / length).clamp(torch.finfo(length.dtype).tiny, 1.0)
    log_left = torch.where(over, 1.0, share).log().masked_fill(over, -torch.inf)
    excess = torch.expm1(torch.minimum((log_time - ends[..., -1]).clamp(min=0), _log_excess(ends)))
    return number, log_left, length.log(), torch.where(beyond, excess, 0.0)


def _log_excess(ends: Tensor) -> Tensor:
    """Log of the last time at which S falls, relative to the last end."""
    # Model time has its unit among the training times, also where the ends that were given have not.
    return (-ends[..., -1]).clamp(min=0) + math.log(_HORIZON)


def _before(logits: Tensor, ends: Tensor) -> Tensor:
    """Cumulative hazards at the start of each interval and at the last end, (..., n + 1)."""
    return pad(torch.where(_exist(ends), softplus(logits[..., :-1]), 0.0).cumsum(-1), (1, 0))


def _add_at(values: Tensor, number: Tensor, part: Tensor) -> None:
    """Add parts to values (..., n + 1) at numbers, both of a shape that broadcasts with (...), in place."""
    lead = values.shape[:-1]
    values.scatter_add_(-1, number.expand(lead)[..., None], part.expand(lead)[..., None])


def _bounds(ends: Tensor) -> tuple[Tensor, Tensor]:
    """Where intervals begin and their lengths, (..., n + 1), by log ends (..., n); beyond the last 0 long."""
    time = pad(ends.exp(), (1, 0))
    return time, time.diff(dim=-1, append=time[..., -1:])


def _exist(ends: Tensor) -> Tensor:
    """False for the intervals of no length that fill up the ends of a problem, (..., n)."""
    return ends.diff(dim=-1, prepend=torch.full_like(ends[..., :1], -torch.inf)) > 0


def _tolerance(dtype: torch.dtype) -> float:
    return math.sqrt(torch.finfo(dtype).eps)


def _log_rate(own: Tensor, inside: Tensor) -> Tensor:
    """Log odds of the interval of a time; beyond the last end the log of their softplus, far down a line."""
    near, line = softplus(own.clamp(min=-_LIMIT)).log(), own - torch.exp(own.clamp(max=0)) / 2
    return torch.where(inside, own, torch.where(own < -_LIMIT, line, near))
