"""The protocol of an objective: a sum over leaves of a cost of sums over rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Entries(NamedTuple):
    """What the rows add to the sums of their leaf.

    Attributes:
        row: (n_entries,), the row that adds; a row may have several entries, or none.
        step: (n_entries,), in which of the steps 0 .. n_steps - 1.
        values: (C, n_entries), how much, in each of C channels.
    """

    row: IntArray
    step: IntArray
    values: FloatArray


class Task(Protocol):
    """A loss that is a constant plus a sum over leaves of a cost of additive sums over the leaf's rows.

    The sums of a leaf are those of its entries, in C channels and, for losses over time, in a sequence of
    steps. The engine computes the sums of products of literals (moments), lets `accumulate` turn those of
    each step into the linear statistics that `cost` needs, takes them to the cells of all sets of literals by
    inclusion and exclusion, and gives `cost` the steps in order. Everything before `cost` is linear.

    Attributes:
        n_rows: N.
        event: (N,) bool, True where the event was observed.
        n_steps: number of steps; 1 for a loss without a time axis.
        constant: what the loss of every tree contains besides the costs of its leaves.
    """

    @property
    def n_rows(self) -> int: ...  # noqa: D102
    @property
    def event(self) -> BoolArray: ...  # noqa: D102
    @property
    def n_steps(self) -> int: ...  # noqa: D102
    @property
    def constant(self) -> float: ...  # noqa: D102

    def entries(self) -> Entries:
        """The entries of all rows."""
        ...

    def accumulate(self, sums: Iterator[Tensor]) -> Iterator[Tensor]:
        """From the sums (C, ...) of each step to linear statistics (C', ...) of each step."""
        ...

    def cost(self, cells: Iterator[Tensor]) -> Tensor:
        """Cost (...) of leaves from the statistics (C', ...) of each step, which it may overwrite.

        The cost of a leaf without rows is 0.
        """
        ...

    def floor(self, cells: Iterator[Tensor]) -> Tensor:
        """At most the summed cost of any tree on these rows, from what `cost` takes; superadditive.

        Superadditive: the floor of the union of two groups of rows is at least the sum of their floors.
        """
        ...

    def loss(self, leaf: IntArray) -> float:
        """Total loss of a partition of the rows, (N,) leaf of each, from the definition, row by row."""
        ...
