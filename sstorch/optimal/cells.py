"""From sums over products of literals to sums over all cells of a set of literals."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def left_signs(parts: Sequence[Tensor], out: Tensor | None = None) -> Tensor:
    """Signs of the first literal a and of the fixed literals, by inclusion and exclusion.

    Args:
        parts: 1, 2 or 4 tensors (C, A + 1, ...): sums over the rows in which a and the fixed literals are 1.
            The last entry of the axis of a asks for no a. The tensors ask for: nothing more; or nothing, the
            fixed literal; or nothing, the second, the first, both of two fixed literals.
        out: where to write, or None.

    Returns:
        (C, s_a, s_fixed ..., A, ...), s = 1 where the literal is 1.
    """
    n_fixed = len(parts).bit_length() - 1
    size, shape = parts[0].shape[1] - 1, parts[0].shape
    if out is None:
        out = parts[0].new_empty(shape[0], *(2,) * (1 + n_fixed), size, *shape[2:])
    present, absent = out.select(1, 1), out.select(1, 0)
    fixed_signs([part[:, :size] for part in parts], present)
    without = parts[0].new_empty(shape[0], *(2,) * n_fixed, 1, *shape[2:])
    fixed_signs([part[:, size:] for part in parts], without)
    torch.sub(without, present, out=absent)
    return out


def one_right(left: Tensor) -> Tensor:
    """Cells of the sets {a} + fixed + {c}.

    Args:
        left: (C, s ..., A, 1 + r) from `left_signs`, the last axis asking for nothing or for a feature c.

    Returns:
        (C, s ..., s_c, A, r).
    """
    *shape, size, right = left.shape
    cells = left.new_empty(*shape, 2, size, right - 1)
    cells.select(-3, 1).copy_(left[..., 1:])
    torch.sub(left[..., :1], left[..., 1:], out=cells.select(-3, 0))
    return cells


def two_right(parts: Sequence[Tensor], first: Tensor, second: Tensor, none: Tensor) -> Tensor:
    """Cells of the sets {a} + fixed + {c, d}.

    Args:
        parts: as in `left_signs`, (C, A + 1, n_c, n_d), with c and d asked for.
        first: (C, s ..., A, n_c, 1), signed as by `left_signs`, only c asked for.
        second: (C, s ..., A, 1, n_d), only d asked for.
        none: (C, s ..., A, 1, 1), neither.

    Returns:
        (C, s ..., s_c, s_d, A, n_c, n_d).
    """
    cells = none.new_empty(*none.shape[:-3], 2, 2, none.shape[-3], first.shape[-2], second.shape[-1])
    present, absent = cells.select(-5, 1), cells.select(-5, 0)
    both, neither_yet = present.select(-4, 1), absent.select(-4, 1)
    left_signs(parts, out=both)
    torch.sub(first, both, out=present.select(-4, 0))
    torch.sub(second, both, out=neither_yet)
    torch.sub(none - first, neither_yet, out=absent.select(-4, 0))
    return cells


def fixed_signs(parts: Sequence[Tensor], out: Tensor) -> None:
    """(C, s_fixed ..., ...) from sums with and without each fixed literal."""
    if len(parts) == 1:
        out.copy_(parts[0])
    elif len(parts) == 2:
        free, asked = parts
        out[:, 1] = asked
        torch.sub(free, asked, out=out[:, 0])
    else:
        free, second, first, both = parts
        out[:, 1, 1] = both
        torch.sub(first, both, out=out[:, 1, 0])
        torch.sub(second, both, out=out[:, 0, 1])
        torch.sub(free - second, out[:, 1, 0], out=out[:, 0, 0])
