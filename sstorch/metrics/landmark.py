"""Scores from a landmark: the rows at risk at a time, with times and curves that count from there.

Who is at risk at a landmark s, entry <= s < time, is seen from s on whenever it entered. So scores that know
no late entry are defined for these rows, their times t - s and the conditional curves S(s + t) / S(s), and so
are weights for censoring from training rows that are chosen alike.

References:
    van Houwelingen (2007), Scandinavian Journal of Statistics 34, 70-85; Schoop, Graf and Schumacher (2008),
    Biometrics 64, 603-610, for the Brier score.
"""

import numpy as np

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import rows_text
from sstorch.exceptions import DataError

# What subtracting a landmark from a time and adding it again may lose, relative to the time.
_ROUNDING = 4 * np.finfo(np.float64).eps


def check_alive(alive: BoolArray, after: float | FloatArray) -> None:
    """Refuse rows, (n,), whose predicted survival at a time, of all rows or of each, is not above 0."""
    if (dead := ~alive).any():
        at = np.broadcast_to(after, dead.shape)[dead][0]
        raise DataError(
            f"predicted survival of {rows_text(dead)} at after={at:g} is 0, so that conditional survival is "
            "undefined; choose an earlier time"
        )


def conditional_curves(alive: FloatArray, curves: FloatArray, after: float) -> FloatArray:
    """S(t) / S(after), (n, n_times), from S(after), (n,), and S(t)."""
    check_alive(alive > 0.0, after)
    return np.asarray(curves / alive[:, None])


def conditional_incidences(incidence: FloatArray, after: float) -> FloatArray:
    """(F_k(s + t) - F_k(s)) / S(s), (n, K, n_times), from F_k at s and at s + t, (n, K, 1 + n_times)."""
    alive = 1.0 - incidence[..., 0].sum(axis=1)
    check_alive(alive > 0.0, after)
    return np.asarray((incidence[..., 1:] - incidence[..., :1]) / alive[:, None, None])


def times_from_zero(times: FloatArray, after: float, observed: FloatArray) -> FloatArray:
    """Times plus `after`, or the observed ones (increasing) that rounding keeps apart: curves step there."""
    at = after + times
    next_one = observed[np.minimum(np.searchsorted(observed, at), observed.size - 1)]
    return np.where(np.abs(next_one - at) <= _ROUNDING * at, next_one, at)
