"""Numbers of rules, with as few digits as separate the rows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from sstorch._types import BoolArray, FloatArray

# Most digits of a number in a rule, and those of a number that no row constrains.
_MOST_DIGITS, USUAL_DIGITS = 15, 3


def threshold_text(value: float, values: FloatArray, below: BoolArray, least: int) -> str:
    """The threshold of fewest digits that has the right values at or below it, near to a given one."""
    starts = [value]
    if below.any() and not below.all():
        # A value right at the threshold may have to be above it.
        starts.append(0.5 * float(values[below].max() + values[~below].min()))

    def misplaced(start: float) -> Callable[[int], int]:
        return lambda digits: int(np.count_nonzero((values <= float(number_text(start, digits))) != below))

    found = [(*fewest_digits(misplaced(start), least), start) for start in starts]
    digits, _, start = min(found, key=lambda one: one[1])
    return number_text(start, digits)


def fewest_digits(misplaced: Callable[[int], int], least: int) -> tuple[int, int]:
    """The smallest number of digits with the fewest misplaced rows, and how many these are."""
    best = least, misplaced(least)
    for digits in range(least + 1, _MOST_DIGITS + 1):
        if best[1] == 0:
            break
        count = misplaced(digits)
        best = (digits, count) if count < best[1] else best
    return best


def number_text(value: float, digits: int, sign: str = "") -> str:
    """A number of some significant digits, ``70`` and not ``7e+01``."""
    return f"{float(f'{value:.{digits}g}') + 0.0:{sign}.{_MOST_DIGITS}g}"


def down_to(value: float, resolution: float) -> str:
    """A number with its sign and all digits down to a resolution, zeros at the end left out."""
    if value == 0:
        return "+0"
    decimals = max(math.ceil(-math.log10(resolution)), 0)
    return f"{value:+.{max(math.floor(math.log10(abs(value))) + 1 + decimals, 1)}g}"
