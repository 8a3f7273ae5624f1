"""Royston-Parmar spline leaves and their scales.

The derivative of a natural cubic spline in log time is a quadratic spline that is constant beyond the
boundary knots, with derivative zero there. Quadratic B-splines, the first two and the last two joined, span
exactly these: m internal knots give m + 1 functions N_j >= 0 that sum to one. Their antiderivatives I_j and a
constant span the natural cubic splines of Royston and Parmar.

References:
    Royston and Parmar (2002), Statistics in Medicine 21, 2175-2197; Ramsay (1988), Statistical Science 3,
    425-441.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from scipy.interpolate import BSpline, PPoly
from torch import Tensor
from typing_extensions import override

from sstorch._types import FloatArray
from sstorch.checks import check_choice
from sstorch.exceptions import warn
from sstorch.nn.functional import saturating_exp
from sstorch.nn.hazards.base import Ancillary
from sstorch.nn.hazards.links import EXPONENTIAL, LOGISTIC, NORMAL, Index, Link, LinkFamily, aranda_ordaz
from sstorch.nn.hazards.numeric import check_placement, placed

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
    >= 0 of this module, constant beyond the boundary knots, so that survival curves
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

    of_rate, corner_name = True, "knots"
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
    def index(self, log_time: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None = None) -> Index:
        # The basis is (K, q, M), times are (K, 1, M).
        functions = self._functions(log_time) if basis is None else basis[:, None].unbind(2)
        factors = self._factors(shape)
        parts = [factor * each for factor, each in zip(factors * 2, functions, strict=True)]
        curves, slopes = parts[: len(factors)], parts[len(factors) :]
        slope = sum(slopes[1:], slopes[0]).clamp(min=torch.finfo(linear.dtype).tiny)
        one = torch.ones_like(linear)
        return Index(sum(curves, linear), slope.log(), one, curves, slope, slopes)

    @override
    def eta(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        pairs = zip(self._factors(shape), self._functions(log_time), strict=False)
        return sum((factor * curve for factor, curve in pairs), linear)

    @override
    def basis(self, log_time: Tensor) -> Tensor:
        """The functions I_j, then N_j, of log times (K, M), shape (K, 2 m + 2, M)."""
        return torch.stack(self._functions(log_time), dim=-2)

    @override
    def corners(self) -> Tensor:
        return torch.cat([self.table[..., :1, 0], self.ends], dim=-1)

    @override
    def options(self) -> dict[str, Any]:
        return {name: value for name, value in super().options().items() if name != "scale"}

    @override
    def extra_repr(self) -> str:
        return f"{self.scale!r}, {super().extra_repr()}"

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

    def _functions(self, log_time: Tensor) -> list[Tensor]:
        """The functions I_j, then N_j, at log times (*batch_shape, ...), each of that shape."""
        n_batch = len(self.batch_shape)
        y = log_time.reshape(*log_time.shape[:n_batch], math.prod(log_time.shape[n_batch:]))
        first, last = self.table[..., :1, 0], self.ends[..., -1:]
        clamped = torch.minimum(torch.maximum(y, first), last)
        # The interval of y is the number of right ends below it; the last one is never passed.
        interval = (clamped[..., None] > self.ends[..., None, :-1]).sum(-1)
        rows = self.table.gather(-2, interval[..., None].expand(*interval.shape, self.table.shape[-1]))
        rows = rows.movedim(-1, 0).contiguous()
        u, beyond = clamped - rows[0], y - clamped
        c0, c1, c2, c3 = rows[1:].unflatten(0, (-1, 4)).unbind(1)
        slopes = (3 * c3 * u + 2 * c2) * u + c1
        curves = ((c3 * u + c2) * u + c1) * u + c0 + slopes * beyond
        of_rows = (len(curves), *log_time.shape)
        return [*curves.reshape(of_rows), *slopes.reshape(of_rows)]

    def _factors(self, shape: Tensor) -> tuple[Tensor, ...]:
        return saturating_exp(shape[..., : self.n_internal + 1]).unbind(-1)

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


def knots_at_quantiles(log_event_times: FloatArray, n_internal: int) -> FloatArray:
    """Boundary knots at the extreme event log times, internal ones at equally spaced percentiles."""
    # Royston and Parmar's, 33 and 67 for two, else 100 j / (m + 1); fewer where they coincide.
    even = np.linspace(0, 100, n_internal + 2)
    knots = np.unique(np.percentile(log_event_times, [0, 33, 67, 100] if n_internal == 2 else even))
    # Knots that only rounding separates would divide by it.
    distinct = np.r_[True, np.diff(knots) > 1e-4 * max(1.0, knots[-1] - knots[0])]
    return knots[distinct] if distinct.sum() > 1 else knots[:1] + np.array([-0.5, 0.5])


def piecewise_polynomials(knots: FloatArray, n_internal: int) -> FloatArray:
    """Coefficients of I_1 ... I_{m+1} between distinct knots, I_j(0) = 0; zero for those without knots."""
    # (m + 1 intervals, 1 + 4 (m + 1)): the left end of the interval, then for each function the coefficients
    # of 1, u, u^2 and u^3 in u = y - left end. Intervals beyond the last knot repeat the last.
    n_inside = len(knots) - 2
    table = np.zeros((n_internal + 1, 1 + 4 * (n_internal + 1)))
    padded = np.r_[[knots[0]] * 2, knots, [knots[-1]] * 2]
    for j in range(n_inside + 1):
        weights = np.zeros(n_inside + 3)
        weights[j + 1] = 1.0
        # The first two functions are joined, and so are the last two.
        weights[0], weights[-1] = float(j == 0), float(j == n_inside)
        slope = PPoly.from_spline(BSpline(padded, weights, 2))
        curve = slope.antiderivative()
        real = np.flatnonzero(np.diff(curve.x) > 0)
        inside = np.clip(0.0, knots[0], knots[-1])
        at_zero = float(curve(inside) + slope(inside) * (0.0 - inside))
        table[: n_inside + 1, 0] = curve.x[real]
        table[: n_inside + 1, 1 + 4 * j : 5 + 4 * j] = curve.c[::-1, real].T
        table[: n_inside + 1, 1 + 4 * j] -= at_zero
    table[n_inside + 1 :] = table[n_inside]
    return table
