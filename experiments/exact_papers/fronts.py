"""What limits on disparity cost and whether they hold: python experiments/exact_papers/fronts.py held_out.

Parts: held_out, auc. Tables are printed and written as CSV files next to this one; times are
processor seconds. F1 and limits compared with pystreed: `scripts/bench_optimal f1 parity`.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score
from sklearn.tree import DecisionTreeClassifier

from sstorch.exact.fronts import (
    confusion_front,
    group_fairness,
    solve_areas,
    solve_front,
)

FOLDER = Path(__file__).parent
sys.path.append(str(FOLDER.parents[1] / "scripts"))

from optimal_sets import CLASSES, GROUPS, groups  # noqa: E402

PARITIES = ["demographic_parity", "equal_opportunity"]


def seconds(function: Callable[[], object]) -> tuple[float, object]:
    """Processor seconds of a call, and what it returns."""
    begin = time.process_time()
    found = function()
    return time.process_time() - begin, found


def auc(options: argparse.Namespace) -> pd.DataFrame:
    """The largest area at depth 2, beside that of a greedy tree and of the tree with fewest errors."""
    table = []
    for name in options.sets or CLASSES:
        rows = groups(name)
        x = rows.features.to_numpy()
        spent, found = seconds(lambda rows=rows: solve_areas(rows.features, rows.y))
        best = found[-1]
        area = roc_auc_score(rows.y, best.predict(x))
        greedy = DecisionTreeClassifier(max_depth=2, random_state=0).fit(x, rows.y)
        accurate = solve_front(rows.features, confusion_front(rows.y, "accuracy"), 2).tree().tree
        leaf = accurate.apply(x)
        rate = np.bincount(leaf, rows.y) / np.bincount(leaf)
        others = roc_auc_score(rows.y, greedy.predict_proba(x)[:, 1]), roc_auc_score(rows.y, rate[leaf])
        table.append([name, *x.shape, best.score, area - best.score, *others, spent])
        print(*table[-1], flush=True)
    columns = ["set", "n", "F", "AUC", "scikit-learn's score of it, difference", "greedy tree"]
    return pd.DataFrame(table, columns=[*columns, "tree of fewest errors", "s"])


def held_out(options: argparse.Namespace) -> pd.DataFrame:
    """Disparity on the training half, and on the other half with its own group sizes; means over splits."""
    table = []
    for name in options.sets or GROUPS:
        rows = groups(name)
        x = rows.features.to_numpy()
        for parity in PARITIES:
            for limit in (1.0, 0.05, 0.01):
                found = []
                for seed in range(20):
                    train = np.random.default_rng(seed).random(len(x)) < 0.5
                    task = group_fairness(rows.y[train], rows.group[train], parity, max_disparity=limit)
                    tree = solve_front(x[train], task, 2, min_leaf=10).tree()
                    row = []
                    for part in (train, ~train):
                        y, predicted = rows.y[part], tree.predict(x[part])
                        compared = (y == 1) | (parity == "demographic_parity")
                        shares = [predicted[compared & (rows.group[part] == g)].mean() for g in (0, 1)]
                        row += [(predicted != y).mean(), abs(shares[0] - shares[1])]
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
    parts = {part.__name__: part for part in (held_out, auc)}
    run_part(parser, parts, FOLDER, "%.10g")


if __name__ == "__main__":
    main()
