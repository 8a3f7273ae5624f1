"""Sums over the rows of all four signs of every pair of literals."""

from __future__ import annotations

import torch
from torch import Tensor


def pair_cells(pairs: Tensor) -> Tensor:
    """Cells of the pairs {a, c}, by inclusion and exclusion.

    Args:
        pairs: (C, 1 + F, 1 + F) as `Moments.pairs` gives them: sums over the rows in which a and c are 1,
            the first of each axis asking for neither.

    Returns:
        (C, s_a, s_c, F, F), s = 1 where the literal is 1.
    """
    total, a, c, both = pairs[:, :1, :1], pairs[:, 1:, :1], pairs[:, :1, 1:], pairs[:, 1:, 1:]
    cells = pairs.new_empty(len(pairs), 2, 2, *both.shape[1:])
    cells[:, 1, 1] = both
    torch.sub(a, both, out=cells[:, 1, 0])
    torch.sub(c, both, out=cells[:, 0, 1])
    torch.sub(total - a, cells[:, 0, 1], out=cells[:, 0, 0])
    return cells
