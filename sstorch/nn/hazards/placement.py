"""Where on the time axis knots and breakpoints lie: given as times, or placed among the events."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from numbers import Integral, Real

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sstorch.exceptions import ConfigError, DataWarning


def check_placement(name: str, value: object, least: int, least_times: int) -> int | tuple[float, ...]:
    """A number of points, or the points themselves.

    Args:
        name: of the option, for the message.
        value: a number, or positive finite times, increasing, in a list, tuple or array.
        least: smallest number.
        least_times: fewest times.

    Raises:
        ConfigError: it is neither.
    """
    if not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least:
        return int(value)
    if isinstance(value, Iterable) and not isinstance(value, str | dict):
        times = list(value)
        if len(times) >= least_times and all(_is_time(time) for time in times):
            given = tuple(float(time) for time in times)
            if all(a < b for a, b in zip((0.0, *given), given, strict=False)):
                return given
    raise ConfigError(
        f"{name} must be a number >= {least}, or at least {least_times} positive finite times in increasing "
        f"order, got {value!r}"
    )


def placement_times(
    log_time: Tensor, event: Tensor, weight: Tensor, name: str
) -> list[npt.NDArray[np.float64]]:
    """Log times among which points are placed, one array a problem: those of the rows with an event.

    A problem without events takes all its rows, with a warning.

    Args:
        log_time: shape (R, M).
        event: shape (R, M).
        weight: shape (R, M); rows of weight 0 do not count.
        name: of the points, for the warning.
    """
    times = log_time.double().cpu().numpy()
    real = (weight > 0).cpu().numpy()
    observed = real & (event > 0).cpu().numpy()
    without = ~observed.any(axis=1)
    if without.any():
        warnings.warn(
            f"no event in {without.sum()} of {len(times)} sets of training rows: "
            f"their {name} lie among the censoring times",
            DataWarning,
            stacklevel=2,
        )
    chosen = np.where(without[:, None], real, observed)
    return [own[mask] for own, mask in zip(times, chosen, strict=True)]


def _is_time(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(float(value))
