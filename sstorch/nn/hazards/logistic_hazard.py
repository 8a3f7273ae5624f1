"""Life tables: hazards of intervals that are logistic in the covariates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from sstorch.nn.functional import log_expm1, sigmoid_and_softplus, softplus
from sstorch.nn.hazards.base import Ancillary, HazardFamily
from sstorch.nn.hazards.numeric import check_placement, placement_times

# Log odds between which starting values lie: an interval without events determines none.
_LIMIT = 16.0


_NEWTON_STEPS = 50


# So many times the last end is later than anything that the intervals can show.
_HORIZON = 1000.0


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
    kernel = "logistic_hazard"
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
    def kernel_columns(self, log_time: Tensor) -> Tensor:
        number, log_left, log_length, excess = self.basis(log_time).unbind(-2)
        # Intervals of no length are the last ones.
        exist = self._aligned(1 + (self.ends.diff(dim=-1) > 0).sum(-1), log_time)
        begun, last = torch.minimum(number + 1, exist), self._aligned(self.ends[..., -1], log_time)
        columns = (log_time, number, begun, log_left, log_length, excess, last.expand_as(log_time))
        return torch.stack(columns, dim=-2)

    def loss_and_gradient(
        self, log_time: Tensor, event: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None = None
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """See :meth:`HazardFamily.loss_and_gradient`.

        With o the logit of the row's own interval and r what is left of it, the loss is the sum of softplus
        over the intervals that have begun, less (1 - c) softplus(o + log r) + c o, but for constants.
        """
        number, log_left, log_length, excess, observed, partly = self._rows(log_time, event, basis)
        linear, shape = linear.detach(), shape.detach()
        beyond, last = self._beyond(linear + shape[..., -1], event - observed, excess)
        slopes, begun = self._begun(number, linear, shape)
        loss = beyond.add_(begun).add_(observed * log_length)
        logit_own = _interval_logit_of_rows(number, linear, shape)
        loss.addcmul_(observed, logit_own, value=-1)
        share = observed
        if bool(partly.any()):  # some rows were censored within an interval
            slope, rest = sigmoid_and_softplus(logit_own.add_(log_left).clamp_(min=-1e4))
            loss.addcmul_(partly, rest, value=-1)
            share = slope.mul_(partly).add_(observed)
        total = last.clone()
        for k, slope in enumerate(slopes):
            total.add_(slope.addcmul_((number == k).to(event.dtype), share, value=-1))
        return loss, total, (*slopes, last)

    def second_derivatives(
        self, log_time: Tensor, event: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None = None
    ) -> dict[tuple[int, int], Tensor]:
        """See :meth:`HazardFamily.second_derivatives`: no logit but g acts on two intervals."""
        number, log_left, _, excess, observed, partly = self._rows(log_time, event, basis)
        linear, shape = linear.detach(), shape.detach()
        bends = [slope.mul_(1 - slope) for slope in self._begun(number, linear, shape)[0]]
        if bool(partly.any()):
            rest = torch.sigmoid(_interval_logit_of_rows(number, linear, shape).add_(log_left))
            less = (partly * rest).mul_(1 - rest)
            for k, bend in enumerate(bends):
                bend.addcmul_((number == k).to(event.dtype), less, value=-1)
        slope, risen = sigmoid_and_softplus(linear + shape[..., -1])
        bend, share = slope * (1 - slope), slope / risen.clamp(min=torch.finfo(risen.dtype).tiny)
        # Of log softplus, which is a straight line far below zero.
        of_log = torch.where(linear + shape[..., -1] < -_LIMIT, 0.0, share * (1 - slope - share))
        bends.append(bend.mul_(excess).sub_((event - observed) * of_log))
        mixed = {(0, k): bend for k, bend in enumerate(bends, start=1)}
        pure = {(k, k): bend for k, bend in enumerate(bends, start=1)}
        return {(0, 0): torch.stack(bends).sum(0)} | mixed | pure

    def _rows(self, log_time: Tensor, event: Tensor, basis: Tensor | None) -> tuple[Tensor, ...]:
        """Parts of the basis; 1 for an event within the intervals; 1 if censored in the middle of one."""
        basis = self.basis(log_time.squeeze(-2)) if basis is None else basis
        assert basis is not None  # this family has one
        number, log_left, log_length, excess = (part[:, None] for part in basis.unbind(-2))
        observed = event * (number < self.ends.shape[-1])
        return number, log_left, log_length, excess, observed, (1 - observed) * (log_left > -torch.inf)

    def _beyond(self, tail: Tensor, late: Tensor, excess: Tensor) -> tuple[Tensor, Tensor]:
        """Loss of time beyond the last end, and its derivative in the logit there; ``late`` marks events."""
        if not bool(excess.any()):  # no row was observed there, and so none had the event
            return torch.zeros_like(tail), torch.zeros_like(tail)
        slope, risen = sigmoid_and_softplus(tail)
        loss, last = risen.mul(excess), slope.mul(excess)
        if bool(late.any()):  # there are none where the ends come from these rows
            log_last = self._aligned(self.ends[..., -1], tail)
            loss.addcmul_(late, _log_softplus(tail) - log_last, value=-1)
            # d log softplus / d tail -> 1 if the softplus vanishes.
            least = torch.finfo(risen.dtype).tiny
            last.addcmul_(late, torch.where(tail < -_LIMIT, 1.0, slope / risen.clamp(min=least)), value=-1)
        return loss, last

    def _begun(self, number: Tensor, linear: Tensor, shape: Tensor) -> tuple[list[Tensor], Tensor]:
        """h_k of the intervals that have begun, 0 in others, and the sum of -log(1 - h_k) over them."""
        exists = self.ends.diff(dim=-1, prepend=torch.full_like(self.ends[..., :1], -torch.inf)) > 0
        n = self.ends.shape[-1]
        begun = [(number >= k) & self._aligned(exists[..., k], linear) for k in range(n)]
        slopes, total = [], torch.zeros_like(linear)
        # One logarithm serves as many factors 1 - h_k as cannot underflow together.
        most = float((linear.amax() + shape.amax()).clamp(min=0)) + 1
        together = int(-math.log(torch.finfo(linear.dtype).tiny) / most) if math.isfinite(most) else 0
        if together == 0:
            for k in range(n):
                slope, risen = sigmoid_and_softplus(linear + shape[..., k])
                here = begun[k].to(linear.dtype)
                slopes.append(slope.mul_(here))
                total.addcmul_(here, risen)
            return slopes, total
        minus, product = linear.neg(), torch.ones_like(linear)
        for k in range(n):
            # An infinity more keeps an interval that has not begun whole.
            wait = torch.zeros_like(number).masked_fill_(~begun[k], torch.inf)
            rest = (minus - shape[..., k]).add_(wait).sigmoid_()
            product.mul_(rest)
            slopes.append(1 - rest)
            if (k + 1) % together == 0 or k + 1 == n:
                total.sub_(product.log_())
                product = torch.ones_like(linear)
        return slopes, total

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
        for k in range(len(ends)):
            lefts = self._left(entry, ends, k)[0], self._left(log_time, ends, k)[0]
            logits.append(_interval_logit(share, event * (number == k), *lefts))
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


def _interval_logit_of_rows(number: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
    """Logit of the row's own interval, or of the time beyond the last end, (K, L, M)."""
    index = number.long().expand(linear.shape)
    return shape.expand(*linear.shape, -1).gather(-1, index[..., None]).squeeze(-1).add_(linear)


