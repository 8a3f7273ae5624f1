"""Characteristics of rows, overall and by group, with standardised differences and missing counts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.document import ABSENT, Cell, as_table, number
from sstorch.groups.table import interval_text

# Categories of a column that are written out; the others are counted.
_MOST_CATEGORIES = 6


def standardised_difference(first: pd.Series, second: pd.Series) -> float:
    """Absolute standardised difference of a column between two groups of rows, missing values left out.

    Of a number it is the difference of the means over the root of the mean variance; of a categorical column
    the Mahalanobis distance of the shares of its categories, which of two categories is the same formula.

    Returns:
        The difference, >= 0; infinite if the groups differ and neither varies, NaN if a group has no value.

    References:
        Yang and Dalton (2012), "A unified approach to measuring the effect size between two groups using
        SAS", SAS Global Forum, paper 335; Austin (2009), Statistics in Medicine 28, 3083-3107.
    """
    known = [column.dropna() for column in (first, second)]
    if min(map(len, known)) == 0:
        return float("nan")
    if isinstance(first.dtype, pd.CategoricalDtype):
        words = [word for word in first.cat.categories if any((part == word).any() for part in known)]
        shares = [np.array([(part == word).mean() for word in words[1:]]) for part in known]
        gap = shares[0] - shares[1]
        spread = sum(np.diag(share) - np.outer(share, share) for share in shares) / 2
    else:
        values = [part.to_numpy(np.float64) for part in known]
        gap = np.array([values[0].mean() - values[1].mean()])
        spread = np.array([[(_variance(values[0]) + _variance(values[1])) / 2]])
    if not np.abs(gap).max(initial=0.0) > 0.0:
        return 0.0
    solved = np.linalg.lstsq(np.asarray(spread), gap, rcond=None)[0]
    # What the mean variance does not reach is a difference without a variance.
    if not np.allclose(np.asarray(spread) @ solved, gap, rtol=1e-6, atol=1e-9):
        return float("inf")
    return float(np.sqrt(gap @ solved))


def _variance(values: FloatArray) -> float:
    return float(values.var(ddof=1)) if len(values) > 1 else 0.0


def columns_table(frame: pd.DataFrame, group: IntArray, columns: Sequence[str], caption: str) -> pd.DataFrame:
    """Each column in all rows and in each group, (n,): the first table of a paper.

    Numbers are medians with quartiles, categories counts with shares of known values; the last column is the
    largest standardised difference between any two groups.
    """
    order = np.unique(group).tolist()
    inside = [group == one for one in order]
    parts: list[BoolArray] = [np.ones(len(frame), dtype=bool), *(inside if len(order) > 1 else [])]
    rows = []
    for name in columns:
        column = frame[name]
        missing = int(column.isna().sum())
        note = f"{missing} missing" if missing else ""
        differences = [standardised_difference(column[a], column[b]) for a, b in combinations(inside, 2)]
        last = [Cell(number(max(differences), 2))] if differences else []
        for label, cells in _lines(column, parts):
            rows.append([Cell(label, note), *cells, *last])
            note, last = "", [Cell("")] if differences else []
    header = ["characteristic", f"all ({len(frame)})"]
    if len(order) > 1:
        counts = zip(order, inside, strict=True)
        header += [*(f"group {one} ({part.sum()})" for one, part in counts), "largest SMD"]
    return as_table(header, rows, caption)


def _lines(column: pd.Series, parts: list[BoolArray]) -> list[tuple[str, list[Cell]]]:
    """Label and cells of each line of a column."""

    def counts(which: pd.Series) -> list[Cell]:
        found, known = which.to_numpy(dtype=bool), column.notna().to_numpy()
        return [Cell(_share(int(found[part].sum()), int(known[part].sum()))) for part in parts]

    name = str(column.name)
    if not isinstance(column.dtype, pd.CategoricalDtype):
        if column.nunique() == 2:
            return [(f"{name} = {column.max():g}", counts(column == column.max()))]
        return [(name, [Cell(_quartiles(column[part])) for part in parts])]
    sizes = column.value_counts(sort=False)
    shown = list(sizes.index[sizes > 0])
    end = _MOST_CATEGORIES if len(shown) > _MOST_CATEGORIES + 1 else len(shown)  # one other is written, too
    lines = [(f"{name} = {word}", counts(column == word)) for word in shown[:end]]
    if others := shown[end:]:
        lines.append((f"{name}: {len(others)} others", counts(column.isin(others))))
    return lines


def _quartiles(values: pd.Series) -> str:
    known = values.dropna().to_numpy(np.float64)
    if not len(known):
        return ABSENT
    low, middle, high = np.quantile(known, [0.25, 0.5, 0.75])
    return interval_text(middle, low, high)


def _share(count: int, total: int) -> str:
    return f"{count} ({100 * count / total:.0f} %)" if total else ABSENT
