"""Rows by which gates are placed where there are very many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sstorch._types import IntArray
from sstorch.data import SurvivalData

# Rows by which gates are placed at most: a threshold from so many differs from that of all rows by less than
# follow-up and censoring do. Leaves, and the evidence that chooses between gates, see all rows.
GATE_ROWS = 20_000


def gate_rows(splits: Sequence[SurvivalData], seed: int) -> Tensor | None:
    """Rows of each split by which gates are placed, (S, m), padded; None if no split has very many.

    Of more than 20,000 subjects are drawn with all their rows, which weigh the same in all splits.
    """
    if max(len(data) for data in splits) <= GATE_ROWS:
        return None
    drawn = [_drawn(data, np.random.default_rng(seed)) for data in splits]
    width = max(len(rows) for rows in drawn)
    padded = [np.pad(rows, (0, width - len(rows)), constant_values=-1) for rows in drawn]
    return torch.as_tensor(np.stack(padded))


def _drawn(data: SurvivalData, rng: np.random.Generator) -> IntArray:
    n = len(data)
    if n <= GATE_ROWS:
        return np.arange(n)
    subject = np.arange(n) if data.subject is None else data.subject
    n_subjects = int(subject.max()) + 1
    chosen = np.zeros(n_subjects, dtype=bool)
    chosen[rng.permutation(n_subjects)[: max(1, GATE_ROWS * n_subjects // n)]] = True
    return np.flatnonzero(chosen[subject])
