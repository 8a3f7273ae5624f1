"""Exact trees for objectives of two totals, beside pystreed: python experiments/optimal_fronts/study.py f1.

Parts: f1, fairness (with --depths and --sets), held_out, survival, auc. Tables are printed and written as CSV
files next to this one. Times are processor seconds of this process, medians of runs that take turns. pystreed
gets the same binary matrix; in the fairness tasks it has the sensitive column as its first one, on which it
never splits, and ours has it apart. Its trees are scored here, from their predictions.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from sets import CLASSES, GROUPS, TIMES, Rows, binary, load, survival_rows
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.tree import DecisionTreeClassifier

from sstorch.exact.fronts import (
    ConfusionFront,
    FairSurvival,
    GroupFairness,
    disparity,
    solve_front,
    solve_roc_hull,
)

FOLDER = Path(__file__).parent
sys.path.append(str(FOLDER.parents[1] / "scripts"))

TASKS = {"demographic_parity": "group-fairness", "equal_opportunity": "equality-of-opportunity"}


def seconds(function: Callable[[], object]) -> tuple[float, object]:
    """Processor seconds of a call, and what it returns."""
    begin = time.process_time()
    found = function()
    return time.process_time() - begin, found


def in_turns(ours: Callable[[], object], theirs: Callable[[], object], repeats: int):
    """Results of both, and median seconds."""
    runs = [(seconds(ours), seconds(theirs)) for _ in range(repeats)]
    times = [statistics.median(run[side][0] for run in runs) for side in (0, 1)]
    return runs[-1][0][1], runs[-1][1][1], times


def f1(options: argparse.Namespace) -> pd.DataFrame:
    """The largest F1 score: ours, pystreed's."""
    from pystreed import STreeDClassifier

    table = []
    for name in options.sets or CLASSES:
        rows = load(name)
        x = rows.features.to_numpy()
        for depth in options.depths:

            def ours(rows: Rows = rows, depth: int = depth) -> tuple[float, int]:
                found = solve_front(rows.features, ConfusionFront(rows.y), depth)
                return found.tree().score, len(found)

            def theirs(rows: Rows = rows, x: np.ndarray = x, depth: int = depth) -> STreeDClassifier:
                solver = STreeDClassifier(
                    "f1-score", max_depth=depth, max_num_nodes=2**depth - 1, time_limit=options.limit
                )
                return solver.fit(x, rows.y)

            (score, size), solver, times = in_turns(ours, theirs, options.repeats)
            other = f1_score(rows.y, solver.predict(x)) if solver.fit_result.is_optimal() else float("nan")
            table.append([name, *x.shape, depth, size, score, other, score - other, *times[::-1]])
            print(*table[-1], flush=True)
    columns = ["set", "n", "F", "depth", "front", "F1", "pystreed's", "difference", "pystreed, s", "s"]
    return pd.DataFrame(table, columns=columns)


def fairness(options: argparse.Namespace) -> pd.DataFrame:
    """Least errors under a limit: ours, pystreed's."""
    from pystreed import STreeDGroupFairnessClassifier

    table = []
    for name in options.sets or GROUPS:
        rows = load(name)
        x = np.column_stack([rows.group, rows.features.to_numpy()])
        for parity, task in TASKS.items():
            for depth in options.depths:
                for limit in options.limits:

                    def ours(rows=rows, parity=parity, depth=depth, limit=limit):  # type: ignore[no-untyped-def]
                        fair = GroupFairness(rows.y, rows.group, parity, max_disparity=limit)
                        found = solve_front(rows.features, fair, depth)
                        best = found.best()
                        tree = found.tree(best)
                        return int(tree.totals[0]), abs(found.values[best, 1]), len(found)

                    def theirs(rows=rows, x=x, task=task, depth=depth, limit=limit, parity=parity):  # type: ignore[no-untyped-def]
                        solver = STreeDGroupFairnessClassifier(
                            task,
                            discrimination_limit=limit,
                            max_depth=depth,
                            max_num_nodes=2**depth - 1,
                            time_limit=options.limit,
                        )
                        solver.fit(x, rows.y)
                        if not solver.fit_result.is_optimal():
                            return float("nan"), float("nan")
                        predicted = solver.predict(x)
                        true = rows.y if parity == "equal_opportunity" else None
                        return (predicted != rows.y).sum(), abs(disparity(predicted, rows.group, y=true))

                    own, other, times = in_turns(ours, theirs, options.repeats)
                    kept = other[1] <= limit + 1e-12
                    row = [name, x.shape[0], x.shape[1] - 1, parity, depth, limit, *own[:2], *other, kept]
                    table.append([*row, *times[::-1]])
                    print(*table[-1], flush=True)
    columns = ["set", "n", "F", "parity", "depth", "limit", "errors", "disparity"]
    columns += ["pystreed's errors", "its disparity", "keeps the limit", "pystreed, s", "s"]
    return pd.DataFrame(table, columns=columns)


