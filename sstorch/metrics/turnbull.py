"""Survival of rows whose times are known up to an interval: Turnbull's nonparametric maximum likelihood."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.exceptions import DataError
from sstorch.metrics.outcome import Outcome, bounds_of

# The log-likelihood a row is within this of its maximum; of the other where weights are so uneven that steps
# of self-consistency hardly move.
_TOLERANCE, _ENOUGH = 1e-9, 1e-4
_MAX_STEPS = 5_000
_LEAST = 1e-200  # mass of an interval, which can grow again
# An extrapolation is at most so many times a step.
_LONGEST = 1e4


@dataclass(frozen=True)
class TurnbullCurve:
    """Turnbull's estimate: nonparametric maximum likelihood estimate of S from intervals (lower, upper].

    The mass is on innermost intervals, with bounds of rows as ends. The likelihood does not depend on the
    position of the mass within them; the curve is linear there. Mass without an upper end is after its left
    bound.

    Attributes:
        left: starts of the innermost intervals, (m,), increasing; equal to `right` at an exact time.
        right: ends of the innermost intervals, (m,), +inf for the last if rows are right-censored there.
        mass: probability of each interval, (m,), positive, sums to one.

    References:
        Turnbull (1976), Journal of the Royal Statistical Society B 38, 290-295. Peto (1973) for the maximum;
        Gentleman and Geyer (1994), Biometrika 81, 618-623, for its optimality condition.

    >>> from sstorch import Surv
    >>> curve = TurnbullCurve.fit(Surv.interval([0, 1, 3, 4], [2, 2, 4, np.inf]))
    >>> curve.at([1.0, 1.5, 2.0, 4.0]).round(6).tolist()
    [1.0, 0.75, 0.5, 0.25]
    """

    left: FloatArray
    right: FloatArray
    mass: FloatArray

    @classmethod
    def fit(cls, y: Outcome, *, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Estimate the curve of rows.

        Args:
            y: outcome of the rows, a `Surv.interval`; exact and right-censored times are also intervals.
            sample_weight: weights >= 0, shape (n,); None for the weights of `y`.

        Raises:
            DataError: bounds that are missing, negative or reversed; or the maximum is not reached.
        """
        low, high, weight = bounds_of(y, sample_weight)
        weight = np.ones(low.size) if weight is None else weight
        low, high, weight = low[weight > 0], high[weight > 0], weight[weight > 0]
        bounds, place = np.unique(np.stack([low, high], axis=1), axis=0, return_inverse=True)
        weight = np.bincount(place.reshape(-1), weight) / weight.sum()
        left, right = _innermost(bounds[:, 0], bounds[:, 1])
        # Innermost intervals within those of a row are consecutive; exact times begin where they end.
        exact = bounds[:, 0] == bounds[:, 1]
        first = np.searchsorted(left, bounds[:, 0], side="left")
        # A mass at an exact time is not after that time.
        first += (~exact) & (first < left.size) & _exact_at(left, right, first, bounds[:, 0])
        last = np.searchsorted(right, bounds[:, 1], side="right")
        mass = _maximise(first, last, weight, left.size)
        kept = mass > 0
        return cls(left[kept], right[kept], mass[kept] / mass[kept].sum())

    def at(self, times: npt.ArrayLike) -> FloatArray:
        """Evaluate S at times of any shape; S(+inf) is 0."""
        at = np.asarray(times, dtype=np.float64)
        passed = np.concatenate([[0.0], np.cumsum(self.mass)])
        number = np.searchsorted(self.right, at, side="right")
        inside = np.minimum(number, self.mass.size - 1)
        width = self.right[inside] - self.left[inside]
        with np.errstate(invalid="ignore", divide="ignore"):  # widths of zero and without end
            share = np.where(np.isfinite(width) & (width > 0), (at - self.left[inside]) / width, 0.0)
        partly = np.where(number < self.mass.size, self.mass[inside] * share.clip(0.0, 1.0), 0.0)
        return np.clip(1.0 - passed[number] - partly, 0.0, 1.0)

    @property
    def follow_up(self) -> float:
        """End of follow-up, after which the remaining mass has no upper end; +inf if there is none."""
        return float(self.left[-1]) if np.isinf(self.right[-1]) else float("inf")

    def quantile(self, q: float = 0.5) -> float:
        """First time at which S is at most 1 - q; +inf if not reached."""
        passed = np.cumsum(self.mass)
        number = int(np.searchsorted(passed, q - 1e-12))
        if number == self.mass.size or not np.isfinite(self.right[number]):
            return float("inf")
        share = (q - (passed[number] - self.mass[number])) / self.mass[number]
        return float(self.left[number] + np.clip(share, 0, 1) * (self.right[number] - self.left[number]))


def _innermost(lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Intervals that begin at a lower bound and end at an upper one with no bound between, increasing."""
    exact = lower == upper
    # At one time: an exact row begins, then intervals and exact rows end, then intervals begin.
    values = np.concatenate([lower[exact], upper, lower[~exact]])
    kinds = np.concatenate([np.zeros(exact.sum()), np.ones(upper.size), np.full((~exact).sum(), 2.0)])
    order = np.lexsort((kinds, values))
    values, begins = values[order], kinds[order] != 1
    pairs = np.flatnonzero(begins[:-1] & ~begins[1:])
    return values[pairs], values[pairs + 1]


def _exact_at(left: FloatArray, right: FloatArray, place: IntArray, value: FloatArray) -> BoolArray:
    at = np.minimum(place, left.size - 1)
    exact: BoolArray = (left[at] == value) & (right[at] == value)
    return exact


def _maximise(first: IntArray, last: IntArray, weight: FloatArray, count: int) -> FloatArray:
    """Masses (m,) of the largest log-likelihood, sum of weight x log of the mass from first up to last.

    Self-consistency, extrapolated (Varadhan and Roland 2008, SQUAREM). The gain that is left is at most the
    largest derivative in a mass less one, which ends it.
    """

    def derivative(mass: FloatArray) -> tuple[FloatArray, float]:
        total = np.concatenate([[0.0], np.cumsum(mass)])
        inside = np.maximum(total[last] - total[first], np.finfo(np.float64).tiny)
        change = np.bincount(first, weight / inside, count + 1) - np.bincount(
            last, weight / inside, count + 1
        )
        slope: FloatArray = np.cumsum(change)[:count].astype(np.float64)
        return slope, float(weight @ np.log(inside))

    mass = np.full(count, 1.0 / count)
    slope, _ = derivative(mass)
    for _ in range(_MAX_STEPS):
        if slope.max() - 1.0 <= _TOLERANCE:
            break
        once = mass * slope
        twice = once * derivative(once)[0]
        ahead, bend = once - mass, twice - 2 * once + mass
        step = np.linalg.norm(ahead)
        length = step / max(np.linalg.norm(bend), step / _LONGEST, np.finfo(np.float64).tiny)
        if length > 1:
            # A mass of zero would stay there: it falls to a tenth at most.
            far = np.maximum(mass + 2 * length * ahead + length**2 * bend, 0.1 * twice)
            far = far / far.sum()
            far *= derivative(far)[0]
            if derivative(far)[1] >= derivative(twice)[1]:
                twice = far
        mass = np.maximum(twice, _LEAST)
        mass /= mass.sum()
        slope, _ = derivative(mass)
    if slope.max() - 1.0 > _ENOUGH:
        raise DataError(
            f"Turnbull's estimate is not reached in {_MAX_STEPS} steps: {slope.max() - 1:g} left."
        )
    return np.where(mass < 1e-12, 0.0, mass)
