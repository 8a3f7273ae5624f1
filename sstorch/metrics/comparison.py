"""Comparison of two models: on the same test rows by a bootstrap, and across folds by a t test."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

from sstorch._types import IntArray
from sstorch.checks import check_integer, check_share, check_vector
from sstorch.data import Surv
from sstorch.data.subjects import parse_subjects
from sstorch.exceptions import DataError
from sstorch.metrics.outcome import Observed


@dataclass(frozen=True)
class PairedComparison:
    """Difference of a metric between two models, first minus second.

    Attributes:
        difference: difference on the original rows.
        lower: lower end of the bootstrap interval.
        upper: the other end.
        p_value: two-sided, of no difference.
        n_undefined: number of excluded resamples, in which the metric is not defined.
    """

    difference: float
    lower: float
    upper: float
    p_value: float
    n_undefined: int


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


def possible(limit: float, ideal: float | None, higher_is_better: bool | None) -> float:
    """A confidence limit of a score that is not better than perfect predictions; those of t-tests can be."""
    if ideal is None or higher_is_better is None:
        return limit
    return float((np.minimum if higher_is_better else np.maximum)(limit, ideal))


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


def bootstrap_difference(
    difference: Callable[[IntArray], float],
    n: int,
    n_resamples: int,
    level: float,
    random_state: int,
    subject: IntArray | None = None,
) -> PairedComparison:
    """Bootstrap a difference that is a function of row numbers, repetitions allowed.

    Each resample draws n rows with replacement, or with `subject`, 0 .. n_subjects - 1, shape (n,), subjects.
    The interval is that of the percentiles; the p-value doubles the smaller share of resamples on either side
    of 0, one added to both counts. Resamples where the difference raises a `DataError` or is not finite are
    excluded and counted; most of them must remain.

    References:
        Davison and Hinkley (1997), Bootstrap Methods and their Application, chapters 4 and 5.
    """
    check_share(level, "level")
    check_integer("n_resamples", n_resamples, 20)
    value = difference(np.arange(n))
    if not np.isfinite(value):
        raise DataError(
            f"metric must have a finite difference on the rows, got {value:g}: it is "
            "infinite or NaN for one of the models."
        )
    rng, draw = np.random.default_rng(random_state), resampler(n, subject)
    drawn: list[float] = []
    why, cause = "", None
    for _ in range(n_resamples):
        try:
            one = difference(draw(rng))
        except DataError as error:  # counted and reported: a resample may hold no comparable pair
            why, cause = str(error), error
            continue
        if np.isfinite(one):
            drawn.append(one)
        else:
            why, cause = f"the difference is {one:g}", None
    n_undefined = n_resamples - len(drawn)
    if n_undefined > n_resamples // 2:
        raise DataError(
            f"{n_undefined} of {n_resamples} resamples leave the metric undefined, so that no interval can "
            f"be given; the last: {why}"
        ) from cause
    sample = np.array(drawn)
    tail = 0.5 - 0.5 * level
    lower, upper = np.quantile(sample, [tail, 1.0 - tail])
    smaller = min(np.count_nonzero(sample <= 0.0), np.count_nonzero(sample >= 0.0))
    p_value = min(1.0, 2.0 * float(smaller + 1) / (sample.size + 1))
    return PairedComparison(value, float(lower), float(upper), p_value, n_undefined)


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


def subjects_of(y: Surv | Observed) -> IntArray | None:
    """Subject of each row, 0 .. n_subjects - 1, (n,); None if rows are subjects."""
    return None if y.id is None else parse_subjects(y.id, len(y.id))[0]
