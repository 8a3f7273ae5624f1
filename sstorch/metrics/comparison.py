"""Comparison of two models: on the same test rows by a bootstrap, and across folds by a t test."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

from sstorch._types import IntArray
from sstorch.checks import (
    as_numbers,
    check_same_order,
    check_share,
    check_vector,
    is_number_of,
)
from sstorch.data import Surv
from sstorch.data.subjects import parse_subjects
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.outcome import Observed, Outcome, read_rows

# From the outcome and the predictions of some rows.
ArrayMetric = Callable[[Any, npt.NDArray[np.float64]], float]


@dataclass(frozen=True)
class PairedComparison:
    """The difference of a metric between two models, first minus second.

    Attributes:
        difference: on the rows themselves.
        lower: end of the bootstrap interval.
        upper: the other end.
        p_value: two-sided, of no difference.
        n_undefined: resamples left out because the metric is not defined for them.
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
        lower: end of the confidence interval.
        upper: the other end.
        statistic: Student's t with the corrected variance.
        degrees_of_freedom: folds less one.
        p_value: two-sided, of no difference.
    """

    difference: float
    lower: float
    upper: float
    statistic: float
    degrees_of_freedom: int
    p_value: float


def paired_bootstrap(
    metric: ArrayMetric,
    y: Outcome,
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    n_resamples: int = 1000,
    confidence: float = 0.95,
    random_state: int = 0,
) -> PairedComparison:
    """Bootstrap the difference of any metric between two predictions of the same test rows.

    Each resample draws rows with replacement, the same for both models; where `y` has an id, subjects. The
    interval is that of the percentiles; the p-value doubles the smaller share of resamples on either side of
    0, one added to both counts. The models and the training rows stay as they are: this is the uncertainty of
    the test rows only.

    Args:
        metric: from outcome and predictions of some rows, for instance
            ``lambda y, s: integrated_brier_score(y, s, times, train=train)``.
        y: outcome of the test rows, a `Surv` or the tuple (time, event), n of them.
        first: predictions of the first model, a row a test row, shape (n,) or (n, ...).
        second: predictions of the second model, of the same shape.
        n_resamples: number of resamples, at least 20.
        confidence: of the interval, in (0, 1).
        random_state: seed of the draws.

    Returns:
        Difference, interval, p-value and the number of resamples in which the metric was not defined.

    Raises:
        DataError: lengths differ, the metric is not defined for the rows or for most resamples, or its
            difference on the rows is not finite. Resamples where it is not finite count as undefined.
        ConfigError: too few resamples, or a confidence out of range.

    References:
        Davison and Hinkley (1997), Bootstrap Methods and their Application, chapters 4 and 5.

    Examples:
        >>> from sstorch.metrics import concordance_harrell_risk
        >>> y = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1, 1, 1, 1, 1, 0]
        >>> result = paired_bootstrap(
        ...     concordance_harrell_risk, y, first=[6, 5, 4, 3, 2, 1], second=[1, 2, 3, 4, 5, 6]
        ... )
        >>> result.difference, result.p_value < 0.01
        (1.0, True)
    """
    outcome = y if isinstance(y, Surv) else read_rows(y, "a bootstrap", first=first, second=second)
    if isinstance(outcome, Surv):
        check_same_order(y=outcome, first=first, second=second)
    n = len(outcome) if isinstance(outcome, Surv) else outcome.time.size
    predictions = []
    for name, values in (("first", first), ("second", second)):
        array = as_numbers(values, name)
        if array.shape[:1] != (n,):
            raise DataError(f"{name}: expected a prediction for each of {n} rows; got shape {array.shape}.")
        predictions.append(array)
    if predictions[0].shape != predictions[1].shape:
        raise DataError(
            f"second: expected the shape of first, {predictions[0].shape}; got {predictions[1].shape}."
        )

    def difference(rows: IntArray) -> float:
        some = outcome[rows] if isinstance(outcome, Surv) else outcome.take(rows)
        one, two = (float(metric(some, values[rows])) for values in predictions)
        return one - two

    return bootstrap_difference(difference, n, n_resamples, confidence, random_state, subjects_of(outcome))


def corrected_resampled_t_test(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    n_train: int,
    n_test: int,
    confidence: float = 0.95,
) -> ResampledTTest:
    """Compare two models by their scores on the same folds or random splits.

    Training sets overlap, so the scores are correlated and the plain t test is far too sure of itself. Its
    variance s^2 / k is replaced by s^2 (1 / k + n_test / n_train).

    Args:
        first: scores of the first model, one per split, shape (k,).
        second: scores of the second model on the same splits, shape (k,).
        n_train: rows of a training set.
        n_test: rows of a test set.
        confidence: of the interval, in (0, 1).

    Returns:
        Mean difference, interval, t, degrees of freedom and p-value. Where all differences are equal and not
        0, such as those of rounded scores on few splits, no variance can be estimated: interval, t and p are
        NaN. Where all are 0, p is 1.

    Raises:
        DataError: scores that are not finite, lengths that differ, or fewer than two splits.
        ConfigError: no rows, or a confidence out of range.

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
        raise DataError("first, second: expected finite scores; got an infinite one.")
    if one.size < 2:
        raise DataError(f"first: expected the scores of at least two splits; got {one.size}.")
    counts = (n_train, n_test)
    if not all(is_number_of(n, Integral) and n >= 1 for n in counts):
        raise ConfigError(
            f"n_train, n_test: expected numbers of rows, integers >= 1; got {n_train!r} and {n_test!r}."
        )
    check_share(confidence, "confidence", "a number in (0, 1)", closed=False)
    difference = one - two
    mean, k = float(difference.mean()), difference.size
    error = float(np.sqrt(difference.var(ddof=1) * (1.0 / k + n_test / n_train)))
    if error <= 1e-15 * float(np.abs([one, two]).max()):
        if mean == 0.0:
            return ResampledTTest(0.0, 0.0, 0.0, 0.0, k - 1, 1.0)
        return ResampledTTest(mean, np.nan, np.nan, np.nan, k - 1, np.nan)
    half = float(student.ppf(0.5 + 0.5 * confidence, k - 1)) * error
    p_value = 2.0 * float(student.sf(abs(mean) / error, k - 1))
    return ResampledTTest(mean, mean - half, mean + half, mean / error, k - 1, p_value)


def _check_resampling(n_resamples: int, confidence: float) -> int:
    check_share(confidence, "confidence", "a number in (0, 1)", closed=False)
    if not is_number_of(n_resamples, Integral) or n_resamples < 20:
        raise ConfigError(f"n_resamples: expected an integer >= 20; got {n_resamples!r}.")
    return int(n_resamples)


def bootstrap_difference(
    difference: Callable[[IntArray], float],
    n: int,
    n_resamples: int,
    confidence: float,
    random_state: int,
    subject: IntArray | None = None,
) -> PairedComparison:
    """Bootstrap a difference that is a function of row numbers, repetitions allowed; see `paired_bootstrap`.

    With `subject`, 0 .. n_subjects - 1, shape (n,), subjects are drawn.
    """
    n_resamples = _check_resampling(n_resamples, confidence)
    value = difference(np.arange(n))
    if not np.isfinite(value):
        raise DataError(
            f"metric: expected a finite difference on the rows themselves; got {value:g}, as where it is "
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
    tail = 0.5 - 0.5 * confidence
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
