"""The unit of times, round times to speak of in it, and words for rows of subjects."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray
from sstorch.checks import counted
from sstorch.exceptions import ConfigError

# Round times by unit; below and above them, and in other units, numbers of one digit.
_SPOKEN: dict[str, tuple[float, ...]] = {
    "days": (1, 2, 3, 7, 14, 30, 60, 90, 180, *(365 * n for n in (1, 2, 3, 5, 7, 10, 15, 20, 30))),
    "weeks": (1, 2, 4, 8, 13, 26, *(52 * n for n in (1, 2, 3, 5, 7, 10, 15, 20))),
    "months": (1, 2, 3, 6, *(12 * n for n in (1, 2, 3, 5, 7, 10, 15, 20, 30))),
}
_FIRST_DIGITS = (1, 2, 3, 5, 7)
# The last is near the end of follow-up, with enough rows at risk for an estimate.
HORIZON_SHARES = (0.25, 0.5, 0.9)
# Condition under which one row of a model with time-varying covariates determines survival from time zero.
CONSTANT_COVARIATES = "if the covariates stay as in the row"


def check_time_unit(value: object) -> str | None:
    """The unit of times used in texts and figures, such as ``"days"``; None where it is unknown."""
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"time_unit must be a word such as 'days', or None, got {value!r}")
    return value.strip()


def duration(value: float, unit: str | None) -> str:
    """A time with its unit if that is known: ``"1 year"``, ``"2.5 years"``, ``"365 days"``; four digits."""
    unit = unit or ""
    digits = f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"  # no power of ten
    return f"{digits} {unit.removesuffix('s') if value == 1 else unit}".rstrip()


def median_text(median: float, unit: str | None) -> str:
    """A median in words, with its unit if that is known: ``"median 1 year"``, ``"median not reached"``."""
    return f"median {duration(median, unit)}" if math.isfinite(median) else "median not reached"


def rows_of_subjects(rows: float, subjects: float | None) -> str:
    """Number of rows in words, with that of their subjects; None if each subject has one row."""
    return counted(rows, "row") + ("" if subjects is None else f" of {counted(subjects, 'subject')}")


def round_horizons(
    times: npt.ArrayLike, unit: str | None = None, shares: Sequence[float] = HORIZON_SHARES
) -> FloatArray:
    """Round times near quantiles, ``365`` days for ``446.5``, increasing, none after the last time."""
    # A quantile stays where no round time is within a factor of two.
    values = np.asarray(times, dtype=np.float64)
    last = float(values.max())
    powers = 10.0 ** np.arange(np.floor(np.log10(values.min())) - 1, np.floor(np.log10(last)) + 1)
    plain = np.outer(powers, _FIRST_DIGITS).ravel()
    spoken = np.array(_SPOKEN.get(unit or "", ()), dtype=np.float64)
    if len(spoken):
        plain = plain[(plain < spoken[0]) | (plain > spoken[-1])]
    known = np.union1d(spoken, plain)
    known = known[known <= last]
    horizons = []
    for quantile in np.quantile(values, shares):
        ratio = np.abs(np.log(known / quantile))
        # Farther than a factor of two a round number would be about other rows.
        horizons.append(known[ratio.argmin()] if len(known) and ratio.min() < np.log(2) else quantile)
    # What is computed as 3 * 0.1 prints as 0.3.
    return np.unique([float(f"{horizon:.6g}") for horizon in horizons])
