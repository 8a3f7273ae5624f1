"""Royston-Parmar spline leaves and their scales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from sstorch._types import FloatArray
from sstorch.checks import check_choice
from sstorch.exceptions import warn
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
_SCALES: dict[str, tuple[str, Link | None, str | None]] = {
    "hazard": ("spline_ph", EXPONENTIAL, "hazard ratio"),
    "odds": ("spline_po", LOGISTIC, "odds ratio"),
    "normal": ("spline_probit", NORMAL, None),
    "theta": ("spline", None, None),
}


class Spline(LinkFamily):
    """Natural cubic spline in log time on the scale of hazards, odds or normal scores, or in between.

    H = link(eta) with eta = g + s(y). The derivative of s is sum_j exp(shape_j) N_j(y) with the functions N_j
    >= 0 of :mod:`sstorch.nn.hazards.numeric`, constant beyond the boundary knots, so that survival curves
    cannot increase; s(y) = 0 at the unit of model time. Without internal knots ``scale="hazard"`` is the
    Weibull and ``scale="odds"`` the log-logistic distribution.

    Args:
        scale: ``"hazard"`` (proportional hazards), ``"odds"`` (proportional odds), ``"normal"`` (probit) or
            ``"theta"``, Aranda-Ordaz' family between the first two, with log theta as the last shape
            parameter.
        knots: number m of internal knots, put at percentiles of the log event times of the training rows with
            boundary knots at the extremes; or all knots, including boundaries, in original time units.
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
        ancillary: Ancillary = "constant",
    ) -> None:
        super().__init__(ancillary)
        check_choice(scale, "scale", get_args(Scale))
        self.scale, (self.name, _, self.ratio) = scale, _SCALES[scale]
        self.closed_form, self.overflows = scale != "theta", scale != "odds"
        self.knots = check_placement("knots", knots, 0, 2)
        self.n_internal = self.knots if isinstance(self.knots, int) else len(self.knots) - 2
        slopes = (f"log_slope_{j + 1}" for j in range(self.n_internal + 1))
        self.shape_names = (*slopes, "log_theta") if scale == "theta" else (*slopes,)
        # Until training rows give better ones: even in log time around the unit of model time.
        for name, value in self._tables([np.linspace(-2.0, 1.0, self.n_internal + 2)]).items():
            self.register_buffer(name, value[0])

    # ------------------------------------------------------------------ the distribution

    @override
    def link(self, shape: Tensor) -> Link:
        return _SCALES[self.scale][1] or aranda_ordaz(shape[..., -1])

    @override
    def index(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        curves, slopes = self._functions(log_time)
        weights = self._weights(shape)
        eta, slope = linear + _weighted(weights, curves), _weighted(weights, slopes)
        return eta, slope.clamp(min=torch.finfo(slope.dtype).tiny).log()

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
    def basis(self, log_time: Tensor) -> Tensor | None:
        if not self.closed_form:
            return None
        curves, slopes = self._functions(log_time)
        return torch.stack([*curves, *slopes], dim=-2)

    @override
    def corners(self) -> Tensor:
        return torch.cat([self.table[..., :1, 0], self.ends], dim=-1)

    @override
    def describe(self, time_scale: float) -> str:
        return f"knots at t = {times_text(self.corners().unique().exp(), time_scale)}"

    @override
    def options(self) -> dict[str, Any]:
        return {"knots": self.knots, **super().options()}

    @override
    def extra_repr(self) -> str:
        return f"{self.scale!r}, {super().extra_repr()}"

    def design(self, log_time: Tensor) -> Tensor:
        """The functions I_j at log times, (..., m + 1): eta = g + sum_j exp(shape_j) I_j(y)."""
        return torch.stack(self._functions(log_time)[0], dim=-1)

    # ------------------------------------------------------------------ starting values and knots

    @override
    def start(
        self, log_time: Tensor, event: Tensor, weight: Tensor, log_entry: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        if self.scale != "theta":
            return super().start(log_time, event, weight, log_entry)
        # Without covariates theta is poorly determined, and its gradient vanishes at 0: it starts at 1.
        odds = Spline("odds", self.knots).with_constants(self.constants(), self.batch_shape)
        intercept, shape = odds.start(log_time, event, weight, log_entry)
        return intercept, torch.cat([shape, torch.zeros_like(shape[:, :1])], dim=-1)

    def _functions(self, log_time: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        return evaluate_basis(self.table, self.ends, log_time, len(self.batch_shape))

    def _weights(self, shape: Tensor) -> Tensor:
        return saturating_exp(shape[..., : self.n_internal + 1])

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
