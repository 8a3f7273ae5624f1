"""Features of linear predictors: standardised numbers and centred categories, from one matrix of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from sstorch.batched import SHARED, Batched
from sstorch.data.coded import SplitMatrices
from sstorch.memory import at_once

# Elements of the rows that are worked on at once: they fill a cache.
_ELEMENTS = 2**20
# Elements of the scores of rows that are worked on at once.
_SCORES = 2**22


def row_blocks(n_rows: int, width: int, most: int = _SCORES) -> list[slice]:
    """Consecutive rows with ``width`` elements each, in blocks within the memory limit."""
    size = at_once(width, most)
    return [slice(first, min(first + size, n_rows)) for first in range(0, n_rows, size)]


@dataclass(frozen=True)
class Moments:
    """Weighted sums over the rows of L groups: of a one and d numbers, and derivatives u and v."""

    gram: Tensor  # v_00 R R', (K, L, 1 + d, 1 + d)
    side: Tensor  # R v_0s', (K, L, 1 + d, m)
    inner: Tensor  # v_ss, (K, L, m, m)
    slope: Tensor  # u_0 R, (K, L, 1 + d)
    shape: Tensor  # u_s, (K, L, m)
    # of each block of indicators v_00 R, v_0s and u_0 by level, (K, L, size, 1 + d + m + 1)
    levels: list[Tensor]
    pairs: dict[tuple[int, int], Tensor]  # v_00 by the levels of two blocks, (K, size, other size)


@dataclass(frozen=True)
class LinearDesign(Batched):
    """A one and p features of the rows of K problems, z = (x - centre) / scale, made block by block."""

    matrix: SplitMatrices = field(metadata=SHARED)  # features x of S splits, (S, n, p)
    split: Tensor  # number of each problem's split, (K,)
    centre: Tensor  # shape (K, p)
    scale: Tensor  # shape (K, p); +inf for features that are zero, 1 for indicators that are stored as codes

    @classmethod
    def of(cls, design: Tensor) -> Self:
        """Of features as they are, (K, n, 1 + p), a one first."""
        x = design[..., 1:]
        like = x[:, 0]
        split = torch.arange(len(x), device=x.device)
        return cls(SplitMatrices.of(x), split, torch.zeros_like(like), torch.ones_like(like))

    @property
    def width(self) -> int:
        """Coefficients, 1 + p."""
        return 1 + self.centre.shape[-1]

    @property
    def without_features(self) -> LinearDesign:
        """The one alone."""
        nothing = self.centre[:, :0]
        return LinearDesign(self.matrix.features(slice(0, 0)), self.split, nothing, nothing)

    @cached_property
    def number_places(self) -> Tensor:
        """Positions of the one and of the numbers among the coefficients, (1 + d,)."""
        return torch.nn.functional.pad(self.matrix.places + 1, (1, 0))

    @cached_property
    def level_places(self) -> list[Tensor]:
        """Positions of the indicators of each block among the coefficients."""
        device = self.centre.device
        return [
            torch.arange(1 + first, 1 + first + size, device=device) for first, size in self.matrix.blocks
        ]

    @property
    def eliminated(self) -> tuple[int, int]:
        """First coefficient and size of the largest block of indicators; (0, 0) if there is none."""
        if not self.matrix.blocks:
            return 0, 0
        first, size = max(self.matrix.blocks, key=lambda block: block[1])
        return 1 + first, size

    def form(self, n_coefficients: int) -> Tensor | None:
        """The intercept as :class:`~sstorch.optim.hessian.Hessian` needs it, (K, D)."""
        if not self.matrix.blocks:
            return None
        out = self.centre.new_zeros(len(self.centre), n_coefficients)
        out[:, 0] = 1.0
        for places in self.level_places:
            out[:, places] = self._centre_of_levels(places)
        return out

    def dense(self) -> Tensor:
        """The one and the features of all rows, (K, n, 1 + p), for few rows."""
        x = self.matrix.to_dense()[self.split].to(self.centre)
        return torch.nn.functional.pad((x - self.centre[:, None]) / self.scale[:, None], (1, 0), value=1.0)

    def linear(self, theta: Tensor, rows: slice = slice(None)) -> Tensor:
        """Linear predictors (K, L, rows) for L vectors of coefficients, (K, L, 1 + p)."""
        first, last, _ = rows.indices(self.matrix.n_rows)
        out = theta.new_empty(*theta.shape[:2], last - first)
        numbers = theta[..., self.number_places]
        tables = []
        for places in self.level_places:
            own = theta[..., places] * self._is_free(places)[:, None]
            numbers[..., 0] -= (own * self._centre_of_levels(places)[:, None]).sum(-1)
            tables.append(torch.nn.functional.pad(own, (0, 1)))
        for k in range(len(theta)):
            end = max(first, min(last, len(self.matrix[int(self.split[k])])))
            out[k, :, end - first :] = 0.0
            for block in row_blocks(end - first, len(self.number_places), _ELEMENTS):
                z, codes = self._block(k, slice(first + block.start, first + block.stop))
                part = torch.matmul(numbers[k], z.mT)
                for table, code in zip(tables, codes, strict=True):
                    part += table[k].index_select(-1, code)
                out[k, :, block] = part
        return out

    def moments(self, first: Tensor, second: Tensor, members: Sequence[Sequence[slice | Tensor]]) -> Moments:
        """Sums by `members` of derivatives of rows, first (K, n, 1 + m) and second (K, n, 1 + m, 1 + m)."""
        n_problems, n_groups, m = len(first), len(members[0]), first.shape[-1] - 1
        width = len(self.number_places)
        half = width // 2  # the lower left quarter of a Gram matrix is the upper right one
        sums = first.new_zeros(n_problems, n_groups, width, width + m + 1)
        inner = first.new_zeros(n_problems, n_groups, m, m)
        shape = first.new_zeros(n_problems, n_groups, m)
        sizes = [size for _, size in self.matrix.blocks]
        levels = [first.new_zeros(n_problems, n_groups, size + 1, width + m + 1) for size in sizes]
        pairs = {
            (i, j): first.new_zeros(n_problems, sizes[i] + 1, sizes[j] + 1)
            for j in range(len(sizes))
            for i in range(j)
        }
        for k, groups in enumerate(members):
            for group, rows in enumerate(groups):
                for block in self._blocks(rows):
                    z, codes = self._block(k, block)
                    u, v = first[k, block], second[k, block]
                    right = torch.cat([z * v[:, :1, 0], v[:, 0, 1:], u[:, :1]], 1)
                    sums[k, group, :half] += torch.matmul(z[:, :half].mT, right)
                    sums[k, group, half:, half:] += torch.matmul(z[:, half:].mT, right[:, half:])
                    inner[k, group] += v[:, 1:, 1:].sum(0)
                    shape[k, group] += u[:, 1:].sum(0)
                    for table, code in zip(levels, codes, strict=True):
                        table[k, group].index_add_(0, code, right)
                    for (i, j), table in pairs.items():
                        at = codes[i] * (sizes[j] + 1) + codes[j]
                        table[k].view(-1).index_add_(0, at, v[:, 0, 0].contiguous())
        sums[..., half:, :half] = sums[..., :half, half:width].mT
        free = [self._is_free(places) for places in self.level_places]
        return Moments(
            sums[..., :width],
            sums[..., width:-1],
            inner,
            sums[..., -1],
            shape,
            [table[:, :, :-1] * own[:, None, :, None] for table, own in zip(levels, free, strict=True)],
            {
                (i, j): table[:, :-1, :-1] * free[i][..., None] * free[j][:, None]
                for (i, j), table in pairs.items()
            },
        )

    def _centre_of_levels(self, places: Tensor) -> Tensor:
        return self.centre[:, places - 1] * self._is_free(places)

    def _is_free(self, places: Tensor) -> Tensor:
        """1 for indicators that have a coefficient, 0 for those that are the same in all rows, (K, size)."""
        return self.scale[:, places - 1].isfinite().to(self.centre)

    def _blocks(self, rows: slice | Tensor) -> Iterator[slice | Tensor]:
        if isinstance(rows, Tensor):
            yield from rows.split(at_once(len(self.number_places), _ELEMENTS))
        else:
            yield from row_blocks(rows.stop, len(self.number_places), _ELEMENTS)

    def _block(self, problem: int, rows: slice | Tensor) -> tuple[Tensor, list[Tensor]]:
        """A one and the standardised numbers of rows of a problem, (b, 1 + d), and codes of blocks, (b,)."""
        matrix, places = self.matrix[int(self.split[problem])][rows], self.matrix.places
        inverse = 1 / self.scale[problem, places]
        z = inverse.new_empty(len(matrix), 1 + len(places))
        z[:, 0] = 1.0
        torch.addcmul(
            -self.centre[problem, places] * inverse, matrix.numbers.to(inverse), inverse, out=z[:, 1:]
        )
        return z, list(matrix.codes.long().mT.contiguous())
