"""Columns of later rows compared with the counts of the training rows, period by period."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import betabinom, chi2, hypergeom

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import names_text
from sstorch.data.columns import labels, numeric_values
from sstorch.data.training_record import TrainingRecord
from sstorch.plots.drift import LEAST_PSI

# Shares of rows below which a shift is of no consequence, however sure it is.
_LEAST_SHARE, _LEAST_OUTSIDE = 0.05, 0.01
# Bins with fewer expected rows are joined: their logarithms make the stability index large by chance.
_LEAST_EXPECTED = 2.0


def population_stability_index(training: npt.ArrayLike, later: npt.ArrayLike) -> float:
    """Population stability index of two samples in the same bins: sum of (q - p) ln(q / p) over the bins.

    With B bins, p = (count + 1/2) / (n + B/2) is the share of a bin in n training rows, and q the same in m
    later rows; no share is 0. The index is Jeffreys' divergence, 0 for equal shares. For samples from one
    distribution with a few rows per bin, it is approximately (1/n + 1/m) times a chi-squared variable with B
    - 1 degrees of freedom.

    Args:
        training: counts of the bins in n rows, (B,).
        later: counts of the same bins in m rows, (B,).

    References:
        Siddiqi (2006), "Credit Risk Scorecards", Wiley; Yurdakul and Naranjo (2020), Journal of Risk Model
        Validation 14(4), 89-100, for its distribution.

    Examples:
        >>> round(population_stability_index([50, 50], [80, 20]), 3)
        0.406
    """
    p, q = (np.asarray(counts, dtype=np.float64) + 0.5 for counts in (training, later))
    p, q = p / p.sum(), q / q.sum()
    return float(((q - p) * np.log(q / p)).sum())


class _Counts(NamedTuple):
    """A column in a period; ``training`` and ``later`` are counts of bins, the last of missing cells."""

    training: Sequence[int]
    later: Sequence[int]
    outside: float = np.nan
    n_outside: int = 0
    range: tuple[float, float] = (np.nan, np.nan)
    unseen: Sequence[str] = ()
    n_unseen: int = 0


def compared_columns(
    frame: pd.DataFrame, record: TrainingRecord, parts: list[tuple[str, BoolArray]], level: float
) -> Iterator[dict[str, object]]:
    """A row for each period and column, as `DriftReport.columns` has them."""
    numbers = {
        name: numeric_values(frame[name], f"column {name!r}", "this column is numeric in the model")
        for name in record.numeric
    }
    words = {name: labels(frame[name]) for name in record.categorical}
    chance = (1.0 - level) / (len(parts) * len(frame.columns))
    for period, rows in parts:
        for name in frame.columns:
            counts = (
                _of_numbers(numbers[name][rows], record, name)
                if name in numbers
                else _of_words(words[name][rows], record, name)
            )
            yield {"period": period, "column": name, **_column(counts, record.n_rows, chance)}


def _of_numbers(values: FloatArray, record: TrainingRecord, name: str) -> _Counts:
    column = record.numeric[name]
    low, high = column.range
    n_present, n_outside = int((~np.isnan(values)).sum()), int(((values < low) | (values > high)).sum())
    share = n_outside / n_present if n_present else np.nan
    later = column.count(values).tolist()
    return _Counts(column.counts, later, share, n_outside, column.range)


def _of_words(values: npt.NDArray[np.object_], record: TrainingRecord, name: str) -> _Counts:
    column = record.categorical[name]
    counts = pd.Series(values, dtype=object).value_counts()
    unseen = sorted(str(word) for word in counts.index if word not in column.counts)
    # Each new category is a bin and joined with others by the rule for old ones. One bin for all of them
    # would be chosen because the training rows had none, which with many rare categories is no drift.
    training = [*column.counts.values(), *([0] * len(unseen)), column.missing]
    words = [*column.counts, *unseen]
    later = [*(int(counts.get(word, 0)) for word in words), int(pd.isna(values).sum())]
    return _Counts(training, later, unseen=unseen, n_unseen=sum(int(counts[word]) for word in unseen))


def _column(counts: _Counts, n_training: int, chance: float) -> dict[str, object]:
    """Reported values of a column in a period; ``chance`` of a false finding."""
    n = sum(counts.later)
    bins = _pooled(np.array([counts.training, counts.later], dtype=np.float64))
    psi = population_stability_index(*bins)
    limit = (1.0 / n_training + 1.0 / n) * float(chi2.isf(chance, max(bins.shape[1] - 1, 1)))
    before, now = counts.training[-1] / n_training, counts.later[-1] / n
    texts = []
    if counts.n_unseen:
        share, names = _percent(counts.n_unseen / n), names_text(counts.unseen)
        texts.append(f"{share} of the rows have a category without training rows, {names}")
    # With equal distributions a value lies outside N others with probability 2 / (N + 1), and the number of
    # such values is beta-binomial.
    n_present, n_known = n - counts.later[-1], n_training - counts.training[-1]
    if (
        counts.n_outside > _LEAST_OUTSIDE * n_present
        and betabinom.sf(counts.n_outside - 1, n_present, 2, max(n_known - 1, 1)) < chance
    ):
        low, high = counts.range
        texts.append(
            f"{_percent(counts.outside)} of the numbers are outside the training range {low:g} to {high:g}"
        )
    # Fisher's exact test.
    drawn = hypergeom(n_training + n, counts.training[-1] + counts.later[-1], n)
    tail = min(drawn.cdf(counts.later[-1]), drawn.sf(counts.later[-1] - 1))
    if abs(now - before) > _LEAST_SHARE and 2.0 * tail < chance:
        texts.append(f"missing in {_percent(now)} of the rows, of training rows {_percent(before)}")
    if psi > max(LEAST_PSI, limit):
        texts.append(f"stability index {psi:.2f}, limit without drift {limit:.2f}")
    return {
        "n": n,
        "missing": now,
        "training_missing": before,
        "outside": counts.outside,
        "unseen": counts.n_unseen / n if np.isnan(counts.range[0]) else np.nan,
        "categories": ", ".join(counts.unseen),
        "psi": psi,
        "limit": limit,
        "finding": "; ".join(texts),
    }


def _pooled(bins: FloatArray) -> FloatArray:
    """Counts of two samples (2, B), in which bins with few rows are one."""
    rows = bins.sum(axis=1, keepdims=True)
    rare = bins.sum(axis=0) / rows.sum() * rows.min() < _LEAST_EXPECTED
    return np.column_stack([bins[:, ~rare], bins[:, rare].sum(axis=1)]) if rare.sum() > 1 else bins


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"
