"""ROC curves of trees trained for six objectives, on training and test folds. See roc.md here.

A tree is scored twice: as a classifier, by the point of its classes, and as a ranking, by the area under the
curve of its leaves in the order of their share of positive training rows (in training its convex hull).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import RepeatedStratifiedKFold
from sklearn.tree import DecisionTreeClassifier

from sstorch.exact import Classification, solve
from sstorch.exact.fronts import confusion_front, solve_areas, solve_front
from sstorch.exact.tree import BinaryTree

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "scripts"))

import optimal_peers as peers  # noqa: E402
import optimal_sets as sets  # noqa: E402

# Thresholds of each column, the sets of scikit-learn and R first, then those of gosdt's source archive.
SETS = {"breast_cancer": 2, "pima": 8, "titanic": 10, "hmda": 5, "default": 10}
SETS |= {"monk2": 1, "tic-tac-toe": 1, "spiral": 20, "broward_general_2y": 3, "compas": 10}
SETS |= {"coupon_carryout": 1, "coupon_rest20": 1}
GOSDTS = list(SETS)[5:]
# Weights of a positive row, in units of the one that makes both classes count alike.
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0)

Scores = dict[str, float]


def points(predicted: list[np.ndarray], y: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rates of false and of true positives (k, 2) of classes (N,) among some rows."""
    return np.array([[each[rows & (y == label)].mean() for label in (0, 1)] for each in predicted])


def of_tree(
    tree: BinaryTree, X: np.ndarray, y: np.ndarray, train: np.ndarray, decide: float | np.ndarray = 1.0
) -> Scores:
    """Scores of a tree; its classes (L,), or the weight of a positive row by which leaves choose theirs."""
    leaf = tree.apply(X)
    positive = np.bincount(leaf[train], y[train], tree.n_leaves)
    negative = np.bincount(leaf[train], 1 - y[train], tree.n_leaves)
    classes = decide if isinstance(decide, np.ndarray) else positive * decide > negative
    return scored((positive / (positive + negative))[leaf], classes[leaf], y, train) | {
        "leaves": tree.n_leaves
    }


def scored(rate: np.ndarray, predicted: np.ndarray, y: np.ndarray, train: np.ndarray) -> Scores:
    """Areas and points of a ranking (N,) and classes (N,) in training and test rows."""
    found: Scores = {}
    for name, rows in (("train", train), ("test", ~train)):
        found[f"{name} AUC"] = float(roc_auc_score(y[rows], rate[rows]))
        found[f"{name} false positives"], found[f"{name} true positives"] = points([predicted], y, rows)[0]
    return found


def of_front(predicted: list[np.ndarray], y: np.ndarray, train: np.ndarray) -> Scores:
    """Area below the segments between the classifiers, (N,) each, on the convex hull of training rows.

    Test rows keep the order of training. A rule that draws one of two neighbours by lot has each point of a
    segment; (0, 0) and (1, 1) are its ends.
    """
    every = [np.zeros(len(y)), *predicted, np.ones(len(y))]
    place, hull = points(every, y, train), [0]
    for new in np.lexsort(place.T[::-1])[1:]:
        while len(hull) > 1:
            (dx, dy), (x, z) = place[hull[-1]] - place[hull[-2]], place[new] - place[hull[-2]]
            if dx * z < dy * x:
                break
            hull.pop()
        hull.append(int(new))
    found: Scores = {}
    for name, rows in (("train", train), ("test", ~train)):
        false, true = points([every[i] for i in hull], y, rows).T
        found[f"{name} AUC"] = float(np.trapezoid(true, false))
    return found


