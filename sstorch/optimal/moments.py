"""Sums of a task's entries over the rows in which products of literals are 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sstorch.optimal.patterns import Patterns
from sstorch.optimal.products import RowSums, quantise
from sstorch.optimal.tasks import Entries


@dataclass(frozen=True)
class Moments:
    """The entries of a task, collapsed over equal rows, and sums of them over products of literals.

    Attributes:
        literals: (E, F + 2) float64, the literals of each entry's row between two columns of ones.
        values: (C, E), what each entry adds; multiples of a power of two of which all sums are exact.
        unit: (C,), that power of two.
        steps: (S + 1,), where the entries of each step begin; entries are sorted by step.
    """

    literals: Tensor
    values: Tensor
    unit: Tensor
    steps: tuple[int, ...]

    @classmethod
    def of(cls, patterns: Patterns, entries: Entries, n_steps: int, device: torch.device) -> Moments:
        """Add up the entries of equal rows in the same step."""
        n_patterns = len(patterns.literals)
        key = entries.step * n_patterns + patterns.of_row[entries.row]
        if n_steps == 1:
            group, position = np.arange(n_patterns, dtype=np.int64), key
        else:
            group, position = np.unique(key, return_inverse=True)
        values = np.stack([np.bincount(position, weights=v, minlength=len(group)) for v in entries.values])
        begin = np.searchsorted(group, np.arange(n_steps + 1) * n_patterns)
        literals = patterns.tensor(device)
        if n_steps > 1:
            literals = literals[torch.from_numpy(group % n_patterns).to(device)]
        exact, unit = quantise(torch.from_numpy(values).to(device))
        return cls(literals, exact, unit, tuple(begin.tolist()))

    @property
    def n_features(self) -> int:
        """F."""
        return self.literals.shape[1] - 2

    def row_sums(self) -> RowSums:
        """The rows and values of a task with one step."""
        return RowSums.of(self.literals[:, 1:-1], self.values, self.unit)

    def where(self, kept: Tensor) -> Moments:
        """The entries whose rows are `kept`, (E,) bool."""
        before = torch.nn.functional.pad(kept.cumsum(0), (1, 0)).tolist()
        return Moments(
            self.literals[kept], self.values[:, kept], self.unit, tuple(int(before[s]) for s in self.steps)
        )

    def has(self, feature: int) -> Tensor:
        """(E,) bool: rows in which the literal of a feature is 1."""
        return self.literals[:, feature + 1] > 0.0

    def total(self) -> Iterator[Tensor]:
        """Sums over all rows, (C,) for each step."""
        for begin, end in self._ranges():
            yield self.values[:, begin:end].sum(1)

    def singles(self) -> Iterator[Tensor]:
        """Sums over the rows of each literal, (C, F) for each step."""
        for begin, end in self._ranges():
            yield self.values[:, begin:end] @ self.literals[begin:end, 1:-1]

    def pairs(self) -> Iterator[Tensor]:
        """Sums over the rows of two literals, (C, 1 + F, 1 + F) for each step; the first ask for none."""
        rows = self.literals[:, :-1]
        for begin, end in self._ranges():
            part = rows[begin:end]
            yield (self.values[:, begin:end].unsqueeze(1) * part.T) @ part

    def _ranges(self) -> Iterator[tuple[int, int]]:
        return zip(self.steps[:-1], self.steps[1:], strict=True)
