"""Log-likelihood of right-censored rows under predicted hazards."""

import numpy as np
import numpy.typing as npt

from sstorch.exceptions import DataError
from sstorch.metrics.checks import check_event, check_vector, check_weight, name_rows
from sstorch.metrics.conversion import check_same_order


def log_likelihood(
    event: npt.ArrayLike,
    cumulative_hazard: npt.ArrayLike,
    log_hazard: npt.ArrayLike,
    *,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Mean log-likelihood of the rows, each at its own observed time.

    The mean of c_i log h_i(t_i) - H_i(t_i). A row with an event where the hazard is 0 makes it -inf.

    Args:
        event: True or 1 where the event was observed, shape (n,).
        cumulative_hazard: H_i(t_i) >= 0, shape (n,), dimensionless.
        log_hazard: log h_i(t_i), shape (n,), h per unit of time, so that values compare only in the same unit
            of time. It counts for rows with an event; -inf is allowed.
        sample_weight: weights >= 0 with a positive sum, shape (n,), or None for equal weights.

    Returns:
        The (weighted) mean, higher is better, in log per unit of time.

    Raises:
        DataError: lengths differ, NaN, H < 0, log h = +inf, or weights negative, not finite or all 0.

    References:
        Kalbfleisch and Prentice (2002), The Statistical Analysis of Failure Time Data, chapter 3.

    Examples:
        >>> log_likelihood([1, 0], cumulative_hazard=[0.5, 1.0], log_hazard=[-1.0, -2.0])
        -1.25
    """
    check_same_order(
        event=event, cumulative_hazard=cumulative_hazard, log_hazard=log_hazard, sample_weight=sample_weight
    )
    observed = check_event(event)
    hazard = check_vector(cumulative_hazard, "cumulative_hazard", observed.size)
    log_h = check_vector(log_hazard, "log_hazard", observed.size)
    wrong = hazard < 0.0
    if wrong.any():
        raise DataError(
            f"cumulative_hazard: expected values >= 0; got {hazard[wrong][0]:g} in {name_rows(wrong)}."
        )
    wrong = np.isposinf(log_h)
    if wrong.any():
        raise DataError(f"log_hazard: expected values below +inf; got +inf in {name_rows(wrong)}.")
    terms = np.where(observed, log_h, 0.0) - hazard
    weight = check_weight(sample_weight, observed.size)
    if weight is None:
        return float(terms.mean())

    counted = weight > 0.0  # a row without weight must not turn -inf into NaN
    return float(np.dot(weight[counted], terms[counted]) / weight.sum())


def negative_log_likelihood(
    event: npt.ArrayLike,
    cumulative_hazard: npt.ArrayLike,
    log_hazard: npt.ArrayLike,
    *,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Mean negative log-likelihood of the rows: `log_likelihood` with the sign of a loss, lower is better.

    Args:
        event: as in `log_likelihood`.
        cumulative_hazard: as in `log_likelihood`.
        log_hazard: as in `log_likelihood`.
        sample_weight: as in `log_likelihood`.

    Returns:
        Minus the mean log-likelihood.

    Raises:
        DataError: as `log_likelihood`.

    Examples:
        >>> negative_log_likelihood([1, 0], cumulative_hazard=[0.5, 1.0], log_hazard=[-1.0, -2.0])
        1.25
    """
    return -log_likelihood(event, cumulative_hazard, log_hazard, sample_weight=sample_weight)
