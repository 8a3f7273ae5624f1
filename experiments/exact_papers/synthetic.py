"""Optimal and heuristic survival trees on SurTree's synthetic data: see synthetic.md here.

    python experiments/exact_papers/synthetic.py training    # training scores and times by depth
    python experiments/exact_papers/synthetic.py test        # test scores by number of rows
    python experiments/exact_papers/synthetic.py tables      # means of both as Markdown

Rows that the csv file of a part has already are kept, so that a part can be run in pieces.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from heuristics import ctree, greedy, local_search
from sksurv.tree import SurvivalTree
from sksurv.util import Surv
from synthetic_sets import sample

from sstorch import OptimalSurvivalTreeCV, SurvivalData, metrics
from sstorch.bench.baselines.models import leaf_of
from sstorch.data import stratified_folds
from sstorch.exact import Binarizer, LogLikelihood, solve
from sstorch.exact.leaf_curves import BaselineHazard
from sstorch.exact.rows import weighted_rows
from sstorch.exceptions import DataWarning
from sstorch.metrics.groups import KaplanMeier

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "scripts"))  # of optimal_peers and optimal_sets

import optimal_peers as peers  # noqa: E402
import optimal_sets as sets  # noqa: E402

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
# A cell's key, and the work that gives its rows.
Cells = list[tuple[tuple[object, ...], Callable[[], list[dict[str, Any]]]]]
# A fitted tree: the leaf of each row. Trees of several sizes fitted to each of several tables.
Apply = Callable[[pd.DataFrame], IntArray]
Candidates = Callable[[list[SurvivalData]], list[list[Apply]]]
# Training rows, other rows and their hazard ratios to a number; higher is better.
Criterion = Callable[[SurvivalData, SurvivalData, FloatArray], float]

N_TEST, N_FOLDS = 50_000, 10
# Largest training set; smaller ones are its first rows.
N_TRAIN = 5000
TEST_DEPTHS = (1, 2, 3, 4)
MINCRITERIA = (0.9, 0.925, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999)


def seconds() -> float:
    """Processor seconds of this process and of the programs that it has run."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def training(given: argparse.Namespace) -> Cells:
    """Cells of the part training: set, censored share and depth."""

    def synthetic(copies: int, censored: float, seed: int) -> sets.Rows:
        data, _ = sample(seed, N_TRAIN + N_TEST, censored, copies)
        rows = data.subset(np.arange(N_TRAIN + N_TEST) < N_TRAIN)
        features = Binarizer("surtree").fit_transform(rows.frame)
        return sets.Rows(features, [], {"time": rows.time, "event": rows.event})

    drawn = itertools.product(given.copies, given.censored, given.seeds)
    loads = [(f"f{f} {seed}", c, partial(synthetic, f, c, seed)) for f, c, seed in drawn]
    loads += [(name, np.nan, partial(sets.surtree, name)) for name in given.sets]
    return [
        ((name, censored, depth), partial(_training_cell, load, depth, given.peer))
        for name, censored, load in loads
        for depth in given.depths
    ]


def _training_cell(load: Callable[[], sets.Rows], depth: int, peer: bool) -> list[dict[str, Any]]:
    data = load()
    time, event = data.targets["time"], data.targets["event"]
    task = LogLikelihood(time, event)
    x = np.asarray(data.features, dtype=np.float32)
    y = Surv.from_arrays(event, time)

    def optimal() -> IntArray:
        own = LogLikelihood(time, event)
        return solve(data.features, own, depth).tree().apply(data.features)

    def sksurv() -> IntArray:
        tree = SurvivalTree(max_depth=depth, min_samples_split=2, min_samples_leaf=1, random_state=0)
        return tree.fit(x, y).apply(x)

    methods: dict[str, Callable[[], IntArray]] = {
        "optimal": optimal,
        "local search": lambda: local_search(x, task, depth, n_starts=100).apply(x),
        "greedy": lambda: greedy(x, task, depth).apply(x),
        "scikit-survival": sksurv,
    }
    optimal()  # loads the machine code
    found = []
    for method, fit in methods.items():
        begin = seconds()
        leaf = fit()
        found.append((method, leaf, seconds() - begin))
    table = pd.DataFrame(x, columns=[f"x{j}" for j in range(x.shape[1])])
    table = table.assign(time=time, event=event.astype(int))
    # As partykit grows it, and divided as long as the depth allows.
    for method, sizes in (("CTree", (0.95, 20, 7)), ("CTree (whole)", (0.0, 2, 1))):
        tree = ctree({"a": table}, depth, *sizes)["a"]
        found.append((method, leaf_of(tree.nodes, x), tree.seconds))
    rows = []
    for method, leaf, took in found:
        numbers, place = np.unique(leaf, return_inverse=True)
        rows.append({"method": method, "loss": task.loss(place), "leaves": len(numbers), "seconds": took})
    if peer:
        run = peers.surtree(data.features, time, event, depth, limit=3600)
        loss, leaves = task.loss(run.tree.apply(data.features)), run.tree.n_leaves
        rows.append({"method": "pystreed", "loss": loss, "leaves": leaves, "seconds": run.seconds[1]})
    single = task.loss(np.zeros(len(x), dtype=np.int64))
    shape = {"rows": len(x), "features": x.shape[1]}
    return [shape | row | {"score": 1.0 - row["loss"] / single} for row in rows]


