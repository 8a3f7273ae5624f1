"""Life tables: hazards of intervals that are logistic in the covariates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from sstorch.data.design_matrix import row_blocks
from sstorch.newton import Gaussian, Smooth, newton
from sstorch.nn.functional import log_expm1, sigmoid_and_softplus, softplus
from sstorch.nn.hazards.base import Ancillary, HazardFamily
from sstorch.nn.hazards.numeric import check_placement, placement_times

# Log odds between which starting values lie: an interval without events determines none.
_LIMIT = 16.0
# Of starting values: gain of the last step, of a mean loss.
_TOLERANCE = 1e-12
# So many times the last end is later than anything that the intervals can show.
_HORIZON = 1000.0


class _Rows(NamedTuple):
    """What the likelihood of logits needs of rows, (K, 1, M)."""

    place: Tensor  # number of the row's own interval, n beyond the last end
    log_length: Tensor  # of that interval
    observed: Tensor  # 1 for an event within an interval
    partly: Tensor  # 1 if censored in the middle of one
    late: Tensor  # 1 for an event beyond the last end
    last: Tensor  # log time of the last end


class LogisticHazard(HazardFamily):
    """Life table: one logit per interval of time, for times recorded in few distinct values.

    A subject event-free at the start of interval k has the event in it with probability h_k, logit h_k = g +
    alpha_k, at a uniform time. S is linear between the ends of intervals, S_k = S_{k-1} (1 - h_k). Intervals
    are open on the left and closed on the right. If all events are at ends of intervals, the likelihood is
    that of grouped times: an event contributes log(S_{k-1} - S_k). If censored times are also at ends, the
    curve without covariates equals Kaplan-Meier at these times. A row censored within an interval is treated
    as event-free until then: survival is overestimated if events are only found at the ends (visits) but
    subjects drop out at any time.

    Shape parameters are the alpha_k, then one alpha for the time beyond the last end, with a constant hazard
    of log(1 + exp(g + alpha)) per total length of the intervals. Only the sum of the intercept of g and a
    constant added to all alpha_k is identified.

    Without events beyond the last end, as for ends determined from the events, the hazard there is almost
    zero and the curve is constant. A quantile beyond a thousand times the last end is treated as not reached,
    as for Kaplan-Meier (:meth:`horizon`), and means exclude later times.

    A time within a relative distance of the square root of the machine precision from an end is at this end.

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

    name = "logistic_hazard"
    ratio = "odds ratio"
    closed_form = True
    overflows = False
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

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.cumulative_hazard`: a share u of interval k adds -log(1 - u h_k)."""
        return self.terms(log_time, linear, shape)[0]

    @override
    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        ends = [self._aligned(end, linear) for end in self.ends.unbind(-1)]
        tail = linear + shape[..., -1]
        excess = self._excess(log_time, ends[-1])
        hazard = softplus(tail) * excess
        log_hazard = _log_softplus(tail) - ends[-1] + torch.zeros_like(excess)
        for k in range(len(ends) - 1, -1, -1):
            log_left, log_length = self._left(log_time, ends, k)
            logit = linear + shape[..., k]
            rest = softplus(logit + log_left)
            hazard = hazard + (softplus(logit) - rest)
            inside = self._not_after(log_time, ends[k])
            log_hazard = torch.where(inside, logit - rest - log_length, log_hazard)
        return hazard, log_hazard

    def basis(self, log_time: Tensor) -> Tensor:
        """See :meth:`HazardFamily.basis`.

        The number of the interval of the row, or the number of intervals beyond the last end; logs of the
        remaining share and of the length of the interval; time beyond the last end.
        """
        ends = [self._aligned(end, log_time) for end in self.ends.unbind(-1)]
        number = self._number(log_time, ends)
        # Beyond the last end nothing is left of an interval.
        log_left, log_length = torch.full_like(log_time, -torch.inf), torch.zeros_like(log_time)
        for k in range(len(ends)):
            left, length = self._left(log_time, ends, k)
            here = number == k
            log_left, log_length = torch.where(here, left, log_left), torch.where(here, length, log_length)
        return torch.stack([number, log_left, log_length, self._excess(log_time, ends[-1])], dim=-2)

    @override
    def loss_and_gradient(
        self, log_time: Tensor, event: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None = None
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """See :meth:`HazardFamily.loss_and_gradient`.

        With l the logit of the row's own interval and r what is left of it, the loss is the sum of softplus
        over the intervals that have begun, less (1 - c) softplus(l + log r) + c (l - log length).
        """
        rows, count, logits, own, left = self._at_rows(log_time, event, linear, shape, basis)
        odds, risen = sigmoid_and_softplus(logits)
        loss = torch.matmul(risen.unsqueeze(-2), count.unsqueeze(-1)).squeeze(-1).squeeze(-1)
        slope, rest = sigmoid_and_softplus(left)
        loss.add_(rows.observed * (rows.log_length - own)).addcmul_(rows.partly, rest, value=-1)
        loss.addcmul_(rows.late, _log_softplus(logits[..., -1]) - rows.last, value=-1)
        of_tail = _slope_of_log(logits[..., -1], odds[..., -1], risen[..., -1])
        first = odds.mul_(count)
        first.scatter_add_(
            -1, rows.place.expand_as(loss)[..., None], -(rows.observed + rows.partly * slope)[..., None]
        )
        first[..., -1] -= rows.late * of_tail
        return loss, first.sum(-1), first.unbind(-1)

    @override
    def second_derivatives(
        self, log_time: Tensor, event: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None = None
    ) -> dict[tuple[int, int], Tensor]:
        """See :meth:`HazardFamily.second_derivatives`: no logit but g acts on two intervals."""
        rows, count, logits, own, left = self._at_rows(log_time, event, linear, shape, basis)
        odds, risen = sigmoid_and_softplus(logits)
        of_tail = _slope_of_log(logits[..., -1], odds[..., -1], risen[..., -1])
        # log softplus is a straight line far below zero.
        bent = torch.where(logits[..., -1] < -_LIMIT, 0.0, of_tail * (1 - odds[..., -1] - of_tail))
        slope = torch.sigmoid(left)
        second = (1 - odds).mul_(odds).mul_(count)
        second.scatter_add_(
            -1, rows.place.expand_as(own)[..., None], -(rows.partly * slope * (1 - slope))[..., None]
        )
        second[..., -1] -= rows.late * bent
        mixed = {(0, k): bend for k, bend in enumerate(second.unbind(-1), start=1)}
        return {(0, 0): second.sum(-1)} | mixed | {(k, k): bend for (_, k), bend in mixed.items()}

    def _at_rows(
        self, log_time: Tensor, event: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None
    ) -> tuple[_Rows, Tensor, Tensor, Tensor, Tensor]:
        """Rows, counts of logits (K, 1, M, n + 1), logits (K, L, M, n + 1), the row's own, and l + log r.

        A logit counts once where its interval has begun, that beyond the last end as long as time ran there.
        """
        basis = self.basis(log_time.squeeze(-2)) if basis is None else basis
        number, log_left, log_length, excess = (part[:, None] for part in basis.unbind(-2))
        n = self.ends.shape[-1]
        exists = self.ends.diff(dim=-1, prepend=torch.full_like(self.ends[..., :1], -torch.inf)) > 0
        exists = exists.reshape(*self.batch_shape, *(1,) * (number.ndim - len(self.batch_shape)), n)
        begun = (number[..., None] >= torch.arange(n, device=number.device)) & exists
        count = torch.cat([begun.to(event.dtype), excess[..., None]], -1)
        observed = event * (number < n)
        partly = (1 - observed) * (log_left > -torch.inf)
        last = self._aligned(self.ends[..., -1], number)
        rows = _Rows(number.long(), log_length, observed, partly, event - observed, last)
        logits = linear.detach()[..., None] + shape.detach()
        own = logits.gather(-1, rows.place.expand_as(linear)[..., None]).squeeze(-1)
        return rows, count, logits, own, (own + log_left).clamp(min=-1e4)

    def neutral(self, log_time: Tensor) -> Tensor:
        """See :meth:`HazardFamily.neutral`: even odds at alpha_k = 0."""
        return torch.zeros_like(log_time)

    def log_quantile(self, cumulative_hazard: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_quantile`: a share (1 - exp(-rest of H)) / h_k of its interval."""
        ends = [self._aligned(end, linear) for end in self.ends.unbind(-1)]
        before, log_time = torch.zeros_like(linear), torch.zeros_like(linear)
        left = torch.zeros_like(ends[0])
        searching = torch.ones_like(linear + cumulative_hazard, dtype=torch.bool)
        for k, end in enumerate(ends):
            logit, right = linear + shape[..., k], torch.exp(end)
            after = torch.where(right > left, before + softplus(logit), before)
            here = searching & (after >= cumulative_hazard)
            rest = torch.where(here, cumulative_hazard - before, 0.0)
            # 1 / h_k, which is bounded where H gets to the target within the interval.
            share = -torch.expm1(-rest) * (1 + torch.exp(-torch.where(here, logit, 0.0)))
            time = left + share.clamp(max=1.0) * (right - left)
            log_time = torch.where(here, torch.where(here, time, 1.0).log(), log_time)
            searching, before, left = searching & ~here, after, right
        rest = torch.where(searching, cumulative_hazard - before, 0.0)
        rate = softplus(linear + shape[..., -1]).clamp(min=torch.finfo(linear.dtype).tiny)
        return torch.where(searching, ends[-1] + torch.log1p(rest / rate), log_time)

    def horizon(self, log_time: Tensor) -> Tensor | None:
        """See :meth:`HazardFamily.horizon`: a thousand times the last end, or the unit of model time."""
        # Model time has its unit among the training times, also where the ends that were given have not.
        return self._aligned(self.ends[..., -1].clamp(min=0), log_time) + math.log(_HORIZON)

    # ------------------------------------------------------------------ starting values

    def start(
        self, log_time: Tensor, event: Tensor, weight: Tensor, log_entry: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """See :meth:`HazardFamily.start`: the guess is the maximum."""
        return self.guess(log_time, event, weight, log_entry)

    def guess(
        self, log_time: Tensor, event: Tensor, weight: Tensor, log_entry: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """See :meth:`HazardFamily.guess`: an interval at a time, an intercept of zero.

        Log odds stay within a limit, which those of an interval without events reach.
        """
        ends = [self._aligned(end, log_time) for end in self.ends.unbind(-1)]
        entry = torch.full_like(log_time, -torch.inf) if log_entry is None else log_entry
        share, logits = weight / weight.sum(-1, keepdim=True), []
        number = self._number(log_time, ends)
        for some in row_blocks(len(ends), share.numel()):
            places = range(some.start, some.stop)
            events = torch.cat([event * (number == k) for k in places])
            lefts = (torch.cat([self._left(y, ends, k)[0] for k in places]) for y in (entry, log_time))
            found = _interval_logit(share.repeat(len(places), 1), events, *lefts)
            logits += found.unflatten(0, (-1, len(share))).unbind(0)
        time = self._excess(log_time, ends[-1]) - self._excess(entry, ends[-1])
        at_risk, events = (share * time).sum(-1), (share * event * (number == len(ends))).sum(-1)
        rate = events / at_risk.clamp(min=torch.finfo(share.dtype).tiny)
        logits.append(log_expm1(rate.clamp(min=torch.finfo(share.dtype).tiny)).clamp(-_LIMIT, _LIMIT))
        shape = torch.stack(logits, dim=-1)
        return torch.zeros_like(shape[:, 0]), shape

    # ------------------------------------------------------------------ constants from training rows

    @override
    def _constants(
        self, log_time: Tensor, event: Tensor, weight: Tensor, log_time_scale: Tensor
    ) -> dict[str, Tensor]:
        # No more intervals than the training rows need.
        if not isinstance(self.times, int):
            given = torch.tensor(self.times, dtype=torch.float64, device=log_time.device).log()
            ends = given - log_time_scale.double()[:, None]
        else:
            rows = [self._ends_of(times) for times in placement_times(log_time, event, weight, "intervals")]
            width = max(len(row) for row in rows)
            # Intervals of no length at the end, for problems with fewer: no row is ever in them.
            ends = torch.as_tensor(np.stack([np.pad(row, (0, width - len(row)), "edge") for row in rows]))
        return {"ends": ends.to(log_time)}

    @override
    def options(self) -> dict[str, Any]:
        given = self.times if isinstance(self.times, int) else list(self.times)
        return {"times": given, **super().options()}

    @override
    def describe(self, time_scale: float) -> str:
        times = ", ".join(f"{value * time_scale:.4g}" for value in self.ends.exp().unique().tolist())
        return f"intervals that end at t = {times}"

    # ------------------------------------------------------------------ internals

    def _ends_of(self, log_times: np.ndarray) -> np.ndarray:
        assert isinstance(self.times, int)
        distinct = np.unique(log_times)
        distinct = distinct[np.diff(distinct, append=np.inf) > _tolerance(torch.float64)]
        if len(distinct) <= self.times:
            return distinct
        shares = np.arange(1, self.times + 1) / self.times
        return np.unique(np.quantile(log_times, shares, method="higher"))

    def _number(self, log_time: Tensor, ends: list[Tensor]) -> Tensor:
        """The first interval that ends at a time or later, from 0; that of all ends beyond the last."""
        number = torch.zeros_like(log_time)
        for end in ends:
            number = number + ~self._not_after(log_time, end)
        return number

    def _left(self, log_time: Tensor, ends: list[Tensor], k: int) -> tuple[Tensor, Tensor]:
        """Log of the share of interval k left at a time, 0 before it and -inf after; its log length."""
        right = torch.exp(ends[k])
        length = right - torch.exp(ends[k - 1]) if k else right
        exists = length > 0
        length = torch.where(exists, length, 1.0)
        left = ((right - torch.exp(log_time)) / length).clamp(torch.finfo(right.dtype).tiny, 1.0)
        over = exists & ~self._before(log_time, ends[k])
        return torch.where(over, -torch.inf, torch.where(exists, left.log(), 0.0)), length.log()

    def _excess(self, log_time: Tensor, last: Tensor) -> Tensor:
        """Time beyond the last end, in units of that end."""
        return torch.where(self._not_after(log_time, last), 0.0, torch.expm1((log_time - last).clamp(min=0)))

    def _before(self, log_time: Tensor, end: Tensor) -> Tensor:
        return log_time < end - _tolerance(end.dtype)

    def _not_after(self, log_time: Tensor, end: Tensor) -> Tensor:
        return log_time <= end + _tolerance(end.dtype)

    def _corners(self, like: Tensor) -> Tensor:
        return self._spread(self.ends.unbind(-1), like)


def _tolerance(dtype: torch.dtype) -> float:
    return math.sqrt(torch.finfo(dtype).eps)


def _slope_of_log(tail: Tensor, odds: Tensor, risen: Tensor) -> Tensor:
    """Derivative of log softplus, which tends to one where the softplus vanishes."""
    return torch.where(tail < -_LIMIT, 1.0, odds / risen.clamp(min=torch.finfo(risen.dtype).tiny))


def _log_softplus(z: Tensor) -> Tensor:
    """Logarithm of softplus, which is z far below zero."""
    return torch.where(z < -_LIMIT, z - torch.exp(z.clamp(max=0)) / 2, softplus(z.clamp(min=-_LIMIT)).log())


def _interval_logit(weight: Tensor, event: Tensor, entered: Tensor, left: Tensor) -> Tensor:
    """Logits of K intervals by maximum likelihood, (K,), within the limit; all arguments are (K, M).

    ``event`` is 1 for an event in the interval, ``entered`` the log share of it left when the row entered,
    and ``left`` the log share left when it went.
    """
    events = (weight * event).sum(-1)
    at_risk = (weight * (entered - left > 0) * torch.exp(entered)).sum(-1).clamp(min=1e-12)
    start = torch.logit((events / at_risk).clamp(1e-7, 1 - 1e-7))[:, None]
    problem = Smooth(_interval_loss, (weight, event, entered, left))
    logit = newton(problem, Gaussian.flat(start), start, _TOLERANCE).theta[:, 0]
    return torch.where(events > 0, logit, -_LIMIT).clamp(-_LIMIT, _LIMIT)


def _interval_loss(logit: Tensor, weight: Tensor, event: Tensor, entered: Tensor, left: Tensor) -> Tensor:
    """Mean loss (K,) of logits (K, 1) of intervals."""
    after = softplus(logit + left)
    return (weight * (softplus(logit + entered) - after - event * (logit - after))).sum(-1)
