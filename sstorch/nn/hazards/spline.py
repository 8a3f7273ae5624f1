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
from sstorch.nn.functional import log_expm1, log_sigmoid_pair, saturating_exp, sigmoid_and_softplus, softplus
from sstorch.nn.hazards.base import Ancillary
from sstorch.nn.hazards.numeric import (
    check_placement,
    evaluate_basis,
    knots_at_quantiles,
    piecewise_polynomials,
    placement_times,
)
from sstorch.nn.hazards.parametric import RateFamily, normal_quantile, normal_survival, normal_terms


def aranda_ordaz_link(eta: Tensor, log_theta: Tensor) -> tuple[Tensor, Tensor]:
    """H = log(1 + theta exp(eta)) / theta: odds at theta = 1, hazards as theta -> 0.

    References:
        Aranda-Ordaz (1981), Biometrika 68, 357-363.
    """
    z = eta + log_theta
    # Where theta exp(eta) is below rounding error the logarithm is its argument.
    small = z < -40
    hazard = torch.where(small, saturating_exp(eta), softplus(z) * torch.exp(-log_theta))
    # eta - softplus(z), also where eta is infinite.
    return hazard, log_sigmoid_pair(z)[0] - log_theta


Scale = Literal["hazard", "odds", "normal", "theta"]
_NAMES = {"hazard": "spline_ph", "odds": "spline_po", "normal": "spline_probit", "theta": "spline"}


class Spline(RateFamily):
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
        self.closed_form, self.overflows = monotone and scale in ("hazard", "odds"), scale != "odds"
        if self.closed_form and type(self) is Spline:
            self.kernel = self.name
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
    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        return self._link(linear + self._curve(log_time, shape), shape)[0]

    def survival(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.survival`: of odds sigmoid(-eta), of normal scores Phi(-eta)."""
        if self.scale not in ("odds", "normal"):
            return super().survival(log_time, linear, shape)
        eta = linear + self._curve(log_time, shape)
        return torch.sigmoid(-eta) if self.scale == "odds" else normal_survival(eta)

    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`HazardFamily.terms`: log h = log s'(y) - y + log dH/deta.

        It is -inf if an unconstrained curve does not fall.
        """
        curve, slope = self._spline(log_time, shape)
        hazard, log_derivative = self._link(linear + curve, shape)
        if self.monotone:
            return hazard, slope.clamp(min=torch.finfo(slope.dtype).tiny).log() - log_time + log_derivative
        falls = slope > 0
        log_slope = torch.where(falls, slope, 1.0).log()
        return hazard, torch.where(falls, log_slope - log_time + log_derivative, -torch.inf)

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
        curve, slope = self._spline(log_time, shape)
        hazard, log_derivative = self._link(linear + curve, shape)
        falls = slope > 0
        log_hazard = torch.where(falls, slope, 1.0).log() - log_time + log_derivative
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
    def kernel_columns(self, log_time: Tensor) -> Tensor:
        curves, slopes = evaluate_basis(self.table, self.ends, log_time, len(self.batch_shape))
        return torch.stack([log_time, *curves, *slopes], dim=-2)

    def loss_and_gradient(
        self, log_time: Tensor, event: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None = None
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """See :meth:`HazardFamily.loss_and_gradient`.

        The loss is H(eta) - c (log dH/deta + log s' - y), where the first two are exp(eta) - c eta on the
        scale of hazards and (1 + c) softplus(eta) - c eta on that of odds.
        """
        if not self.closed_form:
            return super().loss_and_gradient(log_time, event, linear, shape, basis)
        curves, slopes, weights, eta, slope = self._at_rows(log_time, linear, shape, basis)
        if self.scale == "hazard":
            rise = torch.exp(eta)
            loss = rise.clone()
        else:
            rise, loss = sigmoid_and_softplus(eta)
            rise.mul_(1 + event)
            loss.mul_(1 + event)
        loss.addcmul_(event, slope.log().add_(eta).sub_(log_time), value=-1)
        rise.sub_(event)
        share = event / slope
        parts = tuple(
            (rise * curves[:, None, j]).addcmul_(share, slopes[:, None, j], value=-1).mul_(weights[..., j])
            for j in range(self.n_internal + 1)
        )
        return loss, rise, parts

    @property
    @override
    def has_second_derivatives(self) -> bool:
        return self.closed_form

    @override
    def second_derivatives(
        self, log_time: Tensor, event: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None = None
    ) -> dict[tuple[int, int], Tensor]:
        if not self.closed_form:
            return super().second_derivatives(log_time, event, linear, shape, basis)
        curves, slopes, weights, eta, slope = self._at_rows(log_time, linear, shape, basis)
        rise = torch.exp(eta) if self.scale == "hazard" else torch.sigmoid(eta)
        bend = rise if self.scale == "hazard" else (1 - rise) * rise * (1 + event)
        rise = (rise if self.scale == "hazard" else rise * (1 + event)) - event
        # Derivatives of eta, and of log s', in each shape.
        of_eta = [weights[..., j] * curves[:, None, j] for j in range(weights.shape[-1])]
        of_log = [weights[..., j] * slopes[:, None, j] / slope for j in range(weights.shape[-1])]
        found = {(0, 0): bend}
        for j, (own, log_own) in enumerate(zip(of_eta, of_log, strict=True)):
            found[0, j + 1] = bend * own
            log_event = event * log_own
            for k in range(j, len(of_eta)):
                found[j + 1, k + 1] = (found[0, j + 1] * of_eta[k]).addcmul_(log_event, of_log[k])
            found[j + 1, j + 1].addcmul_(rise, own).sub_(log_event)
        return found

    def _at_rows(
        self, log_time: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """I_j and N_j (K, m + 1, M), their weights, eta and s', without a graph."""
        basis = self.basis(log_time.squeeze(-2)) if basis is None else basis
        assert basis is not None  # a family with closed forms has one
        curves, slopes = basis.chunk(2, dim=-2)
        weights = torch.exp(shape.detach())
        eta = _combined(weights, curves).add_(linear.detach())
        slope = _combined(weights, slopes).clamp_(min=torch.finfo(eta.dtype).tiny)
        return curves, slopes, weights, eta, slope

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
        if self.scale == "hazard" or self.theta == 0:
            return cumulative_hazard.log()
        if self.scale == "normal":
            return normal_quantile(cumulative_hazard)
        log_theta = math.log(self.theta or 1.0)
        return log_expm1(cumulative_hazard * math.exp(log_theta)) - log_theta

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

    def _curve(self, log_time: Tensor, shape: Tensor) -> Tensor:
        """The spline s alone."""
        curves, _ = evaluate_basis(self.table, self.ends, log_time, len(self.batch_shape))
        return _weighted(self._weights(shape), curves)

    def _weights(self, shape: Tensor) -> Tensor:
        weights = shape[..., : self.n_internal + 1]
        return saturating_exp(weights) if self.monotone else weights

    def _link(self, eta: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        """H and the log of its derivative in eta."""
        if self.scale == "hazard" or self.theta == 0:
            return saturating_exp(eta), eta
        if self.scale == "odds":
            log_event, log_survival = log_sigmoid_pair(eta)
            return -log_survival, log_event
        if self.scale == "normal":
            return normal_terms(eta)
        log_theta = shape[..., -1] if self.theta is None else eta.new_tensor(math.log(self.theta))
        return aranda_ordaz_link(eta, log_theta)

    def _corners(self, like: Tensor) -> Tensor:
        return self._spread((self.table[..., 0, 0], *self.ends.unbind(-1)), like)

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
