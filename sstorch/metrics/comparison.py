"""Comparison of two models across folds by a t test, and resamples of subjects."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_integer, check_share, check_vector
from sstorch.data import Surv
from sstorch.data.subjects import parse_subjects
from sstorch.exceptions import DataError
from sstorch.metrics.outcome import Observed


@dataclass(frozen=True)
class ResampledTTest:
    """Result of `corrected_resampled_t_test`, differences first minus second.

    Attributes:
        difference: mean over the folds.
        lower: lower end of the confidence interval.
        upper: the other end.
        statistic: Student's t with the corrected variance.
        degrees_of_freedom: number of folds minus one.
        p_value: two-sided, of no difference.
    """

    difference: float
    lower: float
    upper: float
    statistic: float
    degrees_of_freedom: int
    p_value: float


def corrected_resampled_t_test(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    n_train: int,
    n_test: int,
    level: float = 0.95,
) -> ResampledTTest:
    """Compare two models by their scores on the same folds or random splits.

    Training sets overlap: scores are correlated, and the usual t test is anti-conservative. Its variance s^2
    / k is replaced by s^2 (1 / k + n_test / n_train).

    Args:
        first: scores of the first model, one per split, shape (k,).
        second: scores of the second model on the same splits, shape (k,).
        n_train: number of rows in a training set.
        n_test: number of rows in a test set.
        level: level of the interval, in (0, 1).

    Returns:
        Mean difference, interval, t, degrees of freedom and p-value. If all differences are equal and not 0,
        as for rounded scores on few splits, the variance cannot be estimated: interval, t and p are NaN. If
        all are 0, p is 1.

    Raises:
        DataError: scores that are not finite, lengths that differ, or fewer than two splits.
        ConfigError: no rows, or a level out of range.

    References:
        Nadeau and Bengio (2003), Machine Learning 52, 239-281.

    Examples:
        >>> test = corrected_resampled_t_test([0.70, 0.72, 0.69], [0.68, 0.69, 0.68], n_train=200, n_test=100)
        >>> round(test.difference, 3), round(test.p_value, 4)
        (0.02, 0.1598)
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
    half = float(student.ppf(0.5 + 0.5 * level, k - 1)) * error
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
    """Values of a statistic of row numbers, a number or (k,), in resamples of rows, (n_resamples, k).

    With `subject`, 0 .. n_subjects - 1, (n,), resamples are of subjects. Values are NaN where the statistic
    a `DataError`, as without a comparable pair, or is not finite.
    """
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
    p_value: (
        float  # of a statistic of 0: twice the smaller share on either side of it, one added to both counts
    )
    n_undefined: int
    reason: str


def percentiles(drawn: FloatArray, level: float) -> Percentiles:
    """Percentile limits and p-value from values in resamples, (n_resamples,), NaN where not defined.

    References:
        Davison and Hinkley (1997), Bootstrap Methods and their Application, chapters 4 and 5.
    """
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


def subjects_of(y: Surv | Observed) -> IntArray | None:
    """Subject of each row, 0 .. n_subjects - 1, (n,); None if rows are subjects."""
    return None if y.id is None else parse_subjects(y.id, len(y.id))[0]
