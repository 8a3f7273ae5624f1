"""Exact trees of other tasks beside pystreed and gosdt: training loss and time. See README.md here."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import peers
import sets
import torch

from sstorch.exact import (
    Classification,
    CostSensitive,
    DecisionCosts,
    FeatureCosts,
    LeastSquares,
    Policy,
    Task,
    policy_scores,
    solve,
)
from sstorch.exact.problem import total_branch_cost

HERE = Path(__file__).parent


@dataclass
class Cell:
    """One comparison: what to solve, within which budget, and the peer that solves it, too."""

    group: str
    name: str
    features: Any
    depth: int
    task: Task
    peer: Callable[[], peers.Found]
    penalty: float = 0.0


def accuracy(given: argparse.Namespace) -> Iterator[Cell]:
    """Misclassification, and with classes that count alike."""
    from pystreed import STreeDClassifier

    sizes = {"iris": 10, "wine": 5, "breast_cancer": 3, "pima": 8, "titanic": 10, "default": 10, "digits": 1}
    for name, thresholds in sizes.items():
        rows = sets.classes(name, thresholds)
        X, y = rows.features, rows.targets["labels"]
        for group in ("accuracy", "balanced-accuracy"):
            task = Classification(y, balanced=group == "balanced-accuracy")
            for depth in given.depths:

                def solver(group: str = group, depth: int = depth) -> Any:
                    return STreeDClassifier(group, max_depth=depth, time_limit=given.limit)

                yield Cell(group, name, X, depth, task, lambda X=X, y=y, f=solver: peers.streed(f, X, y))


def sparse(given: argparse.Namespace) -> Iterator[Cell]:
    """Misclassification and λ per leaf, beside gosdt."""
    shapes = {"monk1_rule": (0, 5), "iris": (10, 3), "wine": (3, 3), "breast_cancer": (1, 3), "pima": (4, 3)}
    if given.gosdt_datasets is not None:
        shapes |= {
            "monk1": (1, 4),
            "monk1_short": (1, 5),
            "monk2": (1, 4),
            "tic-tac-toe": (1, 4),
            "compas": (10, 4),
        }
    for name, (thresholds, depth) in shapes.items():
        rows = sets.classes(name, thresholds, given.gosdt_datasets)
        X, y = rows.features, rows.targets["labels"]
        for penalty in (0.03125, 0.01, 0.005):
            task = Classification(y)

            def run(X: Any = X, y: Any = y, penalty: float = penalty, depth: int = depth) -> peers.Found:
                return peers.gosdt(X, y, penalty, depth, time_limit=int(given.limit))

            yield Cell("gosdt", f"{name}, λ = {penalty:g}", X, depth, task, run, penalty)


def horizon(given: argparse.Namespace) -> Iterator[Cell]:
    """Event before a horizon, weighted for censoring: for pystreed, costs of each row's own."""
    from pystreed import STreeDInstanceCostSensitiveClassifier

    for name in sets.HORIZONS:
        rows = sets.at_horizon(name, 5)
        X, y, w = rows.features, rows.targets["labels"], rows.targets["weights"]
        for depth in given.depths:
            costs = w[:, None] * (y[:, None] != np.arange(2))

            def solver(depth: int = depth) -> Any:
                return STreeDInstanceCostSensitiveClassifier(max_depth=depth, time_limit=given.limit)

            task = Classification(y, sample_weight=w)
            yield Cell("horizon", name, X, depth, task, lambda X=X, c=costs, f=solver: peers.streed(f, X, c))


def costs(given: argparse.Namespace) -> Iterator[Cell]:
    """Errors and tests that cost: prices of columns drawn once, groups of three columns."""
    from pystreed import STreeDCostSensitiveClassifier

    for name, thresholds in {"iris": 6, "pima": 4, "wine": 2, "titanic": 6}.items():
        rows = sets.classes(name, thresholds)
        X, y = rows.features, rows.targets["labels"]
        rng = np.random.default_rng(0)
        names = list(dict.fromkeys(rows.origin))
        prices = {column: round(float(rng.uniform(1, 10)), 2) for column in names}
        groups = {f"group {j}": names[j : j + 3] for j in range(0, len(names), 3)}
        less = {column: round(price * float(rng.uniform(0.2, 0.9)), 2) for column, price in prices.items()}
        n_classes = int(y.max()) + 1
        matrix = rng.integers(20, 120, (n_classes, n_classes)) * (1 - np.eye(n_classes))
        listed = FeatureCosts.of(rows.origin, prices, groups, less)
        task = CostSensitive(y, cost_matrix=matrix, feature_costs=listed)
        specified = peers.streed_costs(task)
        for depth in given.depths:

            def solver(depth: int = depth) -> Any:
                return STreeDCostSensitiveClassifier(max_depth=depth, time_limit=given.limit)

            def run(X: Any = X, y: Any = y, c: Any = specified, f: Any = solver) -> peers.Found:
                return peers.streed(f, X, y, c)

            yield Cell("cost-sensitive", name, X, depth, task, run)


def policy(given: argparse.Namespace) -> Iterator[Cell]:
    """Treatments, by three kinds of scores."""
    from pystreed import STreeDPrescriptivePolicyGenerator

    kinds = {"direct": "DM", "ipw": "IPW", "doubly_robust": "DR"}
    for name in ("gbsg2", "aids", "lalonde"):
        rows = sets.treatments(name, 5)
        X, t = rows.features, rows.targets
        target = np.column_stack([t["treatment"], t["outcome"], t["propensity"], t["predicted"]])
        for method, teacher in kinds.items():
            task = Policy(policy_scores(method, **t))
            for depth in given.depths:

                def solver(teacher: str = teacher, depth: int = depth) -> Any:
                    return STreeDPrescriptivePolicyGenerator(
                        teacher_method=teacher, max_depth=depth, time_limit=given.limit
                    )

                def run(X: Any = X, y: Any = target, f: Any = solver) -> peers.Found:
                    return peers.streed(f, X, y)

                yield Cell("policy", f"{name}, {method}", X, depth, task, run)


