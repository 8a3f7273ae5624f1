"""Comparison of two models across folds by a t test, and resamples of subjects."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_integer, check_share, check_vector
from sstorch.exceptions import DataError
from sstorch.metrics.checks import half_width


class ResampledTTest(NamedTuple):
    """Result of `corrected_resampled_t_test`, differences first minus second."""

    difference: float  # mean over the folds
    lower: float
    upper: float
    statistic: float  # Student's t with the corrected variance
    degrees_of_freedom: int
    p_value: float  # two-sided, of no difference


def corrected_resampled_t_test(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    n_train: int,
    n_test: int,
    level: float = 0.95,
) -> ResampledTTest:
    """Compare two models by their scores, (k,) each, on the same k folds or random splits.

    Training sets of `n_train` rows overlap: the variance s^2 / k of the t test is replaced by that of Nadeau
    and Bengio (2003), Machine Learning 52, 239-281, s^2 (1 / k + n_test / n_train). If all differences are
    equal and not 0, interval, t and p are NaN; if all are 0, p is 1.
    """
    one = check_vector(first, "first")
    two = check_vector(second, "second", one.size)
    if not (np.isfinite(one).all() and np.isfinite(two).all()):
        raise DataError("first, second must be finite scores, got an infinite one.")
    if one.size < 2:
        raise DataError(f"first must have the scores of at least two splits, got {one.size}.")
    for name, count in (("n_train", n_train), ("n_test", n_test)):
        check_integer(name, count, 1)
    check_share(level, "level")
    difference = one - two
    mean, k = float(difference.mean()), difference.size
    error = float(np.sqrt(difference.var(ddof=1) * (1.0 / k + n_test / n_train)))
    if error <= 1e-15 * float(np.abs([one, two]).max()):
        if mean == 0.0:
            return ResampledTTest(0.0, 0.0, 0.0, 0.0, k - 1, 1.0)
        return ResampledTTest(mean, np.nan, np.nan, np.nan, k - 1, np.nan)
    half = half_width(level, k - 1) * error
    p_value = 2.0 * float(student.sf(abs(mean) / error, k - 1))
    return ResampledTTest(mean, mean - half, mean + half, mean / error, k - 1, p_value)


def resampler(n: int, subject: IntArray | None = None) -> Callable[[np.random.Generator], IntArray]:
    """A function that draws n rows with replacement, or all rows of as many subjects as there are."""
    if subject is None:
        return lambda rng: rng.integers(0, n, n)
    order = np.argsort(subject, kind="stable")
    ends = np.append(0, np.cumsum(np.bincount(subject)))

    def draw(rng: np.random.Generator) -> IntArray:
        drawn = rng.integers(0, ends.size - 1, ends.size - 1)
        return np.concatenate([order[ends[one] : ends[one + 1]] for one in drawn])

    return draw


def bootstrap(
    statistic: Callable[[IntArray], npt.ArrayLike],
    n: int,
    n_resamples: int,
    random_state: int,
    subject: IntArray | None = None,
) -> FloatArray:
    """Values of a statistic of row numbers, (k,), in resamples of rows or subjects (n,), (n_resamples, k)."""
    # NaN where the statistic raises a `DataError` or is infinite.
    rng, draw = np.random.default_rng(random_state), resampler(n, subject)
    drawn = []
    for _ in range(n_resamples):
        try:
            drawn.append(np.atleast_1d(np.asarray(statistic(draw(rng)), dtype=np.float64)))
        except DataError:  # counted by `percentiles`
            drawn.append(np.array([np.nan]))
    values = np.array(np.broadcast_arrays(*drawn)) if drawn else np.empty((0, 1))
    return np.where(np.isfinite(values), values, np.nan)


class Percentiles(NamedTuple):
    """Limits of a statistic by its values in resamples, NaN with a reason if most are not defined."""

    lower: float
    upper: float
    # Of a statistic of 0: twice the smaller share on either side of it, one added to both counts
    p_value: float
    n_undefined: int
    reason: str


def percentiles(drawn: FloatArray, level: float) -> Percentiles:
    """Percentile limits and p-value from values in resamples, (n_resamples,), NaN where not defined."""
    # Davison and Hinkley (1997), Bootstrap Methods and their Application, chapters 4 and 5.
    known = drawn[~np.isnan(drawn)]
    n_undefined = drawn.size - known.size
    if not known.size or n_undefined > drawn.size - drawn.size // 2:
        reason = f"no limits: not defined in {n_undefined} of {drawn.size} resamples" if drawn.size else ""
        return Percentiles(np.nan, np.nan, np.nan, n_undefined, reason)
    tail = 0.5 - 0.5 * level
    lower, upper = map(float, np.quantile(known, [tail, 1.0 - tail]))
    smaller = min(np.count_nonzero(known <= 0.0), np.count_nonzero(known >= 0.0))
    p_value = min(1.0, 2.0 * float(smaller + 1) / (known.size + 1))
    return Percentiles(lower, upper, p_value, n_undefined, "")
