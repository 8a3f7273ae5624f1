"""Sums of points of two subtrees, a cost and a signed balance each, all integers."""

from __future__ import annotations

import numpy as np

from sstorch.exact.compiled.fronts import place
from sstorch.optim.compiled.jit import entry


@entry
def count_within(left, right, most, counts):
    """Number of sums of prices (F, M) and (F, M') of a root that are at most `most`, by root, in `counts`.

    Prices are increasing by root.
    """
    for x in range(len(left)):
        n, j = 0, right.shape[1]
        for i in range(left.shape[1]):
            while j > 0 and left[x, i] + right[x, j - 1] > most:
                j -= 1
            if j == 0:
                break
            n += j
        counts[x] = n


@entry
def points_within(left, left_price, right, right_price, most, begin, end, out):
    """Sums (2, n) of points (2, F, M) and (2, F, M') of the roots begin .. end - 1, as `count_within`."""
    n = 0
    for x in range(begin, end):
        for i in range(left_price.shape[1]):
            if left_price[x, i] + right_price[x, 0] > most:
                break
            for j in range(right_price.shape[1]):
                if left_price[x, i] + right_price[x, j] > most:
                    break
                out[0, n] = left[0, x, i] + right[0, x, j]
                out[1, n] = left[1, x, i] + right[1, x, j]
                n += 1


@entry
def cheapest_pair(left, right, limit, least):
    """Places of the left and the right point, (2, n) by increasing balance, of the least sum of costs.

    Sums have a balance within ± `limit` and a cost below `least`; (-1, -1) if there is none.
    """
    waiting, first, last, after = np.empty(right.shape[1], dtype=np.int64), 0, 0, 0
    best = -1, -1
    # From the largest balance on the left: the right points that go with it are a window that moves on.
    for i in range(left.shape[1] - 1, -1, -1):
        while after < right.shape[1] and right[1, after] <= limit - left[1, i]:
            # What is dearer than a later point of the window is never the cheapest one again.
            while last > first and right[0, waiting[last - 1]] >= right[0, after]:
                last -= 1
            waiting[last] = after
            last += 1
            after += 1
        while first < last and right[1, waiting[first]] < -limit - left[1, i]:
            first += 1
        if first < last and left[0, i] + right[0, waiting[first]] < least:
            least = left[0, i] + right[0, waiting[first]]
            best = i, waiting[first]
    return best


@entry
def add_balanced(left, right, limit, reached, front, size):
    """Add the sums of points of each root, (2, F, M) and (2, F, M'), to a front by cost and absolute balance.

    The front (2, >= size) has increasing costs and falling absolute balances, within ± `limit`; returns it
    and its size. Points with costs from `reached` on are none.
    """
    for x in range(left.shape[1]):
        for i in range(left.shape[2]):
            if left[0, x, i] >= reached:
                continue
            for j in range(right.shape[2]):
                cost, balance = left[0, x, i] + right[0, x, j], left[1, x, i] + right[1, x, j]
                if right[0, x, j] >= reached or abs(balance) > limit:
                    continue
                low = place(front, size, cost)
                if low > 0 and abs(front[1, low - 1]) <= abs(balance):
                    continue
                begin = low - 1 if low > 0 and front[0, low - 1] == cost else low
                end = begin
                while end < size and abs(front[1, end]) >= abs(balance):
                    end += 1
                if end == begin and size == front.shape[1]:
                    larger = np.empty((2, 2 * size + 1), dtype=np.int64)
                    larger[:, :size] = front
                    front = larger
                moved = front[:, end:size].copy()
                front[0, begin], front[1, begin] = cost, balance
                size += 1 - (end - begin)
                front[:, begin + 1 : size] = moved
    return front, size
