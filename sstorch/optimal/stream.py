"""Cells of tasks with many steps: sums over the rows of each step, one step after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import Tensor

from sstorch.optimal.blocks import Block, right_signs
from sstorch.optimal.moments import Moments

Accumulate = Callable[[Iterator[Tensor]], Iterator[Tensor]]


class StreamedCells:
    """Cells of blocks of sets, for each step of a task, that keeps no sums between blocks.

    Args:
        moments: the task's entries.
        accumulate: the task's.
    """

    def __init__(self, moments: Moments, accumulate: Accumulate) -> None:
        self._moments, self._accumulate = moments, accumulate
        self._literals = moments.literals[:, 1:-1].T.contiguous()
        self._memory = moments.values.new_empty(0)

    def cells(self, block: Block) -> Iterator[Tensor]:
        """(C, 2, ..., 2, R, L) of each step, signs in falling order of the features."""
        for sums in self._accumulate(self._sums(block)):
            # (C, R + 1 [+ b], signs, L)
            moved = sums.transpose(1, 2)
            shape = (*(2,) * block.right, *moved.shape[:2], block.height, block.width)
            size = torch.Size(shape).numel()
            if len(self._memory) < size:
                self._memory = self._memory.new_empty(size)
            cells = self._memory[:size].view(shape)
            both = None
            if block.right == 2:
                both = moved[..., 1 + block.pivot :, :]
                cells[1, 1].copy_(both)
            cells = right_signs(moved[..., : 1 + block.pivot, :], both, cells)
            signs = cells.unflatten(-3, (2,) * (block.n_left + 1))
            yield signs.movedim(block.right, 0).movedim(
                tuple(range(1, 1 + block.right)),
                tuple(range(block.n_left + 2, block.n_left + 2 + block.right)),
            )

    def _sums(self, block: Block) -> Iterator[Tensor]:
        """(C, rows, signs, L) of each step: rows ask for none of the features below, each, and each pair."""
        literals, c = self._literals, block.pivot
        below = literals[:c]
        right = [below.new_ones(1, below.shape[1]), below]
        if block.right == 2:
            right += [below[x] * below[:x] for x in range(1, c)]
        products = torch.cat(right)
        left = self._left(block)
        signs, width, _ = left.shape
        values = self._moments.values
        for begin, end in pairwise(self._moments.steps):
            weighted = values[:, None, begin:end] * left[..., begin:end].flatten(0, 1)
            sums = products[:, begin:end] @ weighted.flatten(0, 1).T
            yield sums.view(len(products), len(values), signs, width).transpose(0, 1)

    def _left(self, block: Block) -> Tensor:
        """(signs, L, entries): which entries have the signs of the features above the pivot and of it."""
        literals = self._literals
        first = torch.cat([literals[r.first] for r in block.runs])
        features = [first]
        if block.n_left == 2:
            sizes = torch.tensor([r.place.stop - r.place.start for r in block.runs])
            seconds = torch.tensor([r.second or 0 for r in block.runs]).repeat_interleave(sizes)
            features.append(literals[seconds.to(literals.device)])
        features.append(literals[block.pivot].expand_as(first))
        signed = first.new_ones(1, *first.shape)
        for feature in features:
            signed = torch.stack([signed * (1.0 - feature), signed * feature], dim=1).flatten(0, 1)
        return signed
