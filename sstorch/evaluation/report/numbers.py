"""Numbers as text."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

ABSENT = "\N{EN DASH}"
DIGITS = 3


def number(value: float, digits: int = DIGITS) -> str:
    """A number without the leading zero, as in ".742"; NaN is a dash."""
    if math.isnan(value):
        return ABSENT
    if math.isinf(value):
        return "∞" if value > 0 else "\N{MINUS SIGN}∞"
    text = f"{abs(value):.{digits}f}"
    sign = "\N{MINUS SIGN}" if value < 0 and float(text) != 0.0 else ""
    return sign + (text[1:] if text.startswith("0.") else text)


def signed(value: float, digits: int = DIGITS) -> str:
    """As `number`, with a plus sign where it is above 0."""
    text = number(value, digits)
    return f"+{text}" if value > 0 and float(f"{value:.{digits}f}") != 0.0 else text


def digits_of(values: npt.NDArray[np.float64]) -> int:
    """Decimals to print: three for scores, one where finite values go into the hundreds."""
    return 1 if (np.abs(values[np.isfinite(values)]) >= 100.0).any() else DIGITS


def p_value(value: float) -> str:
    """A p-value with three decimals."""
    if math.isnan(value):
        return ABSENT
    return "< .001" if value < 0.0005 else number(value)


def seconds(value: float) -> str:
    """A time in seconds with three significant digits."""
    if math.isnan(value):
        return ABSENT
    if value >= 1000.0:
        return f"{value:,.0f}"
    if value == 0.0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(value)))
    return f"{value:.{min(decimals, 4)}f}"


def listed(names: list[str]) -> str:
    """Names with commas and a final "and"."""
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
