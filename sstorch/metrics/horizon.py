"""Outcomes and predictions at one horizon, which measures with confidence limits are functions of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_horizon
from sstorch.data import Surv
from sstorch.data.subjects import parse_subjects
from sstorch.data.target import time_of_rows
from sstorch.exceptions import DataError
from sstorch.metrics.checks import check_observed_horizon, check_probability
from sstorch.metrics.incidence import incidence_and_influence
from sstorch.metrics.outcome import Observed, Outcome, read_scored
from sstorch.metrics.weights import by_subject, covariance_of
from sstorch.newton import Gaussian, Smooth, newton

# Gain of the last step of a regression, of a weighted mean of squares; and of its coefficients.
_TOLERANCE, _PRECISION = 1e-20, 1e-8
# Of coefficients: a factor of e^30 of the hazard.
_FURTHEST = 30.0


@dataclass(frozen=True, eq=False)
class HorizonRows:
    """Outcomes and predictions of n rows at one horizon; rows of weight 0 are excluded.

    Attributes:
        y: outcome of the rows, of K causes; `weight` is None if all weights are equal, `id` is the number
            of the subject, 0 .. n_subjects - 1.
        survival: predicted probability that the event of interest has not happened by the horizon, (n,).
        t: the horizon, in the unit of `y`.
        cause: number of the cause of interest.
        expected: predicted cumulative hazard of each row during follow-up, up to the horizon, shape (n,);
            None if unknown.
    """

    y: Observed
    survival: FloatArray
    t: float
    cause: int = 1
    expected: FloatArray | None = None

    @classmethod
    def of(
        cls,
        y: Outcome,
        survival: npt.ArrayLike,
        t: float,
        *,
        sample_weight: npt.ArrayLike | None = None,
        cause: int | str | None = None,
        expected: FloatArray | None = None,
    ) -> Self:
        """Create rows from outcomes, predictions, weights and horizon, with checks.

        Args:
            y: a :class:`~sstorch.Surv`, or (time, event), n rows; (time, cause) if a cause is given.
            survival: predicted S_i(t), one probability per row, shape (n,); with competing causes one minus
                the cumulative incidence of the cause.
            t: the horizon, in the unit of `y`.
            sample_weight: weights of the rows, shape (n,); None for those of `y`.
            cause: number or name of the cause of interest, for competing causes; None for the first.
            expected: as in the class, shape (n,).

        Raises:
            DataError: invalid arguments (see `sstorch.checks`), interval-censored times, or a time outside
                the observed ones.
            ConfigError: t not > 0, or an unknown cause.
        """
        what, causes = "a measure at one horizon", isinstance(y, Surv) and y.causes is not None
        asked = 1 if cause is None and causes else cause
        rows, which = read_scored(
            y,
            what,
            asked,
            entry=True,
            weight=True,
            sample_weight=sample_weight,
            survival=survival,
            expected=expected,
        )
        n = rows.time.size
        horizon = time_of_rows(check_horizon(t, "t"), rows.time)
        predicted = check_probability(survival, "survival", n)
        if rows.id is not None:
            rows = rows._replace(id=parse_subjects(rows.id, n)[0])
        found = cls(rows, predicted, horizon, which, expected)
        if rows.weight is not None:
            found = found.take(np.flatnonzero(rows.weight > 0.0))
            if np.ptp(found.weights) == 0.0:
                found = replace(found, y=found.y._replace(weight=None))
        check_observed_horizon(horizon, found.time, "t")
        return found

    def __len__(self) -> int:
        return int(self.time.size)

    def take(self, rows: IntArray) -> Self:
        """Some rows, repetitions allowed."""
        expected = None if self.expected is None else self.expected[rows]
        return replace(self, y=self.y.take(rows), survival=self.survival[rows], expected=expected)

    @property
    def time(self) -> FloatArray:
        """Observed times, (n,)."""
        return self.y.time

    @property
    def event(self) -> BoolArray:
        """True for an observed event of any cause, (n,)."""
        return self.y.event

    @property
    def interest(self) -> BoolArray:
        """True for an observed event of interest, (n,)."""
        return self.y.event if self.y.n_causes == 1 else self.y.cause == self.cause

    @property
    def entry(self) -> FloatArray | None:
        """As in `Observed`, (n,); None without left truncation."""
        return self.y.entry

    @property
    def weight(self) -> FloatArray | None:
        """Weights, (n,); None if all are equal."""
        return self.y.weight

    @property
    def subject(self) -> IntArray | None:
        """Subject of each row, 0 .. n_subjects - 1, (n,); None if each row is a subject."""
        return self.y.id

    @property
    def competing(self) -> bool:
        """True with competing causes."""
        return self.y.n_causes > 1

    @property
    def weights(self) -> FloatArray:
        """Weights, (n,); 1 if all are equal."""
        return self.y.weights

    @property
    def robust(self) -> bool:
        """True if standard errors use influences: unequal weights."""
        return self.weight is not None

    def up_to_horizon(self) -> Self:
        """Rows with follow-up censored at the horizon, without entries at the horizon or later."""
        rows = self
        if self.entry is not None and (late := self.entry >= self.t).any():
            rows = self.take(np.flatnonzero(~late))
        cause = np.where(rows.time <= self.t, rows.y.cause, False if rows.y.cause.dtype == np.bool_ else 0)
        return replace(rows, y=rows.y._replace(time=np.minimum(rows.time, self.t), cause=cause))

    def check_events(self) -> None:
        """Check that there is an event of interest by the horizon."""
        if not (self.interest & (self.time <= self.t)).any():
            raise DataError(f"event: no row has an event up to {self.t:g}; choose a later time.")

    def check_from_zero(self, measure: str) -> None:
        """Check that all rows were observed from time zero."""
        if self.entry is not None:
            raise DataError(
                f"{measure} needs rows that are observed from time zero, and some entered later (left "
                "truncation): use the rows at risk at a time, from there (after)."
            )

    @property
    def n_subjects(self) -> int:
        """Number of subjects; number of rows without `subject`."""
        return len(self) if self.subject is None else int(np.unique(self.subject).size)

    def error_of(self, influence: FloatArray) -> float | FloatArray:
        """Robust standard error of estimates from weighted influences of rows, (n,) or (n, k).

        The square root of the sum over subjects of squared sums over their rows.
        """
        influence = by_subject(influence, self.subject)
        error = np.sqrt((influence**2).sum(axis=0))
        return float(error) if influence.ndim == 1 else error


def incidence_of(rows: HorizonRows) -> tuple[float, FloatArray]:
    """Cumulative incidence of the event of interest at the horizon, and its derivatives by the weights, (n,).

    The estimate of Aalen and Johansen; without competing causes one minus that of Kaplan and Meier. Times the
    weights, the derivatives are influences: the root of their sum of squares is the error of the estimate.

    References:
        Aalen and Johansen (1978), Scandinavian Journal of Statistics 5, 141-150; Jaeckel (1972), "The
        infinitesimal jackknife", Bell Laboratories memorandum MM 72-1215-11.
    """
    incidence, moved = incidence_and_influence(rows.y, rows.t)
    return float(incidence[rows.cause - 1]), moved[rows.cause - 1]


def pseudo_values(rows: HorizonRows) -> FloatArray:
    """Pseudo-values of the incidence at the horizon by the infinitesimal jackknife, (n,).

    The incidence plus the total weight times its derivative by the weight of the row, as R's
    ``survival::pseudo`` has it. Their weighted mean is the incidence, and their scale that of the incidence.

    References:
        Parner, Andersen and Overgaard (2023), Lifetime Data Analysis 29, 654-671.
    """
    value, moved = incidence_of(rows)
    pseudo: FloatArray = value + rows.weights.sum() * moved
    return pseudo


def fit_cloglog(
    rows: HorizonRows,
    outcome: FloatArray,
    x: FloatArray,
    start: FloatArray,
    offset: FloatArray | float = 0.0,
) -> FloatArray:
    """Fit F = 1 - exp(-exp(x b + offset)) to pseudo-values Y (n,) by weighted least squares; x is (n, p).

    The estimating equations of independence with a constant variance, sum_i w_i dF_i/db (Y_i - F_i) = 0, as
    ``geese(mean.link = "cloglog", jack = TRUE)`` of R solves them.

    Returns:
        The coefficients, (p,).

    Raises:
        DataError: no finite minimum.

    References:
        Klein and Andersen (2005), Biometrics 61, 223-229.
    """
    weight = rows.weights / rows.weights.sum()
    parts = (x, outcome, weight, np.broadcast_to(offset, outcome.shape).copy())
    covariates, target, share, fixed = (torch.as_tensor(each) for each in parts)

    def loss(beta: Tensor) -> Tensor:
        place = (beta @ covariates.mT + fixed).clamp(-_FURTHEST, _FURTHEST)
        return (target + torch.expm1(-place.exp())).square() @ share / 2

    theta = torch.as_tensor(start, dtype=torch.float64)[None]
    found = newton(Smooth(loss), Gaussian.flat(theta), theta, _TOLERANCE)
    system = found.hessian.factored(torch.zeros_like(theta))
    left = system.solve(found.gradient[..., None]).abs().max()
    beta: FloatArray = found.theta[0].numpy()
    bread = _bread(weight, x, x @ beta + offset)[0]
    is_regular = np.linalg.cond(bread) < 1 / np.finfo(np.float64).eps
    is_near = np.abs(x @ beta + offset).max() <= _FURTHEST
    if is_regular and is_near and left <= _PRECISION * (1 + np.abs(beta).max()):
        return beta
    raise DataError(
        f"a regression on the predictions of {len(rows)} rows has no finite minimum: all predictions are "
        "equal, they order the events perfectly, or there are too few events."
    )


def cloglog_covariance(
    rows: HorizonRows,
    outcome: FloatArray,
    x: FloatArray,
    beta: FloatArray,
    offset: FloatArray | float = 0.0,
) -> FloatArray:
    """Sandwich covariance over subjects, (p, p), of the coefficients of `fit_cloglog`, at some, (p,)."""
    weight = rows.weights / rows.weights.sum()
    place = x @ beta + offset
    bread, slope = _bread(weight, x, place)
    residual = outcome + np.expm1(-np.exp(place))
    return covariance_of((weight * residual)[:, None] * slope @ np.linalg.inv(bread), rows.subject)


def _bread(weight: FloatArray, x: FloatArray, place: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted products of the derivatives of F at places x b, (p, p), and these, (n, p)."""
    hazard = np.exp(np.minimum(place, 700.0))  # finite, with a derivative of 0
    slope = (hazard * np.exp(-hazard))[:, None] * x
    return slope.T @ (weight[:, None] * slope), slope
