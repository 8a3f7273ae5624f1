"""Trees of depth up to 2 with the largest area under the ROC curve of their leaves, of all trees."""

from __future__ import annotations

import numpy as np

from sstorch._types import FloatArray, IntArray
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
def _best_areas(total, sides, cells, min_leaf, most, area, tests):
    """Largest areas (4,) of trees of 0 to 3 tests, and their tests (4, 3): root, without it, with it, or -1.

    Sums (3, ...), of positives, of negatives and of rows: of all rows (3,), of those of each literal by sign
    (3, 2, F), and of the pairs of literals by sign (3, 2, 2, F, F). Areas without a tree are 0.
    """
    n = sides.shape[2]
    positive, negative = np.empty(4), np.empty(4)
    positive[0], negative[0] = total[0], total[1]
    area[0] = _area(positive, negative, 1, most)
    for root in range(n):
        if min(sides[2, 0, root], sides[2, 1, root]) < min_leaf:
            continue
        for first in range(-1, n):
            if first >= 0 and min(cells[2, 0, 0, root, first], cells[2, 0, 1, root, first]) < min_leaf:
                continue
            for second in range(-1, n):
                if second >= 0 and min(cells[2, 1, 0, root, second], cells[2, 1, 1, root, second]) < min_leaf:
                    continue
                k = 0
                for side in range(2):
                    test = second if side else first
                    if test < 0:
                        positive[k], negative[k] = sides[0, side, root], sides[1, side, root]
                        k += 1
                        continue
                    for sign in range(2):
                        positive[k] = cells[0, side, sign, root, test]
                        negative[k] = cells[1, side, sign, root, test]
                        k += 1
                found = _area(positive, negative, k, most)
                if found > area[k - 1]:
                    area[k - 1] = found
                    tests[k - 1, 0], tests[k - 1, 1], tests[k - 1, 2] = root, first, second
                if len(area) == 2:
                    break
            if len(area) == 2:
                break


def largest_areas(
    total: FloatArray, sides: FloatArray, cells: FloatArray, min_leaf: int, most: float, depth: int
) -> tuple[FloatArray, IntArray]:
    """Largest areas up to `most` false positives, and the tests, of trees of depth 1 or 2: `_best_areas`."""
    area, tests = np.zeros(4 if depth > 1 else 2), np.full((4, 3), -1, dtype=np.int64)
    total, sides, cells = (np.ascontiguousarray(array) for array in (total, sides, cells))
    _best_areas(total, sides, cells, float(min_leaf), float(most), area, tests)
    return area, tests
