"""pystreed, osst and gosdt on a binary matrix: the tree that they find, and how long they take."""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch.exact import Classification
from sstorch.exact.tree import BinaryTree

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]


@dataclass
class Found:
    """A tree of a peer over the columns of the matrix, and the clock and processor seconds of its `fit`."""

    tree: BinaryTree
    seconds: tuple[float, float]
    solver: Any = None


class Stopwatch:
    """Seconds by the clock and of the process since the start."""

    def __init__(self) -> None:
        self._clock, self._process = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Both."""
        return time.perf_counter() - self._clock, time.process_time() - self._process


def streed(make: Callable[[], Any], features: BoolArray, *target: object, keep: bool = False) -> Found:
    """A tree of pystreed.

    Args:
        make: gives the solver.
        features: (N, p).
        target: what `fit` wants after X.
        keep: whether the solver is returned, too.
    """
    X, solver = features.astype(np.int32), make()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        watch = Stopwatch()
        solver.fit(X, *target)
        seconds = watch.read()
    if not solver.fit_result.is_optimal():
        raise RuntimeError("pystreed did not finish")

    def nested(node: Any) -> Any:
        if node.is_leaf_node():
            return None
        return node.feature, nested(node.left_child), nested(node.right_child)

    names = [f"x{j}" for j in range(X.shape[1])]
    return Found(BinaryTree.build(nested(solver.get_tree()), names), seconds, solver if keep else None)


def streed_costs(task: Classification) -> Any:
    """Costs of errors and of tests in pystreed's form; columns of an attribute have to be neighbours."""
    from pystreed.data import CostSpecifier, FeatureCostSpecifier

    prices, listed = task.feature_costs, []
    for number in range(len(prices.price)):
        columns = np.flatnonzero(prices.attribute == number)
        if (np.diff(columns) != 1).any():
            raise ValueError(f"the columns of attribute {number} are no neighbours")
        group = f"group {prices.group[number]}" if prices.group[number] >= 0 else f"alone {number}"
        price, less = float(prices.price[number]), float(prices.discounted[number])
        listed.append(FeatureCostSpecifier(price, less, group, int(columns[0]), int(columns[-1])))
    return CostSpecifier(task.cost_matrix.tolist(), listed)


def gosdt(features: BoolArray, labels: Sequence[Any], penalty: float, depth: int, **more: Any) -> Found:
    """A tree of gosdt.

    Args:
        features: (N, p).
        labels: (N,).
        penalty: λ, per leaf.
        depth: most tests on a path.
        more: to `GOSDTClassifier`.
    """
    from gosdt import GOSDTClassifier

    solver = GOSDTClassifier(regularization=penalty, depth_budget=depth, allow_small_reg=True, **more)
    with contextlib.redirect_stdout(io.StringIO()):
        watch = Stopwatch()
        solver.fit(features, np.asarray(labels))
        seconds = watch.read()
    if solver.result_.upperbound - solver.result_.lowerbound > 1e-6:
        raise RuntimeError("gosdt did not finish")

    def nested(node: Any) -> Any:
        if not hasattr(node, "feature"):
            return None
        return int(node.feature), nested(node.right_child), nested(node.left_child)

    names = [f"x{j}" for j in range(features.shape[1])]
    return Found(BinaryTree.build(nested(solver.trees_[0].tree), names), seconds)


def surtree(features: BoolArray, time: FloatArray, event: BoolArray, depth: int, limit: float) -> Found:
    """A tree of SurTree, pystreed's task of survival analysis."""
    from pystreed import STreeDSurvivalAnalysis

    class Solver(STreeDSurvivalAnalysis):  # type: ignore[misc]
        """With events that numpy 2.4 takes as positions in a list."""

        def _compute_baseline_cumulative_hazard_function(self, events: Any, times: Any) -> Any:
            return super()._compute_baseline_cumulative_hazard_function(events.astype(np.int64), times)

    y = np.array(list(zip(event, time, strict=True)), dtype=[("event", "?"), ("time", "<f8")])
    return streed(lambda: Solver(max_depth=depth, max_num_nodes=2**depth - 1, time_limit=limit), features, y)


@dataclass
class Objective:
    """An objective without a tree, leaves, and the clock and processor seconds of `fit`."""

    value: float
    leaves: int
    seconds: tuple[float, float]


def osst(
    features: BoolArray, time: FloatArray, event: BoolArray, budget: int, penalty: float, limit: float
) -> Objective:
    """The objective of osst, without guessed bounds; it works in float32, and gives no tree at its limit."""
    from osst.model.osst import OSST

    frame = pd.DataFrame(features.astype(int), columns=[f"f{j}" for j in range(features.shape[1])])
    outcome = pd.DataFrame({"event": event.astype(int)}), pd.DataFrame({"time": time})
    settings = {"regularization": penalty, "depth_budget": budget, "minimum_captured_points": 7}
    solver = OSST(settings | {"time_limit": limit})
    watch = Stopwatch()
    with contextlib.redirect_stdout(io.StringIO()):
        solver.fit(frame, *outcome)
    seconds = watch.read()
    if solver.ub != solver.lb:
        raise RuntimeError("osst did not finish")
    return Objective(float(solver.ub), int(solver.leaves()), seconds)
