"""Fronts of points, and sums of points within a limit, compared with plain loops."""

import numpy as np
import pytest
import torch

from sstorch.exact.fronts.nondominated import nondominated, nondominated_rows
from sstorch.exact.fronts.problem import UNREACHABLE
from sstorch.exact.fronts.search import cheapest_pair
from tests.exact.fronts import reference

RANGES = {"few values": 30, "many values": 1 << 17, "more than fit in one number": 1 << 50}


def random_points(seed, largest, shape):
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, np.pi / 2, shape)
    radius = np.where(rng.random(shape) < 0.5, 1.3, rng.uniform(0.97, 1.3, shape))  # 1.3 is the front
    points = np.stack([1.3 - radius * np.cos(angle), 1.3 - radius * np.sin(angle)])
    points = (points * largest).astype(np.int64)
    points[:, rng.random(shape) < 0.1] = UNREACHABLE
    return points


@pytest.mark.parametrize("largest", RANGES.values(), ids=RANGES)
@pytest.mark.parametrize("seed", range(3))
def test_fronts_are_those_of_a_loop(largest, seed):
    points = random_points(seed, largest, (4, 4000))
    rows = torch.stack(nondominated_rows(*torch.from_numpy(points))).numpy()
    for number in range(4):
        there = points[:, number, points[0, number] < UNREACHABLE]
        expected = reference.front(map(tuple, there.T.tolist()))
        index = nondominated(*torch.from_numpy(points[:, number]))
        assert [tuple(p) for p in points[:, number, index].T.tolist()] == expected
        found = rows[:, number]
        assert [tuple(p) for p in found[:, found[0] < UNREACHABLE].T.tolist()] == expected


def test_a_front_of_nothing():
    nothing = torch.full((3,), UNREACHABLE)
    assert len(nondominated(nothing, nothing)) == 0
    assert nondominated_rows(nothing[None], nothing[None])[0].shape == (1, 0)


@pytest.mark.parametrize("seed", range(40))
def test_the_cheapest_pair_is_that_of_a_loop(seed):
    rng = np.random.default_rng(seed)
    sides = []
    for _ in range(2):
        balance = np.unique(rng.integers(-40, 40, rng.integers(1, 30)))
        sides.append(torch.from_numpy(np.stack([rng.integers(0, 50, len(balance)), balance])))
    limit = int(rng.integers(0, 12))
    pairs = [
        (a + c, b + d) for a, b in sides[0].T.tolist() for c, d in sides[1].T.tolist() if abs(b + d) <= limit
    ]
    found = cheapest_pair(*sides, limit)
    if not pairs:
        assert found is None
        return
    cost, left, right = found
    assert cost == min(pairs)[0]
    assert tuple((left + right).tolist()) in pairs
    assert int(left[0] + right[0]) == cost
    assert cheapest_pair(sides[0], sides[1][:, :0], limit) is None
