"""Cells of tasks with many steps: sums over the rows of each step, one step after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from sstorch.optimal.cells import left_signs, one_right, two_right
from sstorch.optimal.levels import Grid
from sstorch.optimal.moments import Moments

Accumulate = Callable[[Iterator[Tensor]], Iterator[Tensor]]


class StreamedCells:
    """Cells of blocks of sets, for each step of a task, that keeps no sums between blocks.

    The methods are those of `PivotCells`.

    Args:
        moments: the task's entries.
        accumulate: the task's.
        grid: ranges of the last two features.
    """

    def __init__(self, moments: Moments, accumulate: Accumulate, grid: Grid) -> None:
        self._moments, self._accumulate, self._grid = moments, accumulate, grid

    def pairs(self) -> Iterator[Tensor]:
        """All pairs in both orders."""
        every = slice(0, self._moments.n_features)
        for (sums,) in self._sums((), every, (every,)):
            yield one_right(left_signs([sums]))

    def triples(self, b: int) -> Iterator[Tensor]:
        """Sets with this b."""
        for parts in self._sums((b,), slice(b + 1, self._moments.n_features), (slice(0, b),)):
            yield one_right(left_signs(parts))

    def quads(self, b: int, number: int) -> Iterator[Tensor]:
        """Sets with this b, and c and d in a range."""
        return self._two_right((b,), number)

    def quints(self, c: int, b: int, number: int) -> Iterator[Tensor]:
        """Sets with this b and c, and d and e in a range."""
        return self._two_right((b, c), number)

    def _two_right(self, fixed: tuple[int, ...], number: int) -> Iterator[Tensor]:
        a = slice(fixed[0] + 1, self._moments.n_features)
        for parts in self._sums(fixed, a, self._grid[number]):
            only_first = left_signs([part[..., 1:, :1] for part in parts])
            only_second = left_signs([part[..., :1, 1:] for part in parts])
            none = left_signs([part[..., :1, :1] for part in parts])
            yield two_right([part[..., 1:, 1:] for part in parts], only_first, only_second, none)

    def _sums(self, fixed: Sequence[int], first: slice, right: Sequence[slice]) -> Iterator[list[Tensor]]:
        """For each step, the parts that `left_signs` takes."""
        for sums in self._accumulate(self._moments.block(fixed, first, right)):
            yield list(sums.flatten(1, len(fixed)).unbind(1)) if fixed else [sums]
