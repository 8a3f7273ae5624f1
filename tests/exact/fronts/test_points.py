"""Fronts of points, and sums of points within a limit, compared with plain loops."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from sstorch.exact.fronts import search
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
def test_the_cheapest_pair_is_that_of_a_loop(seed, monkeypatch):
    monkeypatch.setattr(search, "CHUNK", 7)
    rng = np.random.default_rng(seed)
    sides = [torch.from_numpy(rng.integers(-40, 40, (2, rng.integers(1, 30)))) for _ in range(2)]
    limit = int(rng.integers(0, 30))
    least = float(rng.choice([10.0, float("inf")]))
    sums = [(one + other).tolist() for one in sides[0].T for other in sides[1].T]
    pairs = [(a, b) for a, b in sums if a < least and abs(b) <= limit]
    found = cheapest_pair(*sides, limit, least)
    if not pairs:
        assert found is None
        return
    cost, left, right = found
    assert cost == min(pairs)[0] == int(left[0] + right[0])
    assert tuple((left + right).tolist()) in pairs
    assert cheapest_pair(sides[0], sides[1][:, :0], limit, least) is None


@pytest.mark.parametrize("seed", range(8))
def test_best_rate_is_that_of_the_linear_program(seed):
    rng = np.random.default_rng(seed)
    trees = np.column_stack([rng.integers(5, 50, 9), rng.integers(-30, 30, 9)]).astype(np.float64)
    most = int(rng.choice([0, 3]))
    trees[0] = 60.0, 0.0  # within the limit, so that the bound is finite
    top, rate = search._top(trees, most)
    # Variables: the top, and the rate as a difference of two numbers >= 0.
    rows = np.column_stack([np.ones(9), most - trees[:, 1], most + trees[:, 1]])
    bounds = [(None, None), (0.0, None), (0.0, None)]
    program = linprog([-1.0, 0.0, 0.0], rows, trees[:, 0], bounds=bounds)
    assert top == pytest.approx(program.x[0], abs=1e-9)
    assert (trees[:, 0] + rate * trees[:, 1] - abs(rate) * most).min() == pytest.approx(top)
