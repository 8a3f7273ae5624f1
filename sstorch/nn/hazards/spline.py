"""Royston-Parmar spline leaves and their scales."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from sstorch._types import FloatArray
from sstorch.checks import check_choice, is_number_of
from sstorch.exceptions import ConfigError, DataWarning
from sstorch.nn.functional import saturating_exp
from sstorch.nn.hazards.base import Ancillary
from sstorch.nn.hazards.links import (
    ArandaOrdazLink,
    ExponentialLink,
    Index,
    Link,
    LinkFamily,
    LogisticLink,
    NormalLink,
)
from sstorch.nn.hazards.numeric import (
    check_placement,
    evaluate_basis,
    knots_at_quantiles,
    piecewise_polynomials,
    placement_times,
)
from sstorch.nn.hazards.parametric import RateFamily

Scale = Literal["hazard", "odds", "normal", "theta"]
_NAMES = {"hazard": "spline_ph", "odds": "spline_po", "normal": "spline_probit", "theta": "spline"}


class Spline(LinkFamily, RateFamily):
    """Natural cubic spline in log time on the scale of hazards, odds or normal scores, or in between.

    H = link(eta) with eta = g + s(y). The derivative of s is sum_j w_j N_j(y) with the functions N_j >= 0 of
    :mod:`sstorch.nn.hazards.numeric`, constant beyond the boundary knots; s(y) = 0 at the unit of model time.

    With ``monotone=True`` w_j = exp(shape_j) > 0: survival curves cannot increase, inside or outside the
    knots. With ``monotone=False`` w_j = shape_j: the curves of Royston and Parmar, which can increase. If s'
    <= 0 there is no density, and a row with an event there is excluded from the likelihood, as in the paper.
    The likelihood is then discontinuous; this option is for comparisons.

    Without internal knots ``scale="hazard"`` is the Weibull and ``scale="odds"`` the log-logistic
    distribution.

    Args:
        scale: ``"hazard"`` (proportional hazards), ``"odds"`` (proportional odds), ``"normal"`` (probit) or
            ``"theta"``, Aranda-Ordaz' family between the first two.
        knots: number m of internal knots, put at percentiles of the log event times of the training rows with
            boundary knots at the extremes; or all knots, including boundaries, in original time units.
        monotone: True constrains parameters so that survival curves cannot increase.
        theta: theta of ``scale="theta"``, >= 0; None estimates it, as an additional shape parameter.
        ancillary: as in :class:`HazardFamily`.

    Raises:
        ConfigError: an argument is out of range.

    References:
        Royston and Parmar (2002), Statistics in Medicine 21, 2175-2197.
    """

    table: Tensor
    ends: Tensor

    def __init__(
        self,
        scale: Scale = "hazard",
        knots: int | Sequence[float] = 2,
        monotone: bool = True,
        theta: float | None = None,
        ancillary: Ancillary = "constant",
    ) -> None:
        super().__init__(ancillary)
        check_choice(scale, "scale", get_args(Scale))
        may_be_set = scale == "theta" and is_number_of(theta, Real)
        if theta is not None and not (may_be_set and 0 <= theta < math.inf):
            raise ConfigError(f"theta is a number >= 0 or None, for scale='theta' alone, got {theta!r}")
        if not isinstance(monotone, bool):
            raise ConfigError(f"monotone must be True or False, got {monotone!r}")
        self.scale, self.monotone, self.theta = scale, monotone, theta
        self.name, self.can_rise = _NAMES[scale], not monotone
        self.ratio = {"hazard": "hazard ratio", "odds": "odds ratio"}.get(scale)
        self.closed_form, self.overflows = monotone and scale != "theta", scale != "odds"
        self.knots = check_placement("knots", knots, 0, 2)
        self.n_internal = self.knots if isinstance(self.knots, int) else len(self.knots) - 2
        prefix = "log_slope" if monotone else "slope"
        self.shape_names = tuple(f"{prefix}_{j + 1}" for j in range(self.n_internal + 1))
        if self._learns_theta:
            self.shape_names = (*self.shape_names, "log_theta")
        # Until training rows give better ones: even in log time around the unit of model time.
        table, ends = self._tables(np.linspace(-2.0, 1.0, self.n_internal + 2))
        self.register_buffer("table", table)
        self.register_buffer("ends", ends)

    # ------------------------------------------------------------------ the distribution

    @override
    def link(self, shape: Tensor) -> Link:
        if self.scale == "theta" and self.theta != 0:
            log_theta = shape[..., -1] if self.theta is None else shape.new_tensor(math.log(self.theta))
            return ArandaOrdazLink(log_theta)
        return {"odds": LogisticLink, "normal": NormalLink}.get(self.scale, ExponentialLink)()

    @override
    def index(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        """Eta and log s'(y), which is -inf where an unconstrained curve does not fall."""
        curve, slope = self._spline(log_time, shape)
        if self.monotone:
            return linear + curve, slope.clamp(min=torch.finfo(slope.dtype).tiny).log()
        falls = slope > 0
        return linear + curve, torch.where(falls, torch.where(falls, slope, 1.0).log(), -torch.inf)

    @override
    def eta(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        curves, _ = evaluate_basis(self.table, self.ends, log_time, len(self.batch_shape))
        return linear + _weighted(self._weights(shape), curves)

    @override
    def index_at(self, log_time: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None) -> Index:
        basis = self.basis(log_time.squeeze(-2)) if basis is None else basis
        assert basis is not None  # a family with closed forms has one
        curves, slopes = basis.chunk(2, dim=-2)
        weights = torch.exp(shape)
        slope = _combined(weights, slopes).clamp_(min=torch.finfo(linear.dtype).tiny)
        each = range(self.n_internal + 1)
        return Index(
            _combined(weights, curves).add_(linear),
            slope.log(),
            torch.ones_like(linear[..., :1]),
            [curves[:, None, j] * weights[..., j] for j in each],
            [slopes[:, None, j] * weights[..., j] / slope for j in each],
        )

    def loss(
        self, log_time: Tensor, event: Tensor, linear: Tensor, shape: Tensor, log_entry: Tensor | None = None
    ) -> Tensor:
        """See :meth:`HazardFamily.loss`; zero for an event where an unconstrained curve does not fall.

        Raises:
            ConfigError: entry times with an unconstrained curve: H(t) - H(entry) can be negative.
        """
        if self.monotone:
            return super().loss(log_time, event, linear, shape, log_entry)
        if log_entry is not None:
            raise ConfigError("entry times need curves that cannot increase: use monotone=True")
        eta, log_slope = self.index(log_time, linear, shape)
        hazard, log_rate = self.link(shape).terms(eta)
        falls = log_slope > -torch.inf
        log_hazard = log_slope.masked_fill(~falls, 0.0) - log_time + log_rate
        return torch.where(falls | (event == 0), hazard - event * log_hazard, 0.0)

    def interval_loss(self, log_lower: Tensor, log_upper: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.interval_loss`.

        Raises:
            ConfigError: an unconstrained curve: S(lower) - S(upper) can be negative.
        """
        if not self.monotone:
            raise ConfigError("times within intervals need curves that cannot increase: use monotone=True")
        return super().interval_loss(log_lower, log_upper, linear, shape)

    def basis(self, log_time: Tensor) -> Tensor | None:
        """See :meth:`HazardFamily.basis`: I_j, then N_j, j = 1 ... m + 1; none without closed forms."""
        if not self.closed_form:
            return None
        curves, slopes = evaluate_basis(self.table, self.ends, log_time, len(self.batch_shape))
        return torch.stack([*curves, *slopes], dim=-2)

    @override
    def defined(self, log_time: Tensor, shape: Tensor) -> Tensor | None:
        return None if self.monotone else self._spline(log_time, shape)[1] > 0

    @override
    def describe(self, time_scale: float) -> str:
        knots = torch.cat([self.table[:1, 0], self.ends]).unique()
        return f"knots at t = {', '.join(f'{value * time_scale:.4g}' for value in knots.exp().tolist())}"

    @override
    def options(self) -> dict[str, Any]:
        given = self.knots if isinstance(self.knots, int) else list(self.knots)
        options: dict[str, Any] = {"knots": given, "monotone": self.monotone}
        if self.scale == "theta":
            options["theta"] = self.theta
        return {**options, **super().options()}

    def extra_repr(self) -> str:
        """Options shown by ``repr``, the scale first."""
        return f"{self.scale!r}, {super().extra_repr()}"

    def design(self, log_time: Tensor) -> Tensor:
        """The functions I_j at log times, (..., m + 1): eta = g + sum_j w_j I_j(y)."""
        return torch.stack(evaluate_basis(self.table, self.ends, log_time, len(self.batch_shape))[0], dim=-1)

    def to_scale(self, cumulative_hazard: Tensor) -> Tensor:
        """The eta at which H is reached, any shape; an estimated theta has its starting value, 1."""
        return self.link(cumulative_hazard.new_zeros(1)).index(cumulative_hazard)

    def guess(
        self, log_time: Tensor, event: Tensor, weight: Tensor, log_entry: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """See :meth:`HazardFamily.guess`: s(y) = y, with the intercept of a constant hazard."""
        rate, shape = super().guess(log_time, event, weight, log_entry)
        if not self.monotone:
            shape[..., : self.n_internal + 1] = 1.0
        return rate, shape

    def start(
        self, log_time: Tensor, event: Tensor, weight: Tensor, log_entry: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """See :meth:`HazardFamily.start`; an estimated theta starts at 1.

        Without covariates theta is poorly determined, and its gradient vanishes at 0.
        """
        if not self._learns_theta:
            return super().start(log_time, event, weight, log_entry)
        given = self._with({}, self.batch_shape)
        given.theta, given.shape_names = 1.0, self.shape_names[:-1]
        intercept, shape = given.start(log_time, event, weight, log_entry)
        return intercept, torch.cat([shape, torch.zeros_like(shape[:, :1])], dim=-1)

    # ------------------------------------------------------------------ internals

    @property
    def _learns_theta(self) -> bool:
        return self.scale == "theta" and self.theta is None

    def _spline(self, log_time: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        """The spline s and its derivative at log times."""
        curves, slopes = evaluate_basis(self.table, self.ends, log_time, len(self.batch_shape))
        weights = self._weights(shape)
        return _weighted(weights, curves), _weighted(weights, slopes)

    def _weights(self, shape: Tensor) -> Tensor:
        weights = shape[..., : self.n_internal + 1]
        return saturating_exp(weights) if self.monotone else weights

    @override
    def corners(self) -> Tensor:
        return torch.cat([self.table[..., :1, 0], self.ends], dim=-1)

    def _tables(self, knots: FloatArray) -> tuple[Tensor, Tensor]:
        table = piecewise_polynomials(knots, self.n_internal)
        ends = np.r_[knots[1:], [knots[-1]] * (self.n_internal + 2 - len(knots))]
        return torch.as_tensor(table), torch.as_tensor(ends)

    def _constants(
        self, log_time: Tensor, event: Tensor, weight: Tensor, log_time_scale: Tensor
    ) -> dict[str, Tensor]:
        if isinstance(self.knots, int):
            rows = placement_times(log_time, event, weight, "knots")
            knots = [knots_at_quantiles(times, self.n_internal) for times in rows]
        else:
            knots = [np.log(self.knots) - scale for scale in log_time_scale.double().cpu().numpy()]
        tables = [self._tables(problem_knots) for problem_knots in knots]
        n_fewer = sum(len(problem_knots) < self.n_internal + 2 for problem_knots in knots)
        if n_fewer:
            warnings.warn(
                f"the events are at too few distinct times for {self.n_internal} internal knots: "
                f"fewer are used in {n_fewer} of {len(knots)} sets of training rows",
                DataWarning,
                stacklevel=2,
            )
        table, ends = (torch.stack(part).to(log_time) for part in zip(*tables, strict=True))
        return {"table": table, "ends": ends}


def _weighted(weights: Tensor, functions: Sequence[Tensor]) -> Tensor:
    """Sum of weights (..., J) times J functions of time."""
    total = weights[..., 0] * functions[0]
    for j in range(1, len(functions)):
        total = total + weights[..., j] * functions[j]
    return total


def _combined(weights: Tensor, functions: Tensor) -> Tensor:
    """Sum over J of weights (K, L, 1 or M, J) times functions (K, J, M), shape (K, L, M)."""
    if weights.shape[-2] == 1:
        return torch.matmul(weights.squeeze(-2), functions)
    return torch.einsum("klmj,kjm->klm", weights, functions)
