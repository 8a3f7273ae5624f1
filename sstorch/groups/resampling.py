"""Resamples of subjects, and the groups that trees trained on them make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sstorch._types import BoolArray, IntArray
from sstorch.checks import check_integer
from sstorch.data import SurvivalData
from sstorch.exceptions import DataError


@dataclass(frozen=True)
class Partition:
    """Partition of rows by a tree.

    Attributes:
        leaf: number of the group of each row, 1 .. L, shape (n,).
        place: position of the leaf in the complete tree of this depth, 0 .. 2^depth - 1, shape (n,).
        depth: depth of the tree.
        branches: inner nodes, by heap number: root 1, children 2k and 2k + 1.
        columns: columns used by each node, by heap number, (p,) bool; none for an absent node.
    """

    leaf: IntArray
    place: IntArray
    depth: int
    branches: tuple[int, ...]
    columns: Callable[[int], BoolArray]

    def place_at(self, depth: int) -> IntArray:
        """Position in a deeper complete tree, (n,): the first leaf below the leaf of the row."""
        return self.place << (depth - self.depth)


class Resamples(Protocol):
    """Trees trained on resamples."""

    @property
    def draws(self) -> IntArray | None:
        """Number of draws of each row for each tree, shape (K, n)."""

    def apply(self, X: object) -> IntArray:
        """Group of each row in all trees, shape (K, n)."""

    def partitions(self, X: object) -> Iterator[Partition]:
        """Groups that each tree makes of rows."""


def resamples(data: SurvivalData, n_resamples: int, seed: int) -> tuple[list[SurvivalData], IntArray]:
    """Rows of positive weight drawn with replacement, by subject where a subject has several rows.

    Returns the rows of each resample, weighted by how often they were drawn, and these numbers, (K, n).
    Raises DataError if a resample has no event, or none of one of the causes.
    """
    count = check_integer("n_resamples", n_resamples, 1)
    generator = np.random.default_rng((seed, count))
    n_drawn = len(data) if data.subject is None else int(data.subject.max()) + 1
    shares = np.full(n_drawn, 1 / n_drawn)
    counts = np.stack([generator.multinomial(len(shares), shares) for _ in range(count)])
    if data.subject is not None:
        counts = counts[:, data.subject]
    splits = [data.reweighted(drawn) for drawn in counts]
    if not all(split.event.any() for split in splits):
        raise DataError(
            f"a resample of {len(data)} rows with {data.n_events} events has none: a bootstrap needs more "
            "events"
        )
    for number, name in enumerate(() if data.causes is None else data.cause_names, 1):
        if not all((split.cause == number).any() for split in splits):
            raise DataError(
                f"a resample of {len(data)} rows with {(data.cause == number).sum()} events of cause {name} "
                "has none: a bootstrap needs more events"
            )
    return splits, counts