def test(given: argparse.Namespace) -> Cells:
    """Cells of the part test: set, censored share and training rows."""
    cells = itertools.product(given.censored, given.seeds, given.sizes)
    return [((f"f1 {seed}", c, n), partial(_test_cell, c, seed, n)) for c, seed, n in cells]


def _test_cell(censored: float, seed: int, n: int) -> list[dict[str, Any]]:
    data, leaf = sample(seed, N_TRAIN + N_TEST, censored)
    place = np.arange(len(leaf))
    train, held_out = data.subset(place < n), data.subset(place >= N_TRAIN)
    rows = []
    for method, fit in METHODS.items():
        begin = seconds()
        apply = fit(train)
        took = seconds() - begin
        leaves = apply(train.frame), apply(held_out.frame)
        row = {"method": method, "leaves": len(np.unique(leaves[0])), **scores(train, held_out, *leaves)}
        rows.append(row | {"seconds": took})
    # The tree that generated the rows, with the estimates of the held-out rows themselves.
    truth = leaf[N_TRAIN:]
    best = scores(held_out, held_out, truth, truth)
    return [*rows, {"method": "generating tree", "leaves": len(np.unique(truth)), **best, "seconds": np.nan}]


def _optimal(train: SurvivalData) -> Apply:
    """The tree of SurTree: every budget of depth and nodes compared by the deviance of folds."""
    tree = OptimalSurvivalTreeCV(TEST_DEPTHS[-1], choose="budget", n_folds=N_FOLDS).fit(train.frame, train.y)
    return tree.apply


def _tuned(candidates: Candidates, criterion: Criterion, train: SurvivalData) -> Apply:
    """The candidate of the largest mean criterion over folds, fitted to all rows."""
    fold = stratified_folds(train.event, N_FOLDS, 0)
    *inner, final = candidates([*(train.subset(fold != number) for number in range(N_FOLDS)), train])
    found = []
    for number, fitted in enumerate(inner):
        part, held_out = train.subset(fold != number), train.subset(fold == number)
        if (held_out.time[held_out.event] < held_out.time.max()).any():  # else no pair is comparable
            ratios = [hazard_ratios(part, each(part.frame), each(held_out.frame)) for each in fitted]
            found.append([criterion(part, held_out, ratio) for ratio in ratios])
    return final[int(np.mean(found, axis=0).argmax())]


def _local(parts: list[SurvivalData]) -> list[list[Apply]]:
    def fitted(part: SurvivalData, depth: int) -> Apply:
        binarizer = Binarizer("surtree").fit(part.frame)
        tree = local_search(binarizer.transform(part.frame), LogLikelihood(part.time, part.event), depth)
        return lambda frame: tree.apply(binarizer.transform(frame))

    return [[fitted(part, depth) for depth in (0, *TEST_DEPTHS)] for part in parts]


def _ctree(parts: list[SurvivalData]) -> list[list[Apply]]:
    names = [str(number) for number in range(len(parts))]
    tables = {
        name: pd.DataFrame(_numbers(part.frame)).add_prefix("x").assign(time=part.time, event=part.event * 1)
        for name, part in zip(names, parts, strict=True)
    }
    trees = ctree(tables, TEST_DEPTHS[-1], mincriterion=min(MINCRITERIA))

    def fitted(name: str, depth: int, mincriterion: float) -> Apply:
        nodes = trees[name].pruned(mincriterion, depth)
        return lambda frame: leaf_of(nodes, _numbers(frame))

    sizes = list(itertools.product(TEST_DEPTHS, MINCRITERIA))
    return [[fitted(name, *size) for size in sizes] for name in names]


def _numbers(frame: pd.DataFrame) -> npt.NDArray[np.float32]:
    """Numbers as they are, a 0/1 column for each category."""
    return pd.get_dummies(frame, dtype=float).to_numpy(np.float32)


def hazard_ratios(train: SurvivalData, train_leaf: IntArray, leaf: IntArray) -> FloatArray:
    """Hazard ratio of the leaf of each other row by the training rows; 1 if it has no training row."""
    numbers, place = np.unique(train_leaf, return_inverse=True)
    ratio = LogLikelihood(train.time, train.event).decisions(place, len(numbers))
    at, known = _find(numbers, leaf)
    return np.where(known, ratio[at], 1.0)


def concordance(_: SurvivalData, held_out: SurvivalData, ratio: FloatArray) -> float:
    """Harrell's C of the hazard ratios."""
    return metrics.concordance_harrell((held_out.time, held_out.event), ratio)


