"""Whether an objective of two totals keeps what a search for its front relies on."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sstorch.exceptions import ConfigError
from sstorch.optimal.fronts.base import FrontTask, IntArray, beats
from sstorch.optimal.fronts.problem import FrontProblem
from sstorch.optimal.patterns import Patterns, check_binary


def check_front_task(task: FrontTask, features: object, *, n_trials: int = 50, seed: int = 0) -> None:
    """Check on random leaves, trees and totals that a task is separable, as far as that can be tested.

    * Channels are integers, one for each row, and points are integers made of sums of channels.
    * The totals of a partition of the rows are the sums of its leaves' points, whatever their decisions.
    * Sums of points do not depend on their order or grouping (no overflow), and keep the task's order: what
      beats a point below a node also beats it when the same point is added to both.
    * The score never falls when a total improves.

    Args:
        task: the objective.
        features: binary matrix, (N, p), of the task's rows.
        n_trials: random partitions and pairs of totals.
        seed: of the random choices.

    Raises:
        ConfigError: the first promise that is not kept, with the numbers that show it.
        DataError: `features` is not binary.
    """
    matrix, _ = check_binary(features)
    channels = task.channels()
    if channels.dtype != np.int64 or channels.ndim != 2 or channels.shape[1] != task.n_rows:
        raise ConfigError(
            f"channels: expected int64 of shape (C, {task.n_rows}), got {channels.dtype} of {channels.shape}"
        )
    problem = FrontProblem.of(task, Patterns.of(matrix), 1, torch.device("cpu"))
    if problem.leaf.dtype != torch.int64 or problem.leaf.ndim != 2 or len(problem.leaf) != 2:
        raise ConfigError(
            f"points: expected int64 of shape (2, K, ...), got {problem.leaf.dtype} of "
            f"{tuple(problem.leaf.shape)}"
        )
    rng = np.random.default_rng(seed)
    reached = [_check_totals(task, rng) for _ in range(n_trials)]
    points = torch.from_numpy(np.array(reached).T)
    _check_order(task, points, rng)
    _check_score(task, np.array(reached), rng)


def _check_totals(task: FrontTask, rng: np.random.Generator) -> IntArray:
    """Totals of a random partition, which have to be the sum of its leaves' points."""
    n_leaves = int(rng.integers(1, min(8, task.n_rows) + 1))
    leaf = rng.permutation(np.arange(task.n_rows) % n_leaves)
    channels = task.channels()
    sums = np.stack([channels[:, leaf == number].sum(axis=1) for number in range(n_leaves)], axis=1)
    points = task.points(torch.from_numpy(sums)).numpy()
    decision = rng.integers(0, points.shape[1], n_leaves)
    expected = points[:, decision, np.arange(n_leaves)].sum(axis=1)
    totals: IntArray = np.asarray(task.totals(leaf, decision))
    if not np.array_equal(totals, expected):
        raise ConfigError(
            f"totals: a partition into {n_leaves} leaves has {totals.tolist()} by definition, but its points "
            f"add up to {expected.tolist()}: the task is not a sum over leaves"
        )
    return totals


def _check_order(task: FrontTask, points: Tensor, rng: np.random.Generator) -> None:
    """Addition is that of whole numbers, and keeps the order."""
    largest = int(points.abs().max())
    if largest >= 2**55:
        raise ConfigError(f"points: totals up to {largest} are too large, at most 2**55 is possible")
    n = points.shape[1]
    first, second, third = (torch.from_numpy(rng.integers(0, n, 20 * n)) for _ in range(3))
    a, c = points[:, first], points[:, third]
    gain = torch.from_numpy(rng.integers(0, max(2, largest // 8), (2, 20 * n)))
    if task.order == "balance":
        gain[1] = 0
    b = torch.where(torch.from_numpy(rng.random(20 * n) < 0.5), points[:, second], a + gain)
    better = beats(task.order, a, b)
    if not torch.equal((a + b) + c, a + (b + c)) or not beats(task.order, a + c, b + c)[better].all():
        raise ConfigError(
            f"order={task.order!r}: adding a point to two others changes which one beats the other"
        )


def _check_score(task: FrontTask, totals: IntArray, rng: np.random.Generator) -> None:
    """Between the least and largest totals met, a better total never has a smaller score."""
    low, high = totals.min(axis=0), totals.max(axis=0)
    if task.order == "balance":
        low[1], high[1] = 0, min(task.limit, int(np.abs(totals[:, 1]).max()))
    worse = rng.integers(low, high + 1, (400, 2))
    better = worse.copy()
    changed = rng.integers(0, 2, len(worse))
    rows = np.arange(len(worse))
    better[rows, changed] = rng.integers(low[changed], worse[rows, changed] + 1)
    fallen = np.flatnonzero(~(task.score(better) >= task.score(worse) - 1e-12))
    if len(fallen):
        i = fallen[0]
        raise ConfigError(
            f"score: totals {better[i].tolist()} are better than {worse[i].tolist()}, but score less: "
            f"{task.score(better[i : i + 1])[0]:.6g} < {task.score(worse[i : i + 1])[0]:.6g}"
        )