def methods(
    X: np.ndarray, y: np.ndarray, train: np.ndarray, depth: int, with_gosdt: bool
) -> Iterator[tuple[str, Scores]]:
    """Each objective's name and scores on one division of the rows."""
    A, b = X[train], y[train]
    even = float((b == 0).sum() / (b == 1).sum())
    weights = {"accuracy": 1.0, "balanced accuracy": even} | {w: even * w for w in WEIGHTS}
    tasks = {k: Classification(b, sample_weight=np.where(b == 1, w, 1.0)) for k, w in weights.items()}
    trees = {k: solve(A, task, depth).tree() for k, task in tasks.items()}
    exact = {k: of_tree(tree, X, y, train, weights[k]) for k, tree in trees.items()}

    def decided(tree: BinaryTree, weight: float) -> np.ndarray:
        positive, negative = (np.bincount(tree.apply(A), b == k, tree.n_leaves) for k in (1, 0))
        return (positive * weight > negative)[tree.apply(X)]

    for objective in ("accuracy", "balanced accuracy"):
        yield objective, exact[objective]
    yield "weighted accuracy, best of 5", max((exact[w] for w in WEIGHTS), key=lambda s: s["train AUC"])
    front = solve_front(A, confusion_front(b), depth)
    best = front.tree()
    yield "F1", of_tree(best.tree, X, y, train, best.decision.astype(bool))
    if depth <= 2:
        yield "AUC", of_tree(solve_areas(A, b, depth)[-1].tree, X, y, train)
    yield "front of 5 weights", of_front([decided(trees[w], weights[w]) for w in WEIGHTS], y, train)
    every = [front.tree(number).predict(X) for number in range(len(front.totals))]
    yield "front of all trees", of_front(every, y, train)

    cart: dict[float | None, tuple[Scores, np.ndarray]] = {}
    for w in (None, *WEIGHTS):
        share = None if w is None else {0: 1.0, 1: even * w}
        greedy = DecisionTreeClassifier(max_depth=depth, class_weight=share, random_state=0).fit(A, b)
        predicted = greedy.predict(X)
        scores = scored(greedy.predict_proba(X)[:, 1], predicted, y, train)
        cart[w] = scores | {"leaves": greedy.get_n_leaves()}, predicted
    yield "CART", cart[None][0]
    yield "CART, best of 5", max((cart[w][0] for w in WEIGHTS), key=lambda s: s["train AUC"])
    yield "CART, front of 5 weights", of_front([cart[w][1] for w in WEIGHTS], y, train)
    if with_gosdt:
        for objective in ("accuracy", "balanced accuracy"):
            # So small a penalty never pays for an error.
            penalty = 1.0 / (len(b) * 2.0 ** (depth + 1))
            tree = peers.gosdt(A, b, penalty, depth, balance=objective != "accuracy").tree
            losses = [tasks[objective].loss(each.apply(A)) for each in (trees[objective], tree)]
            if abs(losses[0] - losses[1]) > 1e-9:
                raise RuntimeError(f"{objective}: losses {losses[0]!r} and, by gosdt, {losses[1]!r}")
            yield f"gosdt, {objective}", of_tree(tree, X, y, train, weights[objective])


def main() -> None:
    """Write roc.csv, means over divisions, and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gosdt-datasets", type=Path, help="folder `datasets` of gosdt's source archive")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--depths", nargs="+", type=int, default=[2, 3])
    parser.add_argument("--repeats", type=int, default=2, help="of five folds")
    parser.add_argument("--gosdt-depths", nargs="*", type=int, default=[2])
    parser.add_argument("--csv", type=Path, default=HERE / "roc.csv")
    given = parser.parse_args()
    torch.set_num_threads(1)
    table = []
    for name in given.sets:
        if name in GOSDTS and given.gosdt_datasets is None:
            continue
        rows = sets.classes(name, SETS[name], given.gosdt_datasets)
        X, y = rows.features, rows.targets["labels"]
        for depth in given.depths:
            found = []
            folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=given.repeats, random_state=0)
            for division, (train, _) in enumerate(folds.split(X, y)):
                inside = np.isin(np.arange(len(y)), train)
                for objective, scores in methods(X, y, inside, depth, depth in given.gosdt_depths):
                    found.append({"division": division, "objective": objective, **scores})
            mean = pd.DataFrame(found).groupby("objective", sort=False).mean().drop(columns="division")
            mean = mean.reset_index()
            mean.insert(0, "depth", depth)
            mean.insert(0, "set", name)
            print(mean.round(4).to_string(index=False), flush=True)
            table.append(mean)
            pd.concat(table).to_csv(given.csv, index=False, float_format="%.5f")


if __name__ == "__main__":
    main()
