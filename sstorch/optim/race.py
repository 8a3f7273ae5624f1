"""Races of starts: after some passes only the best starts of each split go on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sstorch.exceptions import ConfigError


@dataclass(frozen=True)
class Race:
    """Race: after some passes only the best starts of each split continue.

    Attributes:
        after: numbers of the passes after which starts are dropped, increasing.
        keep: share of the starts that continues each time, in (0, 1); at least one.
        heats: number of groups of equal size, of consecutive problems of a split, with separate races.

    Raises:
        ConfigError: if a value is out of range.

    References:
        Jamieson and Talwalkar (2016), "Non-stochastic best arm identification and hyperparameter
        optimization".
    """

    after: tuple[int, ...] = (3,)
    keep: float = 0.5
    heats: int = 1

    def __post_init__(self) -> None:
        if not all(a < b for a, b in zip((0, *self.after), self.after, strict=False)):
            raise ConfigError(f"race.after must be increasing numbers of passes from 1, got {self.after!r}")
        if not 0 < self.keep < 1:
            raise ConfigError(f"race.keep must be in (0, 1), got {self.keep!r}")

    def survivors(self, value: Tensor, counts: tuple[int, ...], n_passes: int) -> Tensor:
        """Starts that are still in the race.

        Args:
            value: best objective of each problem so far, shape (R,), problems ordered by split.
            counts: problems of each split, multiples of the heats; their sum is R.
            n_passes: passes done.

        Returns:
            boolean (R,): those with the lowest values of their split, or heat; ties go to the first.
        """
        rounds = sum(n_passes >= after for after in self.after)
        kept = torch.zeros_like(value, dtype=torch.bool)
        counts = tuple(count // self.heats for count in counts for _ in range(self.heats))
        for part, values in zip(kept.split(counts), value.split(counts), strict=True):
            # ceil, but 0.1 ** 1 * 10 must be one start though it is a little more in floating point.
            quota = max(1, -int(-(len(values) * self.keep**rounds - 1e-9) // 1))
            part[values.argsort(stable=True)[:quota]] = True
        return kept
