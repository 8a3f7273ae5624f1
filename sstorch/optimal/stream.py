"""Cells of tasks with many steps: sums over the rows of each step, one step after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from sstorch.optimal.cells import left_signs, one_right, two_right
from sstorch.optimal.moments import Moments

Accumulate = Callable[[Iterator[Tensor]], Iterator[Tensor]]


class StreamedCells:
    """Cells of blocks of sets, for each step of a task, that keeps no sums between blocks.

    The methods are those of `PivotCells`.

    Args:
        moments: the task's entries.
        accumulate: the task's.
    """

    def __init__(self, moments: Moments, accumulate: Accumulate) -> None:
        self._moments, self._accumulate = moments, accumulate

    def pairs(self) -> Iterator[Tensor]:
        """All pairs in both orders."""
        every = slice(0, self._moments.n_features)
        for (sums,) in self._sums((), every, (every,)):
            yield one_right(left_signs([sums]))

    def triples(self, b: int) -> Iterator[Tensor]:
        """Sets with this b."""
        for parts in self._sums((b,), slice(b + 1, self._moments.n_features), (slice(0, b),)):
            yield one_right(left_signs(parts))

    def quads(self, b: int, c: slice) -> Iterator[Tensor]:
        """Sets with this b and some c."""
        return self._two_right((b,), c)

    def quints(self, c: int, b: int, d: slice) -> Iterator[Tensor]:
        """Sets with this b and c, and some d."""
        return self._two_right((b, c), d)

    def _two_right(self, fixed: tuple[int, ...], first: slice) -> Iterator[Tensor]:
        a = slice(fixed[0] + 1, self._moments.n_features)
        for parts in self._sums(fixed, a, (first, slice(0, first.stop))):
            only_first = left_signs([part[..., 1:, :1] for part in parts])
            only_second = left_signs([part[..., :1, 1:] for part in parts])
            none = left_signs([part[..., :1, :1] for part in parts])
            yield two_right([part[..., 1:, 1:] for part in parts], only_first, only_second, none)

    def _sums(self, fixed: Sequence[int], first: slice, right: Sequence[slice]) -> Iterator[list[Tensor]]:
        """For each step, the parts that `left_signs` takes."""
        for sums in self._accumulate(self._moments.block(fixed, first, right)):
            yield list(sums.flatten(1, len(fixed)).unbind(1)) if fixed else [sums]
