"""pystreed and gosdt on a binary matrix: the tree that they find, and how long they take."""

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

from sstorch.exact import BinaryTree, CostSensitive

BoolArray = npt.NDArray[np.bool_]


@dataclass
class Found:
    """A tree of a peer over the columns of the matrix, and the processor seconds of its `fit`."""

    tree: BinaryTree
    seconds: float


def streed(make: Callable[[], Any], features: BoolArray, *target: object) -> Found:
    """A tree of pystreed.

    Args:
        make: gives the solver.
        features: (N, p).
        target: what `fit` wants after X.
    """
    X, solver = features.astype(np.int32), make()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        begin = time.process_time()
        solver.fit(X, *target)
        seconds = time.process_time() - begin
    if not solver.fit_result.is_optimal():
        raise RuntimeError("pystreed did not finish")

    def nested(node: Any) -> Any:
        if node.is_leaf_node():
            return None
        return node.feature, nested(node.left_child), nested(node.right_child)

    names = [f"x{j}" for j in range(X.shape[1])]
    return Found(BinaryTree.build(nested(solver.get_tree()), names), seconds)


def streed_costs(task: CostSensitive) -> Any:
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
        begin = time.process_time()
        solver.fit(features, np.asarray(labels))
        seconds = time.process_time() - begin
    if solver.result_.upperbound - solver.result_.lowerbound > 1e-6:
        raise RuntimeError("gosdt did not finish")

    def nested(node: Any) -> Any:
        if not hasattr(node, "feature"):
            return None
        return int(node.feature), nested(node.right_child), nested(node.left_child)

    names = [f"x{j}" for j in range(features.shape[1])]
    return Found(BinaryTree.build(nested(solver.trees_[0].tree), names), seconds)
