"""Points that no other point beats in both costs."""

from __future__ import annotations

import torch
from torch import Tensor

from sstorch.exact.fronts.problem import REACHED, UNREACHABLE

# With so many different costs at most, the least of the other cost is kept for each.
_EVERY_VALUE = 1 << 16


def nondominated(first: Tensor, second: Tensor) -> Tensor:
    """Indices (m,) of the points that no other point beats in both costs, by increasing first cost.

    The costs are (n,) int64; unreachable points are excluded.
    """
    kept = torch.nonzero(first < REACHED)[:, 0]
    if not len(kept):
        return kept
    a, b = first[kept], second[kept]
    low = int(a.min())
    if int(a.max()) - low < max(_EVERY_VALUE, 4 * len(a)):
        return kept[_by_value(a - low, b)]
    rest = torch.nonzero(_not_beaten_by_smaller(a - low, b))[:, 0]
    kept, a, b = kept[rest], a[rest], b[rest]
    order = torch.argsort(b, stable=True)
    order = order[torch.argsort(a[order], stable=True)]
    a, b = a[order], b[order]
    return kept[order[_steps(a, b)]]


def _not_beaten_by_smaller(first: Tensor, second: Tensor) -> Tensor:
    """(n,) bool: the points, mostly few, that none in a bucket of smaller first costs beats."""
    bucket = first.div(int(first.max()) // _EVERY_VALUE + 1, rounding_mode="floor")
    least = torch.full((int(bucket.max()) + 1,), UNREACHABLE, dtype=torch.int64, device=first.device)
    least.scatter_reduce_(0, bucket, second, "amin")
    before = torch.cat([torch.full_like(least[:1], UNREACHABLE), least.cummin(0).values[:-1]])
    return second < before[bucket]


def nondominated_rows(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """The fronts (..., m) of many sets of points (..., n), by increasing first cost.

    Costs are `UNREACHABLE` where there is no point, and in the result beyond the end of each front.
    """
    first, second = _sorted(first, second)
    kept = _steps(first, second)
    size = int(kept.sum(-1).max()) if kept.numel() else 0
    place = torch.argsort(~kept, dim=-1, stable=True)[..., :size]
    there = kept.gather(-1, place)
    return (
        first.gather(-1, place).masked_fill(~there, UNREACHABLE),
        second.gather(-1, place).masked_fill(~there, UNREACHABLE),
    )


def _sorted(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Points sorted by their first, then their second cost, along the last axis."""
    there = first < REACHED
    if not there.any():
        return first, second
    lows = [int(cost[there].min()) for cost in (first, second)]
    sizes = [int(cost[there].max()) - low + 1 for cost, low in zip((first, second), lows, strict=True)]
    if sizes[0] * sizes[1] < UNREACHABLE:
        # Both costs in one number: one sort, and nothing to gather.
        key = ((first - lows[0]) * sizes[1] + (second - lows[1])).masked_fill_(~there, UNREACHABLE)
        key = key.sort(dim=-1).values
        quotient = key.div(sizes[1], rounding_mode="floor")
        costs = quotient + lows[0], key - quotient * sizes[1] + lows[1]
        beyond = key >= UNREACHABLE
        return costs[0].masked_fill_(beyond, UNREACHABLE), costs[1].masked_fill_(beyond, UNREACHABLE)
    order = torch.argsort(second, dim=-1, stable=True)
    first, second = first.gather(-1, order), second.gather(-1, order)
    order = torch.argsort(first, dim=-1, stable=True)
    return first.gather(-1, order), second.gather(-1, order)


def _steps(first: Tensor, second: Tensor) -> Tensor:
    """Where points sorted by first, then second cost are below all before them."""
    least = second.cummin(-1).values if second.numel() else second
    before = torch.cat([torch.full_like(least[..., :1], UNREACHABLE), least[..., :-1]], dim=-1)
    return (second < before) & (first < REACHED)


def _by_value(first: Tensor, second: Tensor) -> Tensor:
    """The front's indices where the first cost has few values: the least second cost for each."""
    size = int(first.max()) + 1
    least = torch.full((size,), UNREACHABLE, dtype=torch.int64, device=first.device)
    least.scatter_reduce_(0, first, second, "amin")
    front = _steps(torch.zeros_like(least), least)
    candidate = torch.nonzero(front[first] & (second == least[first]))[:, 0]
    one = torch.full((size,), len(first), dtype=torch.int64, device=first.device)
    one.scatter_reduce_(0, first[candidate], candidate, "amin")
    return one[front]
