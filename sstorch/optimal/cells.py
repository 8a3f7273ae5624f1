"""From sums over products of literals to sums over all cells of a set of literals."""

from __future__ import annotations

import torch
from torch import Tensor


def expand(moments: Tensor, n_fixed: int, n_right: int) -> Tensor:
    """Sums of all cells of the sets {a} + fixed + right, by inclusion and exclusion.

    Args:
        moments: (C, 2 ..., A + 1, 1 + r ...), sums over the rows in which the literals are 1: `n_fixed` axes
            of length 2 (not asked for, asked for), the axis of a with "not asked for" last, and `n_right`
            axes with "not asked for" first.
        n_fixed: number of literals that all sets of the block share.
        n_right: 1 or 2.

    Returns:
        (C, s_a, s_fixed ..., s_right ..., A, r ...), s = 1 where the literal is 1; a new tensor.
    """
    right = moments.shape[-n_right:]
    size = moments.shape[-n_right - 1] - 1
    dims = (size, *(r - 1 for r in right))
    cells = moments.new_empty(len(moments), *(2,) * (1 + n_fixed + n_right), *dims)
    first = 2 + n_fixed  # axis of the first right-hand sign
    if n_right == 1:
        asked = cells.select(first, 1)
        _left(moments[..., 1:], n_fixed, asked)
        torch.sub(_left(moments[..., :1], n_fixed), asked, out=cells.select(first, 0))
        return cells
    with_first, without_first = cells.select(first, 1), cells.select(first, 0)
    both, alone = with_first.select(first, 1), with_first.select(first, 0)
    second = without_first.select(first, 1)
    _left(moments[..., 1:, 1:], n_fixed, both)
    only_first = _left(moments[..., 1:, :1], n_fixed)
    only_second = _left(moments[..., :1, 1:], n_fixed)
    none = _left(moments[..., :1, :1], n_fixed)
    torch.sub(only_first, both, out=alone)
    torch.sub(only_second, both, out=second)
    torch.sub(none - only_first, second, out=without_first.select(first, 0))
    return cells


def _left(moments: Tensor, n_fixed: int, out: Tensor | None = None) -> Tensor:
    """Signs of a and of the fixed literals: (C, 2 ..., A + 1, r ...) -> (C, s_a, s_fixed ..., A, r ...)."""
    axis = 1 + n_fixed
    size = moments.shape[axis] - 1
    with_a, without = moments.narrow(axis, 0, size), moments.narrow(axis, size, 1)
    if out is None:
        shape = list(with_a.shape)
        out = moments.new_empty(shape[0], 2, *shape[1:])
    alone = moments.new_empty(without.shape)
    _signs(with_a, n_fixed, out.select(1, 1))
    _signs(without, n_fixed, alone)
    torch.sub(alone, out.select(1, 1), out=out.select(1, 0))
    return out


def _signs(moments: Tensor, n_fixed: int, out: Tensor) -> None:
    """Signs of the fixed literals: index 1 asks for the literal, index 0 for its absence."""
    if n_fixed == 0:
        out.copy_(moments)
    elif n_fixed == 1:
        out[:, 1] = moments[:, 1]
        torch.sub(moments[:, 0], moments[:, 1], out=out[:, 0])
    else:
        out[:, 1, 1] = moments[:, 1, 1]
        torch.sub(moments[:, 1, 0], moments[:, 1, 1], out=out[:, 1, 0])
        torch.sub(moments[:, 0, 1], moments[:, 1, 1], out=out[:, 0, 1])
        torch.sub(moments[:, 0, 0] - moments[:, 0, 1], out[:, 1, 0], out=out[:, 0, 0])