def survival(options: argparse.Namespace) -> pd.DataFrame:
    """What a limit on the difference of predicted survival costs."""
    table = []
    for name, horizon in TIMES.items():
        frame, times, event, group = survival_rows(name)
        features = binary(frame)
        for depth in options.depths:
            for limit in (1.0, 0.1, 0.05, 0.02, 0.01):

                def run(limit: float = limit, depth: int = depth):  # type: ignore[no-untyped-def]
                    task = FairSurvival(times, event, group, horizon=horizon, max_disparity=limit)  # noqa: B023
                    found = solve_front(features, task, depth, min_leaf=len(group) // 50)  # noqa: B023
                    best = found.best()
                    return found.values[best], found.tree(best).tree.n_leaves, found.certificate

                spent, (values, n_leaves, certificate) = seconds(run)
                row = [name, *features.shape, horizon, depth, limit, *values, n_leaves, certificate, spent]
                table.append(row)
                print(*row, flush=True)
    columns = ["set", "n", "F", "horizon", "depth", "limit", "loss", "disparity", "leaves", "proof", "s"]
    return pd.DataFrame(table, columns=columns)


def auc(options: argparse.Namespace) -> pd.DataFrame:
    """The largest area at depth 2, beside that of a greedy tree and of the tree with fewest errors."""
    table = []
    for name in options.sets or CLASSES:
        rows = load(name)
        x = rows.features.to_numpy()
        spent, found = seconds(lambda rows=rows: solve_roc_hull(rows.features, rows.y))
        best = found.tree()
        area = roc_auc_score(rows.y, best.predict(x))
        greedy = DecisionTreeClassifier(max_depth=2, random_state=0).fit(x, rows.y)
        accurate = solve_front(rows.features, ConfusionFront(rows.y, metric="accuracy"), 2).tree().tree
        leaf = accurate.apply(x)
        rate = np.bincount(leaf, rows.y) / np.bincount(leaf)
        others = roc_auc_score(rows.y, greedy.predict_proba(x)[:, 1]), roc_auc_score(rows.y, rate[leaf])
        table.append([name, *x.shape, found.auc[-1], area - found.auc[-1], *others, spent])
        print(*table[-1], flush=True)
    columns = ["set", "n", "F", "AUC", "scikit-learn's score of it, difference", "greedy tree"]
    return pd.DataFrame(table, columns=[*columns, "tree of fewest errors", "s"])


def held_out(options: argparse.Namespace) -> pd.DataFrame:
    """Disparity on the training half, and on the other half with its own group sizes; means over splits."""
    table = []
    for name in options.sets or GROUPS:
        rows = load(name)
        x = rows.features.to_numpy()
        for parity in TASKS:
            for limit in (1.0, 0.05, 0.01):
                found = []
                for seed in range(20):
                    train = np.random.default_rng(seed).random(len(x)) < 0.5
                    task = GroupFairness(rows.y[train], rows.group[train], parity, max_disparity=limit)
                    tree = solve_front(x[train], task, 2, min_leaf=10).tree()
                    row = []
                    for part in (train, ~train):
                        y, predicted = rows.y[part], tree.predict(x[part])
                        true = y if parity == "equal_opportunity" else None
                        row += [(predicted != y).mean(), abs(disparity(predicted, rows.group[part], y=true))]
                    found.append([*row, row[3] > limit])
                table.append([name, parity, limit, *np.mean(found, axis=0)])
                print(*table[-1], flush=True)
    columns = ["set", "parity", "limit", "error", "disparity", "error, held out", "disparity, held out"]
    return pd.DataFrame(table, columns=[*columns, "share of splits beyond the limit"])


def main() -> None:
    """Run one part."""
    from parts import run_part

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="*")
    parser.add_argument("--depths", nargs="*", type=int, default=[2])
    parser.add_argument("--limits", nargs="*", type=float, default=[0.01, 0.05])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for pystreed")
    parts = {part.__name__: part for part in (f1, fairness, held_out, survival, auc)}
    run_part(parser, parts, FOLDER, "%.10g")


if __name__ == "__main__":
    main()