def log_likelihood(train: SurvivalData, held_out: SurvivalData, ratio: FloatArray) -> float:
    """Mean of d log θ - θ Λ(t), Λ of the training rows: minus half the deviance, but for terms without θ."""
    hazard = BaselineHazard.of(weighted_rows(train.y, None)).at(held_out.time)
    return float((held_out.event * np.log(ratio) - ratio * hazard).mean())


def scores(
    train: SurvivalData, held_out: SurvivalData, train_leaf: IntArray, leaf: IntArray
) -> dict[str, float]:
    """Concordance, and 1 - IBS / IBS of Kaplan-Meier of Kaplan-Meier leaves."""
    grid = metrics.evaluation_times(held_out.time, train.time, "surtree")
    numbers = np.unique(train_leaf)
    subsets = [train_leaf == number for number in numbers] + [np.ones(len(train_leaf), dtype=np.bool_)]
    curves = np.stack([KaplanMeier.fit((train.time[rows], train.event[rows])).at(grid) for rows in subsets])
    at, known = _find(numbers, leaf)
    scaled = metrics.integrated_brier_score(
        (held_out.time, held_out.event),
        curves[np.where(known, at, len(numbers))],
        grid,
        train=(train.time, train.event),
        convention="surtree",
    )
    ratio = hazard_ratios(train, train_leaf, leaf)
    return {"c_harrell": concordance(train, held_out, ratio), "scaled_ibs": scaled}


def _find(numbers: IntArray, leaf: IntArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    at = np.minimum(np.searchsorted(numbers, leaf), len(numbers) - 1)
    return at, numbers[at] == leaf


# The criteria of the paper: the deviance for its own tree, Harrell's C for CTree.
METHODS: dict[str, Callable[[SurvivalData], Apply]] = {
    "optimal": _optimal,
    "local search": partial(_tuned, _local, log_likelihood),
    "CTree": partial(_tuned, _ctree, concordance),
}


def tables(folder: Path) -> None:
    """Print training scores and times by depth, and test scores by rows, as Markdown."""
    found = pd.read_csv(folder / "training.csv")
    found["f"] = np.where(found["censored"].isna(), "SurvSet", found["set"].str[:2])
    _markdown(found, ["f", "censored", "depth"], "score", "mean", "{:.4f}")
    timed = found[found["set"].isin(found["set"][found["method"] == "pystreed"])]
    _markdown(timed, ["f", "censored", "depth"], "seconds", "median", "{:.3g}")
    held_out = pd.read_csv(folder / "test.csv")
    for score in ("c_harrell", "scaled_ibs", "leaves", "seconds"):
        _markdown(held_out, ["censored", "n"], score, "mean", "{:.1f}" if score == "leaves" else "{:.3f}")


def _markdown(rows: pd.DataFrame, keys: list[str], value: str, average: str, number: str) -> None:
    wide = rows.pivot_table(value, keys, "method", average, sort=False, dropna=False).dropna(how="all")
    print(f"\n{value}, {average}\n\n| " + " | ".join([*keys, *wide]) + " |")
    print("|---" * (len(keys) + wide.shape[1]) + "|")
    for key, cells in zip(wide.index, wide.to_numpy(), strict=True):
        print("| " + " | ".join([*map(str, key), *(number.format(cell) for cell in cells)]) + " |")


def main() -> None:
    """Run the cells of a part that its file lacks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["training", "test", "tables"])
    parser.add_argument("--censored", nargs="*", type=float, default=[0.1, 0.5, 0.8])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--sizes", nargs="*", type=int, default=[100, 200, 500, 1000, 2000, 5000])
    parser.add_argument("--copies", nargs="*", type=int, default=[1], help="f of training")
    parser.add_argument("--sets", nargs="*", default=[], help="of SurvSet, of training")
    parser.add_argument("--depths", nargs="*", type=int, default=[2, 3, 4, 5], help="of training")
    parser.add_argument("--peer", action="store_true", help="training with pystreed")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the csv files")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", DataWarning)  # rare categories that a fold lacks
    if given.part == "tables":
        tables(given.out)
        return
    keys = ["set", "censored", "depth" if given.part == "training" else "n"]
    file = given.out / f"{given.part}.csv"
    done = set()
    if file.exists():
        done = set(pd.read_csv(file)[keys].drop_duplicates().fillna(-1).itertuples(index=False, name=None))
    for key, cell in {"training": training, "test": test}[given.part](given):
        if tuple(pd.Series(key).fillna(-1)) in done:
            continue
        table = pd.DataFrame(cell())
        for place, (name, value) in enumerate(zip(keys, key, strict=True)):
            table.insert(place, name, value)
        table.to_csv(file, mode="a", header=not file.exists(), index=False, float_format="%.8g")
        print(*key, flush=True)


if __name__ == "__main__":
    main()
