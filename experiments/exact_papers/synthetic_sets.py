"""Synthetic survival data of SurTree: a random tree with one distribution per leaf, and random censoring.

Huisman, van der Linden and Demirović (2024), Optimal survival trees: a dynamic programming approach,
appendix C. Where the appendix leaves a choice, it is that of the authors' published program: see README.md.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch import SurvivalData

# Families of the leaves, eight of each, and their parameters: scales of the exponential distribution, shapes
# and scales of Weibull and gamma, means and standard deviations of the logarithm.
DISTRIBUTIONS = {
    "exponential": [0.3, 0.4, 0.6, 0.8, 0.9, 1.15, 1.5, 1.8],
    "weibull": [0.8, 0.4, 0.9, 0.5, 0.9, 0.7, 0.9, 1.1, 0.9, 1.5, 1.0, 1.1, 1.0, 1.9, 1.3, 0.5],
    "lognormal": [0.1, 1.0, 0.2, 0.75, 0.3, 0.3, 0.3, 0.5, 0.3, 0.8, 0.4, 0.32, 0.5, 0.3, 0.5, 0.7],
    "gamma": [0.2, 0.75, 0.3, 1.3, 0.3, 2.0, 0.5, 1.5, 0.8, 1.0, 0.9, 1.3, 1.3, 0.9, 1.5, 0.7],
}
# Of the generating tree.
DEPTH = 4
# Smallest time; a gamma distribution of small shape rounds to zero.
_SMALLEST = 1e-9


def sample(seed: int, n: int, censored: float, copies: int = 1) -> tuple[SurvivalData, npt.NDArray[np.int64]]:
    """Draw a tree and rows.

    Args:
        seed: of the tree and the rows.
        n: rows.
        censored: share of censored rows, in [0, 1); at most this share is censored.
        copies: f, how often the six columns are repeated: three uniform numbers, a binary column, and
            categories of three and of five values.

    Returns:
        The rows, and the leaf of the generating tree of each, shape (n,).
    """
    rng = np.random.default_rng([seed, round(100 * censored), copies])
    columns: dict[str, object] = {}
    for copy in range(copies):
        columns |= {f"number{copy}{j}": rng.random(n) for j in range(3)}
        columns[f"binary{copy}"] = rng.integers(2, size=n).astype(float)
        columns[f"three{copy}"] = pd.Categorical.from_codes(rng.integers(3, size=n), list("XYZ"))
        columns[f"five{copy}"] = pd.Categorical.from_codes(rng.integers(5, size=n), list("ABCDE"))
    frame = pd.DataFrame(columns)
    leaf = _leaves(frame, rng)
    time = np.empty(n)
    families = [(family, row) for family, each in DISTRIBUTIONS.items() for row in np.reshape(each, (8, -1))]
    for number in np.unique(leaf):
        rows = np.flatnonzero(leaf == number)
        family, values = families[rng.integers(len(families))]
        scale = values[1] if family == "weibull" else 1.0
        shape = values[:1] if family == "weibull" else values
        time[rows] = scale * getattr(rng, family)(*shape, size=len(rows))
    time = np.maximum(time, _SMALLEST)
    # Censoring at k (1 - u^2), with the smallest k that censors at most the share.
    factor = 1.0 - rng.random(n) ** 2
    ratio = time / factor
    k = np.sort(ratio)[n - int(np.floor(censored * n)) - 1]
    event = ratio <= k
    return SurvivalData(frame, (np.where(event, time, k * factor), event)), leaf


def _leaves(frame: pd.DataFrame, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """The leaf of each row in a random tree; a node whose rows are all equal is a leaf at a smaller depth."""
    leaf = np.zeros(len(frame), dtype=np.int64)
    for _ in range(DEPTH):
        right = np.zeros(len(frame), dtype=np.bool_)
        for node in np.unique(leaf):
            rows = np.flatnonzero(leaf == node)
            right[rows] = _right(frame.iloc[rows], rng)
        leaf = 2 * leaf + right
    return leaf


def _right(rows: pd.DataFrame, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Whether each row satisfies x >= v or x = v, of a random column and value that divide the rows."""
    for name in rng.permutation(np.array(rows.columns, dtype=object)):
        column = rows[name].to_numpy()
        values = np.unique(column)
        if len(values) > 1:
            numeric = column.dtype.kind == "f"
            value = rng.choice(values[1:] if numeric else values)
            return column >= value if numeric else column == value
    return np.zeros(len(rows), dtype=np.bool_)
