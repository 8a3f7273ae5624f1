"""Group parity on Unemployment: see README.md here."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from figures import plot_curves_by_rho, plot_parity_by_rho, plot_scores_by_rho

from sstorch import GatePenalties, SoftSurvivalTree, SurvivalData, load_dataset
from sstorch.bench import fairness_path, leaf_table
from sstorch.bench.fairness import FairnessPath
from sstorch.optim import Nodec

HERE = Path(__file__).parent
PAPER = (0.0, 1.0, 5.0, 10.0, 15.0, 20.0)
BETWEEN = (0.003, 0.01, 0.03, 0.1, 0.3)
RHOS = tuple(sorted({*PAPER, *BETWEEN}))
MODES = {"paper": "l2", "relaxed": "l2_relaxed"}
SINGLE_FOLD = 0
SCORES = ("c_harrell", "c_uno", "cd_auc", "ibs_graf")


def load() -> SurvivalData:
    """Unemployment; sex is the sensitive column and no feature."""
    return load_dataset("unemployment_sex").with_sensitive("sex")


def train(mode: str, n_starts: int) -> FairnessPath:
    """All rhos, folds and starts of one mode, in one batch."""
    penalties = GatePenalties(fairness=MODES[mode], gate_ridge=1e-4)
    tree = SoftSurvivalTree(trainer=Nodec(), init="random", n_starts=n_starts, penalties=penalties)
    begin = time.perf_counter()
    path = fairness_path(tree, load(), RHOS, n_folds=5, seed=0)
    print(f"{mode}: {path.batch.tree.n_problems} trees, {time.perf_counter() - begin:.0f} s", flush=True)
    return path


def single_start(path: FairnessPath) -> int:
    """The run that is shown: of the first fold, the start with the lowest training objective at rho = 0."""
    return path.batch.best_start(SINGLE_FOLD, [each.rho for each in path.batch.coefficients].index(0.0))


def write_tables(path: FairnessPath, mode: str) -> None:
    """Means over all runs, over the starts of each fold, the single run, and its leaves."""
    scores = path.scores
    runs = scores.drop(columns=["chosen"])
    runs.drop(columns=["start"]).groupby(["part", "rho", "fold"]).mean().to_csv(
        HERE / f"{mode}_folds.csv", float_format="%.5g"
    )
    table = path.table()
    table.to_csv(HERE / f"{mode}_mean.csv", float_format="%.5g")
    own = runs[(runs["fold"] == SINGLE_FOLD) & (runs["start"] == single_start(path))]
    single = own.set_index(["part", "rho"]).sort_index().drop(columns=["fold", "start"])
    single.to_csv(HERE / f"{mode}_single.csv", float_format="%.5g")
    leaves = []
    for rho in PAPER:
        tree = path.tree(rho, SINGLE_FOLD, single_start(path))
        for part in ("train", "test"):
            leaves.append(leaf_table(tree, path.part(SINGLE_FOLD, part)).assign(part=part, rho=rho))
    pd.concat(leaves).set_index(["part", "rho"], append=True).to_csv(
        HERE / f"{mode}_leaves.csv", float_format="%.4g"
    )
    columns = ["parity", "gini", "gini_weighted", *SCORES]
    print(
        f"\n{mode}: mean over {path.batch.n_starts} starts x 5 folds\n{table[columns].round(4).to_string()}"
    )
    print(f"\n{mode}: single run\n{single[columns].round(4).to_string()}")


def draw(path: FairnessPath, mode: str) -> None:
    """Figures of the single run at the paper's rhos, and of the means at all of them."""
    start = single_start(path)
    own = path.scores[(path.scores["fold"] == SINGLE_FOLD) & (path.scores["start"] == start)]
    single = own[own["rho"].isin(PAPER)]
    means = path.table().reset_index()
    for name, scores in (("single", single), ("mean", means[means["rho"].isin(PAPER)]), ("mean_all", means)):
        plot_parity_by_rho(scores, unit="weeks").savefig(HERE / f"{mode}_parity_{name}.png", dpi=110)
        plot_scores_by_rho(scores, SCORES, unit="weeks").savefig(HERE / f"{mode}_scores_{name}.png", dpi=110)
    parts = {part: path.part(SINGLE_FOLD, part) for part in ("train", "test")}
    for name, rhos in (("three", (0.0, 1.0, 20.0)), ("six", PAPER), ("between", (0.0, *BETWEEN))):
        trees = {f"rho = {rho:g}": path.tree(rho, SINGLE_FOLD, start) for rho in rhos}
        figure = plot_curves_by_rho(trees, parts, unit="weeks")
        figure.savefig(HERE / f"{mode}_curves_{name}.png", dpi=80)


def main() -> None:
    """Train, write the tables, draw the figures, for each mode that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "modes", nargs="*", default=list(MODES), help=f"of {', '.join(MODES)}; all by default"
    )
    parser.add_argument("--starts", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    np.seterr(all="warn")
    for mode in arguments.modes:
        path = train(mode, arguments.starts)
        write_tables(path, mode)
        draw(path, mode)


if __name__ == "__main__":
    main()
