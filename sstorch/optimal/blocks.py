"""Blocks of sets of features: some sets above a pivot, the pivot, and all sets below it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import NamedTuple

import torch
from torch import Tensor


class Run(NamedTuple):
    """Neighbouring sets above a pivot.

    Attributes:
        second: the second largest feature b of all of them, or None where the sets are single features a.
        first: the range of the largest feature a.
        place: where the sets are among those of the block.
    """

    second: int | None
    first: slice
    place: slice


@dataclass(frozen=True)
class Block:
    """Sets of features above + {pivot} + below, for all combinations of two groups of sets.

    Attributes:
        pivot: a feature.
        runs: the sets above it, L in all: features a, or pairs a > b.
        right: size of the sets below it: single features, or pairs x > y in colexicographic order; R in all.
    """

    pivot: int
    runs: tuple[Run, ...]
    right: int

    @property
    def n_left(self) -> int:
        """Size of the sets above the pivot."""
        return 1 if self.runs[0].second is None else 2

    @property
    def width(self) -> int:
        """L."""
        return int(self.runs[-1].place.stop)

    @property
    def height(self) -> int:
        """R."""
        return comb(self.pivot, self.right)


def blocks(n_features: int, pivot: int, left: int, right: int, size: int) -> Iterator[Block]:
    """All sets with a pivot, in blocks of at most `size` cells, or of the sets below with a single one above.

    Args:
        n_features: F.
        pivot: the feature.
        left: size of the sets above it, 1 or 2.
        right: size of the sets below it.
        size: most cells.
    """
    most = max(1, (size >> (left + 1 + right)) // max(1, comb(pivot, right)))
    seconds: list[int | None] = [None] if left == 1 else list(range(pivot + 1, n_features - 1))
    runs: list[Run] = []
    width = 0
    for second in seconds:
        start = (pivot if second is None else second) + 1
        while start < n_features:
            stop = min(n_features, start + most - width)
            runs.append(Run(second, slice(start, stop), slice(width, width + stop - start)))
            width, start = width + stop - start, stop
            if width == most:
                yield Block(pivot, tuple(runs), right)
                runs, width = [], 0
    if runs:
        yield Block(pivot, tuple(runs), right)


@lru_cache(maxsize=32)
def pairs(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Larger and smaller feature of all pairs of 0 .. n - 1; the first C(m, 2) are those of 0 .. m - 1."""
    larger, smaller = torch.tril_indices(n, n, -1, device=device)
    return larger.contiguous(), smaller.contiguous()


def pair_run(larger: int) -> slice:
    """Where the pairs with this larger feature are."""
    start = comb(larger, 2)
    return slice(start, start + larger)


@lru_cache(maxsize=256)
def partners(n: int, device: torch.device) -> Tensor:
    """((n - 1) n,): n - 1 times for each feature x below n a pair with it, all of them once.

    r is the place of the pair x > y, C(n, 2) + r that of the pair y > x.
    """
    x = torch.arange(n).expand(n - 1, n)
    y = torch.arange(n - 1)[:, None]
    y = torch.where(y >= x, y + 1, y)
    place = torch.where(x > y, x * (x - 1) // 2 + y, n * (n - 1) // 2 + y * (y - 1) // 2 + x)
    return place.flatten().to(device)


def right_signs(small: Tensor, both: Tensor | None, cells: Tensor) -> Tensor:
    """Signs of the features below the pivot, by inclusion and exclusion.

    Args:
        small: (..., 1 + b, L), asking for none of the features below the pivot, or one.
        both: (..., R, L), asking for two; None if the sets below the pivot are single features.
        cells: (2, ..., R, L) or (2, 2, ..., R, L), where to write; `both` may be its entry for two.

    Returns:
        `cells`, with the signs of the features below the pivot first.
    """
    if both is None:
        cells[1].copy_(small[..., 1:, :])
        torch.sub(small[..., :1, :], small[..., 1:, :], out=cells[0])
        return cells
    larger, smaller = pairs(small.shape[-2] - 1, small.device)
    free = small[..., :1, :] - small[..., 1:, :]
    torch.index_select(small[..., 1:, :], -2, larger, out=cells[1, 0])
    torch.index_select(small[..., 1:, :], -2, smaller, out=cells[0, 1])
    torch.index_select(free, -2, larger, out=cells[0, 0])
    cells[1, 0].sub_(both)
    cells[0, 1].sub_(both)
    cells[0, 0].sub_(cells[0, 1])
    return cells
