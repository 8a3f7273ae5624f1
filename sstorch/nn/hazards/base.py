"""Base of the leaf hazards: a cumulative hazard in log time, and everything that follows from it."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self, get_args

import torch
from torch import Tensor, nn

from sstorch.checks import check_choice
from sstorch.exceptions import ConfigError
from sstorch.newton import Gaussian, Smooth, newton
from sstorch.nn.functional import gradients, survival_of, with_own_tensors
from sstorch.nn.hazards.numeric import derived_terms, invert, restricted_mean

Ancillary = Literal["constant", "linear", "strata"]
Derivatives = tuple[Tensor, list[Tensor], dict[tuple[int, int], Tensor]]


class LogTimes(NamedTuple):
    """Outcome of rows, log times in model units, each broadcastable with predictors (..., L, N)."""

    log_time: Tensor  # last time of the row; any finite number of a row within an interval
    event: Tensor  # 1 if the event was observed, be it within an interval, else 0; floating
    log_entry: Tensor | None = None  # time from which the row was at risk, -inf for time zero
    log_lower: Tensor | None = None  # lower bound of an interval, -inf for time zero; None: no intervals
    log_upper: Tensor | None = None  # upper bound; +inf if the time is exact or right-censored

    @property
    def is_plain(self) -> bool:
        """True if all rows were observed from time zero, and no time is an interval."""
        return self.log_entry is None and self.log_lower is None

    def unsqueeze(self, dim: int) -> LogTimes:
        """The same with one more dimension."""
        given = {name: part for name, part in self._asdict().items() if part is not None}
        return self._replace(**{name: part.unsqueeze(dim) for name, part in given.items()})


class HazardFamily(nn.Module, ABC):
    """Family of survival distributions for the leaves.

    A family has one linear predictor g = gamma_0 + gamma . x and ``len(shape_names)`` unconstrained shape
    parameters. Its functions are elementwise and broadcast, so that the same code serves training
    (problems x leaves x rows) and prediction (problems x rows x times). Arguments and results are:

    * ``log_time``: y = log of time in model units; ``log_entry``, ``log_after``: -inf: zero;
    * ``event``: c, 1 for an observed event, else 0; ``linear``: g, shape (...);
    * ``shape``: shape parameters, shape (..., m); ``shape[..., k]`` broadcasts with ``linear``;
    * results have the broadcast shape; times are in model units.

    A subclass needs ``name``, ``shape_names`` and :meth:`cumulative_hazard`. The log hazard is computed by
    autograd, starting values by maximum likelihood, quantiles by inversion and means by quadrature; a family
    with closed forms overrides these methods.

    ``of_rate`` is True if g is the log of a rate, H about exp(g) t while small; else g is a log time.
    ``closed_form`` is True if the family overrides :meth:`derivatives`; ``overflows`` if the loss can be
    infinite at finite parameters. ``ratio`` names the exponential of a slope of g, if it is constant over
    time: ``"hazard ratio"``, ``"time ratio"`` or ``"odds ratio"`` (of the event). ``corner_name`` says what
    the :meth:`corners` are. ``sized_by_rows`` names the buffers whose last dimension depends on the training
    rows. :meth:`cumulative_hazard` must not branch on values for exports.

    Constants determined by training rows, such as knots, are buffers with the leading batch shape of
    parameters, set by :meth:`prepare`. A family may hold parameters and modules of its own, which all leaves
    and problems share: a torch optimizer trains them, the trainers of the estimators keep them as they are.

    Args:
        ancillary: ``"constant"``; ``"linear"`` if every shape parameter also has slopes on the features;
            ``"strata"`` if only on the indicators of ``Columns(strata=...)``.

    Raises:
        ConfigError: ``ancillary`` is unknown.
    """

    name: str
    shape_names: tuple[str, ...]
    of_rate = False
    closed_form = False
    overflows = True
    ratio: str | None = None
    corner_name = ""
    sized_by_rows: tuple[str, ...] = ()

    def __init__(self, ancillary: Ancillary = "constant") -> None:
        super().__init__()
        check_choice(ancillary, "ancillary", get_args(Ancillary))
        self.ancillary = ancillary
        self.batch_shape: tuple[int, ...] = ()
        self._prepared = False

    # ------------------------------------------------------------------ the distribution

    @abstractmethod
    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """Cumulative hazard H(t | x) = -log S(t | x) >= 0; +inf on overflow."""

    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        """H and log h, by default log(dH/dy) - y by autograd, of the smallest normal number at least."""
        if type(self).log_hazard is not HazardFamily.log_hazard:  # a family with a closed form of log h alone
            return self.cumulative_hazard(log_time, linear, shape), self.log_hazard(log_time, linear, shape)
        return derived_terms(self.cumulative_hazard, log_time, linear, shape, *self.parameters())

    def log_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """Log hazard log h(t | x) per unit of model time, of :meth:`terms`."""
        return self.terms(log_time, linear, shape)[1]

    def survival(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """S(t | x) = exp(-H)."""
        return survival_of(self.cumulative_hazard(log_time, linear, shape))

    @property
    def constant_ratio(self) -> str | None:
        """``ratio``; None if shapes depend on x, since the ratio then changes with time."""
        return None if self.ancillary == "linear" else self.ratio

    def log_quantile(self, cumulative_hazard: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """Log time at which H reaches a value > 0, +inf if H stays below; differentiable in parameters."""
        size = torch.broadcast_shapes(cumulative_hazard.shape, linear.shape, shape.shape[:-1])
        return invert(lambda y: self.terms(y, linear, shape), cumulative_hazard.expand(size))

    def restricted_mean(
        self, log_tau: Tensor, linear: Tensor, shape: Tensor, log_after: Tensor | None = None
    ) -> Tensor:
        """Restricted mean survival time, the integral of S from 0 to tau; +inf if the mean does not exist.

        ``log_tau`` = +inf gives the mean. With ``log_after`` the mean of the remaining time, the integral of
        S(after + t) / S(after).
        """
        parts = [part for part in (log_tau, log_after, linear) if part is not None]
        size = torch.broadcast_shapes(*(part.shape for part in parts), shape.shape[:-1])
        linear, shape, log_tau = linear.expand(size)[..., None], shape[..., None, :], log_tau.expand(size)
        corners = self._aligned(self.corners().to(linear), len(size)).expand(*size, -1)
        start = None if log_after is None else log_after.expand(size)[..., None]
        gone = 0.0 if start is None else self.cumulative_hazard(start, linear, shape)

        def since(y: Tensor) -> Tensor:
            return y if start is None else torch.log((y.exp() - start.exp()).clamp(min=0))

        def terms(y: Tensor) -> tuple[Tensor, Tensor]:
            at = y if start is None else torch.logaddexp(y, start)
            hazard, log_hazard = self.terms(at, linear, shape)
            return hazard - gone, log_hazard

        def quantile(hazard: Tensor) -> Tensor:
            return since(self.log_quantile(hazard + gone, linear, shape))

        return restricted_mean(quantile, terms, log_tau, since(corners))

    def corners(self) -> Tensor:
        """Log times in model units at which the survival function is not smooth, (*batch_shape, C)."""
        return torch.zeros(*self.batch_shape, 0, dtype=torch.float64)

    # ------------------------------------------------------------------ the likelihood

    def loss(self, times: LogTimes, linear: Tensor, shape: Tensor) -> Tensor:
        """Negative log-likelihood of rows, given survival to entry; +inf on overflow.

        It is H - c log h - H(entry), and -log(S(lower) - S(upper)) - H(entry) of an event within an interval.
        """
        log_time, event, log_entry, log_lower, log_upper = times
        hazard, log_hazard = self.terms(log_time, linear, shape)
        loss = hazard - event * log_hazard
        if log_lower is not None and log_upper is not None:
            within = log_upper.isfinite()
            lower, upper = (torch.where(within, bound, log_time) for bound in (log_lower, log_upper))
            before = self.hazard_before(lower, upper, linear, shape)
            after = self.cumulative_hazard(upper, linear, shape)
            # Beyond what can be represented survival is 0: a row without an event by the lower bound has it
            # here. A difference that underflows is the smallest normal number.
            between = torch.where(after.isinf(), torch.inf, after - before)
            between = between.clamp(min=torch.finfo(between.dtype).tiny)
            loss = torch.where(within, before - torch.log(-torch.expm1(-between)), loss)
        if log_entry is None:
            return loss
        # Where both hazards overflow their difference, which is large, has no number.
        before = self.hazard_before(log_entry, log_time, linear, shape)
        return loss - before.masked_fill(loss.isinf(), 0.0)

    def hazard_before(self, log_entry: Tensor, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """H at entry, 0 for rows at risk from time zero."""
        late = log_entry.isfinite()
        before = self.cumulative_hazard(torch.where(late, log_entry, log_time), linear, shape)
        return torch.where(late, before, torch.zeros_like(before))

    def basis(self, log_time: Tensor) -> Tensor | None:
        """Functions of time (K, q, M) for :meth:`derivatives`, of y (K, M); None if there are none."""
        return None

    def derivatives(
        self,
        times: LogTimes,
        linear: Tensor,
        shape: Tensor,
        basis: Tensor | None = None,
        second: bool = True,
    ) -> Derivatives:
        """Loss of rows and its partial derivatives, without a graph; by autograd unless overridden.

        Outcomes are (K, 1, M), g is (K, L, M), shape parameters are (K, L, 1 or M, m), ``basis`` is that of
        the log times, None to compute it.

        Returns:
            the loss; its derivatives in g, number 0, and each shape parameter; with ``second`` those of
            pairs j <= k of these, zero where missing. All are of shape (K, L, M). Far out in a tail they may
            be NaN.
        """
        with torch.enable_grad():
            parts = [linear, *shape.expand(*linear.shape, -1).unbind(-1)]
            parts = [part.detach().clone().requires_grad_() for part in parts]
            stacked = torch.stack(parts[1:], -1) if parts[1:] else shape.new_zeros(*linear.shape, 0)
            loss = self.loss(times, parts[0], stacked)
            first = gradients(loss.sum(), parts, create_graph=second)
            rows = [gradients(each.sum(), parts) for each in first] if second else []
        pairs = {(j, k): (rows[j][k] + rows[k][j]) / 2 for j in range(len(rows)) for k in range(j, len(rows))}
        return loss.detach(), [each.detach() for each in first], pairs

    def neutral(self, log_time: Tensor) -> Tensor:
        """A linear predictor with a moderate H at a log time, for rows with weight zero."""
        return -log_time if self.of_rate else log_time

    # ------------------------------------------------------------------ starting values

    def start(
        self, log_time: Tensor, event: Tensor, weight: Tensor, log_entry: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Weighted maximum likelihood without covariates, from :meth:`guess`.

        Args:
            log_time: shape (R, M), model units.
            event: 1 if the event was observed, else 0, shape (R, M).
            weight: row weights, shape (R, M).
            log_entry: log times from which rows were at risk, shape (R, M); None for time zero.

        Returns:
            intercept (R,); shape parameters (R, m), always finite. Problems with fewer than two distinct
            event times do not determine a shape and keep the guess.
        """
        observed = (event > 0) & (weight > 0)
        first = torch.where(observed, log_time, torch.inf).amin(-1)
        last = torch.where(observed, log_time, -torch.inf).amax(-1)
        intercept, shape = self.guess(log_time, event, weight, log_entry)
        theta = torch.cat([intercept[:, None], shape], dim=1).detach()
        family = self if self.batch_shape else self.expand((len(theta),))
        problem = Smooth(_mean_loss, (family, weight, log_time, event, log_entry))
        chosen = ((last > first) & problem.value(theta).isfinite()).nonzero().squeeze(-1)
        if len(chosen):
            own = theta[chosen]
            found = newton(problem.select(chosen), Gaussian.flat(own), own, torch.finfo(own.dtype).eps)
            theta = theta.index_copy(0, chosen, found.theta)
        return theta[:, 0], theta[:, 1:]

    def guess(
        self, log_time: Tensor, event: Tensor, weight: Tensor, log_entry: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Starting values of maximum likelihood; arguments and shapes as :meth:`start`.

        By default shapes of zero and, for g, the weighted mean of log time, or the log of events, of half an
        average row without any, per time at risk.
        """
        total = weight.sum(-1)
        if self.of_rate:
            if log_entry is not None:  # log(exp(y) - exp(entry)), time at risk from the entry on
                log_time = log_time + torch.log(-torch.expm1((log_entry - log_time).clamp(max=-1e-12)))
            events, half_row = (weight * event).sum(-1), 0.5 * total / (weight > 0).sum(-1)
            at_risk = torch.logsumexp(weight.log() + log_time, dim=-1)
            intercept = torch.where(events > 0, events, half_row).log() - at_risk
        else:
            intercept = (weight * log_time).sum(-1) / total
        return intercept, intercept.new_zeros(*intercept.shape, len(self.shape_names))

    # ------------------------------------------------------------------ constants from training rows

    @property
    def prepared(self) -> bool:
        """False if the family needs constants of training rows, such as knots, and has none yet."""
        return self._prepared or type(self)._constants is HazardFamily._constants

    def prepare(self, log_time: Tensor, event: Tensor, weight: Tensor, log_time_scale: Tensor) -> Self:
        """Return the family with the constants determined by training rows, one set per problem.

        Rows are those of :meth:`start`, with weight 0 for padding; ``log_time_scale`` is the log of the unit
        of model time, shape (R,).
        """
        constants = self._constants(log_time, event, weight, log_time_scale)
        return self.with_constants(constants, (log_time.shape[0],))

    def _constants(self, *rows: Tensor) -> dict[str, Tensor]:
        """Buffers by name, each (R, ...), of the arguments of :meth:`prepare`; none by default."""
        return {}

    def constants(self) -> dict[str, Tensor]:
        """Buffers by name, each (*batch_shape, ...)."""
        return {name: value for name, value in self._buffers.items() if value is not None}

    def with_constants(
        self, constants: Mapping[str, Tensor], batch_shape: tuple[int, ...], prepared: bool = True
    ) -> Self:
        """Return the family with other constants, each (*batch_shape, ...), and the same parameters."""
        chosen = with_own_tensors(copy.copy(self))
        chosen._buffers = {**chosen._buffers, **constants}
        chosen.batch_shape, chosen._prepared = batch_shape, prepared
        return chosen

    def select(self, problems: Tensor | slice | int) -> Self:
        """Select problems of a one-dimensional batch: positions (K,), a slice, or one."""
        chosen = {name: value[problems] for name, value in self.constants().items()}
        lead = next((value.shape[: not isinstance(problems, int)] for value in chosen.values()), ())
        return self.with_constants(chosen, tuple(lead), self._prepared)

    def expand(self, batch_shape: tuple[int, ...]) -> Self:
        """The same family for every problem of a batch.

        Raises:
            ConfigError: the family was prepared for a batch of another shape.
        """
        if self._buffers and self.batch_shape not in ((), batch_shape):
            raise ConfigError(f"family prepared for batch {self.batch_shape}, asked for batch {batch_shape}")
        lead = () if self.batch_shape == batch_shape else batch_shape
        wide = {name: part.expand(*lead, *part.shape).clone() for name, part in self.constants().items()}
        return self.with_constants(wide, batch_shape, self._prepared)

    def options(self) -> dict[str, Any]:
        """Arguments, as plain values, from which the registry recreates this family."""
        names = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    def describe(self, time_scale: float) -> str:
        """Note for the leaf table, by the unit of model time, next to the parameters; empty if none."""
        times = self.corners().unique().exp() * time_scale
        texts = ", ".join(f"{value:.4g}" for value in times.tolist())
        return f"{self.corner_name} at t = {texts}" if texts else ""

    def extra_repr(self) -> str:
        """Options shown by ``repr``."""
        return ", ".join(f"{name}={value!r}" for name, value in self.options().items())

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *others: Any) -> None:
        n_batch = len(self.batch_shape)
        for name, own in self.constants().items():
            given, sizes = state_dict.get(prefix + name, own), own.shape[n_batch:]
            lead = given.shape[: given.ndim - len(sizes)]
            # Another batch shape, or sizes that rows decide.
            if given is not own and (given.shape[len(lead) :] == sizes or name in self.sized_by_rows):
                self._buffers[name] = own.new_zeros(given.shape)
                self.batch_shape, self._prepared = tuple(lead), True
        super()._load_from_state_dict(state_dict, prefix, *others)

    def _aligned(self, constants: Tensor, n_dims: int) -> Tensor:
        """Constants (*batch_shape, C) for values of so many dimensions, (*batch_shape, 1, ..., C)."""
        lead = (*self.batch_shape, *(1,) * (n_dims - len(self.batch_shape)))
        return constants.reshape(*lead, constants.shape[-1])


def _mean_loss(theta: Tensor, family: HazardFamily, weight: Tensor, *times: Tensor) -> Tensor:
    """Weighted mean loss (R,) of intercepts and shapes (R, 1 + m), without covariates."""
    loss = family.loss(LogTimes(*times), theta[:, :1], theta[:, None, 1:])
    return (weight * torch.where(weight > 0, loss, 0.0)).sum(-1) / weight.sum(-1)