def regression(given: argparse.Namespace) -> Iterator[Cell]:
    """Squared error, and with a penalty per leaf."""
    from pystreed import STreeDRegressor

    for name in ("diabetes", "boston", "cps1985", "wage"):
        rows = sets.numbers(name, 5)
        X, y = rows.features, rows.targets["y"]
        for group in ("regression", "cost-complex-regression"):
            for depth in given.depths:
                share = 0.01 if group.startswith("cost") else 0.0

                def solver(group: str = group, depth: int = depth) -> Any:
                    return STreeDRegressor(
                        group, max_depth=depth, cost_complexity=0.01, time_limit=given.limit
                    )

                def run(X: Any = X, y: Any = y, f: Any = solver) -> peers.Found:
                    return peers.streed(f, X, y)

                yield Cell(group, name, X, depth, LeastSquares(y), run, share * float(y.var()))


def instance(given: argparse.Namespace) -> Iterator[Cell]:
    """Costs of each row's own under each of three decisions, drawn at random."""
    from pystreed import STreeDInstanceCostSensitiveClassifier

    for name, thresholds in {"iris": 6, "pima": 5, "wine": 3}.items():
        rows = sets.classes(name, thresholds)
        X, y = rows.features, rows.targets["labels"]
        own = np.random.default_rng(0).exponential(1.0 + (y[:, None] == np.arange(3)), (len(y), 3))
        for depth in given.depths:

            def solver(depth: int = depth) -> Any:
                return STreeDInstanceCostSensitiveClassifier(max_depth=depth, time_limit=given.limit)

            yield Cell(
                "instance costs",
                name,
                X,
                depth,
                DecisionCosts(own),
                lambda X=X, c=own, f=solver: peers.streed(f, X, c),
            )


GROUPS = {
    "accuracy": accuracy,
    "sparse": sparse,
    "horizon": horizon,
    "instance": instance,
    "costs": costs,
    "policy": policy,
    "regression": regression,
}


def compare(cell: Cell, repeats: int) -> dict[str, object]:
    """Take turns, in processor time; losses of both trees are recomputed from the rows by the same code."""
    theirs, ours = [], []
    for _ in range(repeats):
        found = cell.peer()
        begin = time.process_time()
        solution = solve(cell.features, cell.task, cell.depth, leaf_penalty=cell.penalty)
        tree = solution.tree()
        ours.append(time.process_time() - begin)
        theirs.append(found.seconds)
    if solution.certificate != "optimal":
        raise RuntimeError(f"{cell.name}: {solution.certificate}")

    def objective(tree: Any) -> float:
        leaf = tree.apply(cell.features)
        paid = total_branch_cost(cell.task, tree, leaf)
        return cell.task.loss(leaf) + paid + cell.penalty * tree.n_leaves

    own, other = objective(tree), objective(found.tree)
    if own > other + 1e-8 * max(1.0, abs(other)):
        raise RuntimeError(f"{cell.name}, depth {cell.depth}: {own!r} is above the peer's {other!r}")
    return {
        "group": cell.group,
        "set": cell.name,
        "n": len(cell.features),
        "F": solution.counters.n_features,
        "depth": cell.depth,
        "leaves": tree.n_leaves,
        "objective": own,
        "excess": (other - own) / max(abs(own), 1e-300),
        "their_leaves": found.tree.n_leaves,
        "their_ms": 1e3 * statistics.median(theirs),
        "ms": 1e3 * statistics.median(ours),
        "ratio": statistics.median(a / b for a, b in zip(theirs, ours, strict=True)),
    }


def main() -> None:
    """Compare; write results.csv and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--depths", nargs="+", type=int, default=[2, 3, 4])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for a fit of the peer")
    parser.add_argument("--gosdt-datasets", type=Path, help="folder `datasets` of gosdt's source archive")
    parser.add_argument("--csv", type=Path, default=HERE / "results.csv")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for group in given.groups:
        for cell in GROUPS[group](given):
            try:
                rows.append(compare(cell, given.repeats))
            except RuntimeError as error:
                if "did not finish" not in str(error):
                    raise
                print(f"{cell.group}, {cell.name}, depth {cell.depth}: {error}", flush=True)
                continue
            print({k: v for k, v in rows[-1].items() if k != "their_leaves"}, flush=True)
            pd.DataFrame(rows).to_csv(given.csv, index=False, float_format="%.12g")
    print(markdown(pd.DataFrame(rows)))


def markdown(table: pd.DataFrame) -> str:
    """Tables for the README, one for each group."""
    parts = []
    for group, rows in table.groupby("group", sort=False):
        lines = [
            f"### {group}",
            "",
            "| set | n | F | depth | leaves | objective | their excess | theirs, ms | ms | ratio |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        for row in rows.itertuples():
            excess = "=" if abs(row.excess) <= 1e-8 else f"{row.excess:.1e}"
            cells = [row.set, row.n, row.F, row.depth, row.leaves, f"{row.objective:.8g}", excess]
            cells += [f"{row.their_ms:.4g}", f"{row.ms:.4g}", f"{row.ratio:.2f}"]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
        ratio = np.exp(np.log(rows["ratio"]).mean())
        low, high = rows["ratio"].min(), rows["ratio"].max()
        lines += ["", f"Geometric mean of the ratios {ratio:.2f} ({low:.2f} to {high:.2f})."]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