def _log_softplus(z: Tensor) -> Tensor:
    """Logarithm of softplus, which is z far below zero."""
    return torch.where(z < -_LIMIT, z - torch.exp(z.clamp(max=0)) / 2, softplus(z.clamp(min=-_LIMIT)).log())


def _interval_logit(weight: Tensor, event: Tensor, entered: Tensor, left: Tensor) -> Tensor:
    """Logit of an interval by maximum likelihood, (R,), within the limit; all arguments are (R, M).

    ``event`` is 1 for an event in the interval, ``entered`` the log share of it left when the row entered,
    and ``left`` the log share left when it went.
    """
    events = (weight * event).sum(-1)
    at_risk = (weight * (entered - left > 0) * torch.exp(entered)).sum(-1).clamp(min=1e-12)
    logit = torch.logit((events / at_risk).clamp(1e-7, 1 - 1e-7))
    for _ in range(_NEWTON_STEPS):
        before, after = (torch.sigmoid(logit[:, None] + part) for part in (entered, left))
        slope = (weight * (before - after - event * (1 - after))).sum(-1)
        bend = (weight * (before * (1 - before) - (1 - event) * after * (1 - after))).sum(-1)
        largest = (weight * before * (1 - before)).sum(-1)
        # The likelihood of partly observed intervals is not concave everywhere.
        step = slope / torch.maximum(bend, 0.1 * largest).clamp(min=1e-12)
        logit = (logit - step.clamp(-2, 2)).clamp(-_LIMIT, _LIMIT)
        if bool((slope.abs() < 1e-12).all()):
            break
    return logit
