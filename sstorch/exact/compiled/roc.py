"""Trees of depth up to 2 with the largest area under the ROC curve of their leaves, of all trees."""

from __future__ import annotations

import numpy as np

from sstorch.exact.compiled.fronts import fill_sides
from sstorch.optim.compiled.jit import compiled, entry


@compiled
def _area(positive, negative, k, most):
    """Area under the curve of k leaves up to `most` false positives; the leaves are then in its order."""
    for i in range(1, k):
        p, n, j = positive[i], negative[i], i
        while j > 0 and p * negative[j - 1] > positive[j - 1] * n:
            positive[j], negative[j] = positive[j - 1], negative[j - 1]
            j -= 1
        positive[j], negative[j] = p, n
    area, height, passed = 0.0, 0.0, 0.0
    for i in range(k):
        p, n = positive[i], negative[i]
        width = min(n, most - passed)
        if width > 0.0:
            area += width * (height + 0.5 * p * width / n)
        height += p
        passed += n
    return area


@compiled
def _split(t, root, sides, cells):
    """Sums (2, C) of the sides of a root, and (2, 2, C, F) of those without and with each feature."""
    n = t.single.shape[2]
    for c in range(len(t.moments)):
        present = t.single[0, c, root]
        sides[0, c], sides[1, c] = t.total[0, c] - present, present
        for x in range(n):
            both = present
            if x != root:
                both = t.pairs[0, c, t.binomials[max(x, root), 2] + min(x, root)]
            cells[1, 1, c, x], cells[1, 0, c, x] = both, present - both
            cells[0, 1, c, x] = t.single[0, c, x] - both
            cells[0, 0, c, x] = sides[0, c] - cells[0, 1, c, x]


@entry
def largest_areas(t, most, area, tests):
    """Largest areas up to `most` false positives of trees of 0, 1, ... tests, and their tests, -1 for none.

    `t` has the sums of positives, of negatives and of rows; `area` has 2 entries for stumps, 4 for depth 2.
    """
    fill_sides(t, -1)
    n = t.single.shape[2]
    positive, negative = np.empty(4), np.empty(4)
    sides, cells = np.empty((2, 3)), np.empty((2, 2, 3, n))
    positive[0], negative[0] = t.total[0, 0], t.total[0, 1]
    area[0] = _area(positive, negative, 1, most)
    last = n if len(area) > 2 else 0
    for root in range(n):
        _split(t, root, sides, cells)
        if min(sides[0, 2], sides[1, 2]) < t.min_leaf:
            continue
        for first in range(-1, last):
            if first >= 0 and min(cells[0, 0, 2, first], cells[0, 1, 2, first]) < t.min_leaf:
                continue
            for second in range(-1, last):
                if second >= 0 and min(cells[1, 0, 2, second], cells[1, 1, 2, second]) < t.min_leaf:
                    continue
                k = 0
                for side in range(2):
                    test = second if side else first
                    if test < 0:
                        positive[k], negative[k] = sides[side, 0], sides[side, 1]
                        k += 1
                        continue
                    for sign in range(2):
                        positive[k], negative[k] = cells[side, sign, 0, test], cells[side, sign, 1, test]
                        k += 1
                found = _area(positive, negative, k, most)
                if found > area[k - 1]:
                    area[k - 1] = found
                    tests[k - 1, 0], tests[k - 1, 1], tests[k - 1, 2] = root, first, second
