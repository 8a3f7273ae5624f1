"""The distribution of event times that a module returns: a mixture of hazards for each row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, get_args

import torch
from torch import Tensor

from sstorch.checks import check_choice, check_share, check_truncation
from sstorch.exceptions import ConfigError
from sstorch.nn.functional import (
    check_values,
    log_mixture,
    log_weight_given,
    readable,
    survival_of,
    with_own_tensors,
)
from sstorch.nn.hazards.base import HazardFamily, LogTimes
from sstorch.nn.hazards.numeric import invert, log_time_limit

Reduction = Literal["mean", "sum", "none"]


class SurvivalDistribution:
    """Distribution of the event times of N rows: mixtures of L components of one hazard family.

    Modules return it: :class:`SoftTree`, :class:`HazardHead`. Everything is differentiable in the parameters,
    with exact second derivatives. Times are in original units, and so are hazards; results of float32
    parameters are float32.

    Times ``t`` of curves have one of four shapes: (T,) or (1, T), a grid for all rows; (N, T) or (N, 1), own
    times of each row. A tensor of shape (N,) is a grid of N times. Since it may be meant as one time a row,
    it raises if it does not increase: give own times as ``t[:, None]``. :meth:`nll` takes own times, (N,).

    Args:
        family: of the components, with as many problems as ``batch_shape``.
        log_weight: log weights of the components, whose exponentials sum to one over L, shape (*batch_shape,
            L, N), or a function that computes them.
        linear: linear predictors g, shape (*batch_shape, L, N).
        shape: m shape parameters, shape (*batch_shape, L, 1 or N, m).
        log_time_scale: log of the unit of model time, in which the parameters are, shape (*batch_shape,).
        component: function that computes the component of each row in :meth:`most_probable`, shape
            (*batch_shape, N); None for the one with the largest weight.

    Raises:
        ConfigError: shapes do not match.

    >>> from sstorch.nn import make_family
    >>> linear = torch.tensor([[0.0, 1.0]])                      # one component, two rows
    >>> family, log_a = make_family("weibull"), torch.zeros(1, 1, 1)
    >>> weibull = SurvivalDistribution(family, torch.zeros(1, 2), linear, log_a)
    >>> weibull.survival(torch.tensor([0.5, 1.0, 2.0]))
    tensor([[0.6065, 0.3679, 0.1353],
            [0.8320, 0.6922, 0.4791]])
    >>> weibull.nll(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0]))
    tensor(0.8679)
    """

    def __init__(
        self,
        family: HazardFamily,
        log_weight: Tensor | Callable[[], Tensor],
        linear: Tensor,
        shape: Tensor,
        log_time_scale: Tensor | None = None,
        *,
        component: Callable[[], Tensor] | None = None,
    ) -> None:
        *lead, n_rows, n_shape = shape.shape
        fits = tuple(lead) == tuple(linear.shape[:-1]) and n_rows in (1, linear.shape[-1])
        weights = linear.shape if callable(log_weight) else log_weight.shape
        if weights != linear.shape or not fits or n_shape != len(family.shape_names):
            raise ConfigError(
                "`log_weight`, `linear` and `shape` must have the shapes (*batch_shape, L, N), the same, and "
                f"(*batch_shape, L, 1 or N, {len(family.shape_names)}), got {tuple(weights)}, "
                f"{tuple(linear.shape)} and {tuple(shape.shape)}"
            )
        # torch.func.functional_call takes tensors of a module back as soon as the module has returned.
        self.family = family if torch.compiler.is_dynamo_compiling() else with_own_tensors(family)
        self._log_weight, self.linear, self.shape = log_weight, linear, shape
        self.log_time_scale = (
            linear.new_zeros(linear.shape[:-2]) if log_time_scale is None else log_time_scale
        )
        self._component = component

    @property
    def log_weight(self) -> Tensor:
        """Log weights of the components, shape (*batch_shape, L, N)."""
        if callable(self._log_weight):  # one component a row needs none
            self._log_weight = self._log_weight()
        return self._log_weight

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading shape of all parameters."""
        return tuple(self.linear.shape[:-2])

    @property
    def n_components(self) -> int:
        """Number of components, L."""
        return self.linear.shape[-2]

    @property
    def n_rows(self) -> int:
        """Number of rows, N."""
        return self.linear.shape[-1]

    def __repr__(self) -> str:
        return (
            f"SurvivalDistribution({self.family.name}, n_components={self.n_components}, "
            f"n_rows={self.n_rows}, batch_shape={self.batch_shape})"
        )

    # ------------------------------------------------------------------ curves

    def log_survival(self, t: Tensor) -> Tensor:
        """Log survival function, log S(t) = -H(t) <= 0, shape (*batch_shape, N, T); -inf if S underflows.

        Raises:
            ConfigError: ``t`` has another shape than (T,), (1, T), (N, T) or (N, 1), or as many times as rows
                that do not increase.
            DataError: a time is negative or NaN (checked on the CPU alone).
        """
        hazard = self.family.cumulative_hazard(*self._at(t))
        return torch.where(t == 0, 0.0, self._mixed_log_survival(hazard))

    def survival(self, t: Tensor, *, rows_last: bool = False) -> Tensor:
        """Survival function S(t), in [0, 1]; shape as :meth:`log_survival`.

        With ``rows_last``, of times (T, 1), the shape is (*batch_shape, T, N), contiguous.
        """
        arguments = self._at(t, rows_last)
        if self.n_components == 1:  # of some families it takes less than their cumulative hazard
            return torch.where(t == 0, 1.0, self.family.survival(*arguments).squeeze(-3))
        mixed = self._mixed_log_survival(self.family.cumulative_hazard(*arguments), rows_last)
        return survival_of(-torch.where(t == 0, 0.0, mixed))

    def cumulative_hazard(self, t: Tensor) -> Tensor:
        """Cumulative hazard H(t) >= 0; shape as :meth:`log_survival`."""
        return -self.log_survival(t)

    def log_hazard(self, t: Tensor) -> Tensor:
        """Log hazard per original unit of time; shape as :meth:`log_survival`."""
        arguments = self._at(t)
        if self.n_components == 1:
            mixed = self.family.log_hazard(*arguments).squeeze(-3)
        else:
            log_hazard = self.family.log_hazard(*arguments)
            mixed = self._mixed_log_hazard(self.family.cumulative_hazard(*arguments), log_hazard)
        return mixed - self.log_time_scale[..., None, None]

    def hazard(self, t: Tensor) -> Tensor:
        """Hazard h(t) per original unit of time; shape as :meth:`log_survival`."""
        return self.log_hazard(t).exp()

    def quantile(self, q: float, *, after: Tensor | None = None) -> Tensor:
        """Quantile of the event time, F(t) = q, in original units.

        Args:
            q: in (0, 1); 0.5 gives the median.
            after: times of conditioning, original units, shape (N,): quantiles of the remaining time.

        Returns:
            shape (*batch_shape, N); +inf if the survival function stays above 1 - q.

        Raises:
            ConfigError: ``q`` is not in (0, 1).
        """
        q = check_share(q, "q")
        linear, shape = self.linear[..., None], self.shape[..., None, :]
        target = linear.new_tensor(-math.log1p(-q))
        if after is not None:
            target = target + self.cumulative_hazard(self._rows(after, "after")[:, None])
        if self.n_components == 1:
            each = target[..., None, :, :] if target.ndim else target
            log_time = self.family.log_quantile(each, linear, shape).squeeze(-3)
        else:

            def mixed(y: Tensor) -> tuple[Tensor, Tensor]:
                hazard, log_hazard = self.family.terms(y[..., None, :, :], linear, shape)
                return -self._mixed_log_survival(hazard), self._mixed_log_hazard(hazard, log_hazard)

            log_time = invert(mixed, target.expand(*self.batch_shape, self.n_rows, 1))
        time = torch.exp(log_time.squeeze(-1) + self.log_time_scale[..., None])
        return time if after is None else (time - after).clamp(min=0)

    def restricted_mean(self, tau: float, *, after: Tensor | None = None) -> Tensor:
        """Restricted mean survival time, the integral of S(t) from 0 to ``tau``, in original units.

        Args:
            tau: > 0, original units; ``math.inf`` gives the mean survival time.
            after: times of conditioning, original units, shape (N,): the mean of the remaining time,
                restricted to ``tau``.

        Returns:
            shape (*batch_shape, N); +inf if the mean does not exist.

        Raises:
            ConfigError: ``tau`` is not positive.
        """
        tau = check_truncation(tau)
        log_weight = self.log_weight[..., None]
        linear, shape = self.linear[..., None], self.shape[..., None, :]
        log_scale = self.log_time_scale[..., None, None, None]
        log_tau, log_after = linear.new_tensor(tau).log() - log_scale, None
        if after is not None:
            limit, after = log_time_limit(linear.dtype), self._rows(after, "after")
            check_values(after, after >= 0, "after", "at least 0")
            log_after = (after[:, None].to(linear).log() - log_scale).clamp(min=-limit)
            gone = self.family.cumulative_hazard(log_after, linear, shape)
            log_weight = log_weight_given(log_weight, gone, -3)
        means = self.family.restricted_mean(log_tau, linear, shape, log_after)
        # A component without weight may have an infinite mean.
        p = log_weight.exp()
        weighted = torch.where(p > 0, p * means, torch.zeros_like(means))
        return weighted.sum(-3).squeeze(-1) * self.log_time_scale.exp()[..., None]

    @torch.no_grad()
    def sample(self, *, generator: torch.Generator | None = None) -> Tensor:
        """Event times, one a row, in original units, shape (*batch_shape, N), without a graph.

        They are +inf where the event never happens.
        """

        def exponential(like: Tensor) -> Tensor:
            return torch.empty_like(like).exponential_(generator=generator)

        # Of exponential times at the rates of the weights the earliest one chooses the component.
        chosen = self._choose((self.log_weight - exponential(self.log_weight).log()).argmax(-2))
        linear = chosen.linear[..., None]
        log_time = self.family.log_quantile(exponential(linear), linear, chosen.shape[..., None, :])
        return torch.exp(log_time[..., 0, :, 0] + self.log_time_scale[..., None])

    def most_probable(self) -> SurvivalDistribution:
        """One component for each row, at weight one.

        Of a tree with linear gates it is the leaf on the path of highest branch probability, as estimators
        predict by default; of others the component of the largest weight. Gates and routers then have no
        gradient.
        """
        if self.n_components == 1:
            return self
        if self._component is None:
            return self._choose(self.log_weight.argmax(-2))
        return self._choose(self._component())

    # ------------------------------------------------------------------ likelihood

    def nll(
        self,
        time: Tensor | None = None,
        event: Tensor | None = None,
        *,
        entry: Tensor | None = None,
        lower: Tensor | None = None,
        upper: Tensor | None = None,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> Tensor:
        """Negative log-likelihood of rows, in nats, with times in original units.

        Either ``time`` and ``event``: -c log h(t) + H(t), right-censored where c = 0. Or ``lower`` and
        ``upper``: -log(S(lower) - S(upper)); where both are equal the time is exact, where ``upper`` is +inf
        it is right-censored at ``lower``. With ``entry``, conditional on survival to it: left truncation.

        Args:
            time: last times, > 0, shape (N,) or (*batch_shape, N); censored rows may have no follow-up.
            event: 1 or True if the event was observed then, else 0, like ``time``.
            entry: times from which rows were at risk, >= 0, like ``time``; at most ``lower``.
            lower: last times without the event, >= 0, like ``time``.
            upper: first times with the event, >= ``lower`` and > 0, like ``time``.
            weight: of rows, >= 0, like ``time``.
            reduction: ``"mean"``, weighted by ``weight``; ``"sum"`` of the weighted rows; or ``"none"``.

        Returns:
            shape (*batch_shape,), or (*batch_shape, N) without reduction; +inf on overflow.

        Raises:
            ConfigError: arguments do not go together or have other shapes.
            DataError: values are out of range. Only values on the CPU are checked, since other devices would
                have to wait.
        """
        check_choice(reduction, "reduction", get_args(Reduction))
        parts = {"time": time, "event": event, "lower": lower, "upper": upper, "entry": entry}
        given = {name: self._rows(part, name) for name, part in parts.items() if part is not None}
        times, log_unit = self._outcome(given)
        losses = self.family.loss(times, self.linear, self.shape)
        if self.n_components == 1:
            rows = losses.squeeze(-2)
        else:
            log_weight = self.log_weight
            if times.log_entry is not None:
                before = self.family.hazard_before(times.log_entry, times.log_time, self.linear, self.shape)
                log_weight = log_weight_given(log_weight, before, -2)
            rows = -log_mixture(log_weight, losses, -2)
        return self.reduced(rows + log_unit, weight, reduction)

    def reduced(self, rows: Tensor, weight: Tensor | None, reduction: Reduction) -> Tensor:
        """Losses of rows, (*batch_shape, N), with the weights and the reduction of :meth:`nll`."""
        if weight is None:
            return rows if reduction == "none" else rows.sum(-1) if reduction == "sum" else rows.mean(-1)
        weight = self._rows(weight, "weight").to(rows)
        check_values(weight, (weight >= 0) & weight.isfinite(), "weight", "finite and at least 0")
        # A row without weight may have an infinite loss.
        weighted = weight * torch.where(weight > 0, rows, 0.0)
        if reduction != "mean":
            return weighted if reduction == "none" else weighted.sum(-1)
        total = weight.sum(-1)
        check_values(total, total > 0, "weight", "above 0 in sum")
        return weighted.sum(-1) / total

    def _outcome(self, given: dict[str, Tensor]) -> tuple[LogTimes, Tensor]:
        """Log times in model units, (*batch_shape or (), 1, N), and log units of densities, (..., N)."""
        kinds = [name for name in given if name != "entry"]
        others: dict[str, Tensor] = {}  # torch.compile does not know dict[str, Tensor]()
        if kinds == ["time", "event"]:
            first = last = given["time"]
            density = event = given["event"].to(self.linear)
            check_values(event, (event == 0) | (event == 1), "event", "0 or 1")
            late = (last > 0) | ((last == 0) & (event == 0))
            check_values(last, late & last.isfinite(), "time", "finite, at least 0 and above 0 at an event")
        elif kinds == ["lower", "upper"]:
            first, last = given["lower"], given["upper"]
            check_values(first, (first >= 0) & first.isfinite(), "lower", "finite and at least 0")
            check_values(last, (last >= first) & (last > 0), "upper", "above 0 and at least lower")
            event = last.isfinite().to(self.linear)
            within = (last > first) & last.isfinite()
            density = event.masked_fill(within, 0.0)
            last = torch.where(within, last, first)
            others["log_lower"] = self._log_time(first, 1).masked_fill(first == 0, -torch.inf)
            others["log_upper"] = self._log_time(last, 1).masked_fill(~within, torch.inf)
        else:
            raise ConfigError(
                f"nll needs time and event, or lower and upper, got {', '.join(kinds) or 'none'}"
            )
        if "entry" in given:
            begin = given["entry"]
            early = (begin < last) | ((begin == last) & (event == 0))
            early &= (begin >= 0) & (begin <= first)
            check_values(begin, early, "entry", "at least 0 and before the end of the row")
            others["log_entry"] = self._log_time(begin, 1).masked_fill(begin == 0, -torch.inf)
        times = LogTimes(self._log_time(last, 1), event, **others)
        return times.unsqueeze(-2), density * self.log_time_scale[..., None]

    def _rows(self, value: Tensor, name: str) -> Tensor:
        """One value a row, (N,) or (*batch_shape, N)."""
        value = torch.as_tensor(value)
        if value.shape not in ((self.n_rows,), (*self.batch_shape, self.n_rows)):
            raise ConfigError(
                f"`{name}` must have one value for each of {self.n_rows} rows, shape ({self.n_rows},), "
                f"got shape {tuple(value.shape)}"
            )
        return value

    # ------------------------------------------------------------------ internals

    def _at(self, t: Tensor, rows_last: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Log time, linear predictors and shapes, broadcastable to (*batch_shape, L, N, T) or (..., T, N)."""
        if not isinstance(t, Tensor):
            raise ConfigError(f"`t` must be a tensor of times, got {type(t).__name__}")
        linear, shape = self.linear[..., None], self.shape[..., None, :]
        if rows_last:
            linear, shape = self.linear[..., None, :], self.shape[..., None, :, :]
        elif t.ndim not in (1, 2) or (t.ndim == 2 and t.shape[0] not in (1, self.n_rows)):
            raise ConfigError(
                f"`t` must be a grid of shape (T,) or (1, T), or own times of the {self.n_rows} rows, shape "
                f"({self.n_rows}, T) or ({self.n_rows}, 1), got {tuple(t.shape)}"
            )
        elif t.ndim == 1 and readable(t) and len(t) == self.n_rows > 1 and not bool((t.diff() > 0).all()):
            raise ConfigError(
                f"`t` of shape ({self.n_rows},) must increase, since it is a grid for all rows; "
                "for one time a row use t[:, None], for a grid in any order t[None]"
            )
        check_values(t, t >= 0, "t", "at least 0")
        return self._log_time(t, 2)[..., None, :, :], linear, shape

    def _log_time(self, t: Tensor, n_dims: int) -> Tensor:
        """Log of times in model units, which have so many dimensions behind those of the batch."""
        # log 0 is replaced by the smallest normal number's, which leaves a finite power of t. In double,
        # since the range of single precision is too small for times in any unit.
        scale = self.log_time_scale.double().reshape(*self.batch_shape, *(1,) * n_dims)
        log_time = t.double().clamp(min=torch.finfo(torch.float64).tiny).log() - scale
        limit = log_time_limit(self.linear.dtype)
        return log_time.clamp(-limit, limit).to(self.linear.dtype)

    def _mixed_log_survival(self, hazard: Tensor, rows_last: bool = False) -> Tensor:
        """Log of the average of the components' survival functions, components in dimension -3."""
        if self.n_components == 1:
            return -hazard.squeeze(-3)
        log_weight = self.log_weight[..., None, :] if rows_last else self.log_weight[..., None]
        return log_mixture(log_weight, hazard, -3).clamp(max=0)

    def _mixed_log_hazard(self, hazard: Tensor, log_hazard: Tensor) -> Tensor:
        """Log hazard of that average."""
        return torch.logsumexp(log_weight_given(self.log_weight[..., None], hazard, -3) + log_hazard, dim=-3)

    def _choose(self, component: Tensor) -> SurvivalDistribution:
        """The same with one component for each row, of positions (*batch_shape, N)."""
        at = component[..., None, :]
        linear, n_shape = self.linear.gather(-2, at), self.shape.shape[-1]
        shape = self.shape.expand(*self.linear.shape, n_shape)
        shape = shape.gather(-3, at[..., None].expand(*at.shape, n_shape))
        weight = torch.zeros_like(linear)
        return SurvivalDistribution(self.family, weight, linear, shape, self.log_time_scale)


def competing_nll(
    distributions: Mapping[int, SurvivalDistribution],
    time: Tensor,
    cause: Tensor,
    *,
    entry: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Negative log-likelihood of competing causes: -log h_k(t) of the observed cause k + sum_j H_j(t).

    It is the sum over causes of :meth:`SurvivalDistribution.nll`, in which events of other causes are
    censored.

    Arguments and result are those of :meth:`SurvivalDistribution.nll`; ``distributions`` of the same rows are
    given by cause, numbers other than 0, and ``cause`` is 0 for censored rows.

    Raises:
        ConfigError: there is no cause, or one is 0.
        DataError: a row has an unknown cause.

    References:
        Prentice et al. (1978), Biometrics 34, 541-554.
    """
    check_choice(reduction, "reduction", get_args(Reduction))
    if not distributions or 0 in distributions:
        raise ConfigError(f"`distributions` must have causes other than 0, censored, got {[*distributions]}")
    cause = torch.as_tensor(cause)
    known = torch.stack([cause == k for k in (0, *distributions)]).any(0)
    check_values(cause, known, "cause", f"0 or one of {', '.join(map(str, distributions))}")
    rows = torch.stack(
        [each.nll(time, cause == k, entry=entry, reduction="none") for k, each in distributions.items()]
    )
    return next(iter(distributions.values())).reduced(rows.sum(0), weight, reduction)
