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


@entry
def largest_areas(t, most, area, tests):
    """Largest areas up to `most` false positives of trees of 0, 1, ... tests; their tests, -1 for none."""
    fill_sides(t, -1)
    n = t.single.shape[2]
    positive, negative = np.empty(4), np.empty(4)
    positive[0], negative[0] = t.total[0, 0], t.total[0, 1]
    area[0] = _area(positive, negative, 1, most)
    last = n if len(area) > 2 else 0
    for root in range(n):
        fill_sides(t, root)
        if min(t.total[0, 2], t.total[1, 2]) < t.min_leaf:
            continue
        for first in range(-1, last):
            if first >= 0 and _smaller_part(t, 0, first) < t.min_leaf:
                continue
            for second in range(-1, last):
                if second >= 0 and _smaller_part(t, 1, second) < t.min_leaf:
                    continue
                k = 0
                for side in range(2):
                    test = second if side else first
                    positive[k], negative[k] = t.total[side, 0], t.total[side, 1]
                    if test >= 0:
                        k += 1
                        positive[k], negative[k] = t.single[side, 0, test], t.single[side, 1, test]
                        positive[k - 1] -= positive[k]
                        negative[k - 1] -= negative[k]
                    k += 1
                found = _area(positive, negative, k, most)
                if found > area[k - 1]:
                    area[k - 1] = found
                    tests[k - 1, 0], tests[k - 1, 1], tests[k - 1, 2] = root, first, second


@compiled
def _smaller_part(t, side, test):
    """Rows of a side without or with a feature, the fewer."""
    return min(t.single[side, 2, test], t.total[side, 2] - t.single[side, 2, test])
