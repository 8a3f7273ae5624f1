"""Royston-Parmar spline leaves and their scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from sstorch._types import FloatArray
from sstorch.checks import check_choice, is_number_of
from sstorch.exceptions import ConfigError, warn
from sstorch.nn.functional import saturating_exp
from sstorch.nn.hazards.base import Ancillary
from sstorch.nn.hazards.links import EXPONENTIAL, LOGISTIC, NORMAL, Index, Link, LinkFamily, aranda_ordaz
from sstorch.nn.hazards.numeric import (
    check_placement,
    evaluate_basis,
    knots_at_quantiles,
    piecewise_polynomials,
    placed,
    times_text,
)

Scale = Literal["hazard", "odds", "normal", "theta"]
# Of each scale: the name of the family, its link, and what the exponential of a slope of g is.
_SCALES: dict[str, tuple[str, Link, str | None]] = {
    "hazard": ("spline_ph", EXPONENTIAL, "hazard ratio"),
    "odds": ("spline_po", LOGISTIC, "odds ratio"),
    "normal": ("spline_probit", NORMAL, None),
    "theta": ("spline", EXPONENTIAL, None),
}


class Spline(LinkFamily):
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

    of_rate = True
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
        self.scale, self.monotone, self.theta, self.can_rise = scale, monotone, theta, not monotone
        self.name, _, self.ratio = _SCALES[scale]
        self.closed_form, self.overflows = monotone and scale != "theta", scale != "odds"
        self.knots = check_placement("knots", knots, 0, 2)
        self.n_internal = self.knots if isinstance(self.knots, int) else len(self.knots) - 2
        prefix = "log_slope" if monotone else "slope"
        self.shape_names = tuple(f"{prefix}_{j + 1}" for j in range(self.n_internal + 1))
        if self._learns_theta:
            self.shape_names = (*self.shape_names, "log_theta")
        # Until training rows give better ones: even in log time around the unit of model time.
        for name, value in self._tables([np.linspace(-2.0, 1.0, self.n_internal + 2)]).items():
            self.register_buffer(name, value[0])

    # ------------------------------------------------------------------ the distribution

    @override
    def link(self, shape: Tensor) -> Link:
        if self.scale == "theta" and self.theta != 0:
            return aranda_ordaz(
                shape[..., -1] if self.theta is None else shape.new_tensor(math.log(self.theta))
            )
        return _SCALES[self.scale][1]

    @override
    def index(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        curves, slopes = self._functions(log_time)
        weights = self._weights(shape)
        eta, slope = linear + _weighted(weights, curves), _weighted(weights, slopes)
        if self.monotone:
            return eta, slope.clamp(min=torch.finfo(slope.dtype).tiny).log()
        falls = slope > 0  # where an unconstrained curve does not, its log slope is -inf
        return eta, torch.where(falls, torch.where(falls, slope, 1.0).log(), -torch.inf)

    @override
    def eta(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        return linear + _weighted(self._weights(shape), self._functions(log_time)[0])

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

    @override
    def loss(
        self, log_time: Tensor, event: Tensor, linear: Tensor, shape: Tensor, log_entry: Tensor | None = None
    ) -> Tensor:
        if self.monotone:
            return super().loss(log_time, event, linear, shape, log_entry)
        if log_entry is not None:  # H(t) - H(entry) can be negative
            raise ConfigError("entry times need curves that cannot increase: use monotone=True")
        eta, log_slope = self.index(log_time, linear, shape)
        hazard, log_rate = self.link(shape).terms(eta)
        falls = log_slope > -torch.inf
        log_hazard = log_slope.masked_fill(~falls, 0.0) - log_time + log_rate
        return torch.where(falls | (event == 0), hazard - event * log_hazard, 0.0)

    @override
    def interval_loss(self, log_lower: Tensor, log_upper: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        if not self.monotone:  # S(lower) - S(upper) can be negative
            raise ConfigError("times within intervals need curves that cannot increase: use monotone=True")
        return super().interval_loss(log_lower, log_upper, linear, shape)

    @override
    def basis(self, log_time: Tensor) -> Tensor | None:
        curves, slopes = self._functions(log_time) if self.closed_form else ([], [])
        return torch.stack([*curves, *slopes], dim=-2) if curves else None

    @override
    def defined(self, log_time: Tensor, shape: Tensor) -> Tensor | None:
        return None if self.monotone else _weighted(self._weights(shape), self._functions(log_time)[1]) > 0

    @override
    def corners(self) -> Tensor:
        return torch.cat([self.table[..., :1, 0], self.ends], dim=-1)

    @override
    def describe(self, time_scale: float) -> str:
        return f"knots at t = {times_text(self.corners().unique().exp(), time_scale)}"

    @override
    def options(self) -> dict[str, Any]:
        theta = {"theta": self.theta} if self.scale == "theta" else {}
        return {"knots": self.knots, "monotone": self.monotone, **theta, **super().options()}

    @override
    def extra_repr(self) -> str:
        return f"{self.scale!r}, {super().extra_repr()}"

    def design(self, log_time: Tensor) -> Tensor:
        """The functions I_j at log times, (..., m + 1): eta = g + sum_j w_j I_j(y)."""
        return torch.stack(self._functions(log_time)[0], dim=-1)

    def to_scale(self, cumulative_hazard: Tensor) -> Tensor:
        """The eta at which H is reached, any shape; an estimated theta has its starting value, 1."""
        return self.link(cumulative_hazard.new_zeros(1)).inverse(cumulative_hazard)

    # ------------------------------------------------------------------ starting values and knots

    @override
    def guess(
        self, log_time: Tensor, event: Tensor, weight: Tensor, log_entry: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        rate, shape = super().guess(log_time, event, weight, log_entry)
        if not self.monotone:
            shape[..., : self.n_internal + 1] = 1.0  # s(y) = y
        return rate, shape

    @override
    def start(
        self, log_time: Tensor, event: Tensor, weight: Tensor, log_entry: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        if not self._learns_theta:
            return super().start(log_time, event, weight, log_entry)
        # Without covariates theta is poorly determined, and its gradient vanishes at 0: it starts at 1.
        given = self._with({}, self.batch_shape)
        given.theta, given.shape_names = 1.0, self.shape_names[:-1]
        intercept, shape = given.start(log_time, event, weight, log_entry)
        return intercept, torch.cat([shape, torch.zeros_like(shape[:, :1])], dim=-1)

    @property
    def _learns_theta(self) -> bool:
        return self.scale == "theta" and self.theta is None

    def _functions(self, log_time: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        return evaluate_basis(self.table, self.ends, log_time, len(self.batch_shape))

    def _weights(self, shape: Tensor) -> Tensor:
        weights = shape[..., : self.n_internal + 1]
        return saturating_exp(weights) if self.monotone else weights

    @override
    def _constants(self, *rows: Tensor) -> dict[str, Tensor]:
        knots = placed(self.knots, rows, "knots", lambda times: knots_at_quantiles(times, self.n_internal))
        n_fewer = sum(len(own) < self.n_internal + 2 for own in knots)
        if n_fewer:
            warn(
                f"the events are at too few distinct times for {self.n_internal} internal knots: "
                f"fewer are used in {n_fewer} of {len(knots)} sets of training rows"
            )
        return {name: value.to(rows[0]) for name, value in self._tables(knots).items()}

    def _tables(self, knots: Sequence[FloatArray]) -> dict[str, Tensor]:
        """Coefficients between knots and the right ends of intervals, for each array of knots."""
        tables = [piecewise_polynomials(own, self.n_internal) for own in knots]
        ends = [np.r_[own[1:], [own[-1]] * (self.n_internal + 2 - len(own))] for own in knots]
        return {"table": torch.as_tensor(np.stack(tables)), "ends": torch.as_tensor(np.stack(ends))}


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
