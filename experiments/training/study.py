"""Trainers side by side on real data, objective and held-out likelihood: see README.md here.

    .venv/bin/python experiments/training/study.py [--minutes 45] [--depths 1 2 3] [--folds 0]
                                                     [--data gbsg2 ...] [--skip-slsqp]

Appends to starts.csv, one row a start, and skips what is there, so that it can be stopped and started again.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "scripts"))

from peers import minimized_by, scipy_slsqp  # noqa: E402

from sstorch import GatePenalties, SoftSurvivalTree, SurvivalData, load_dataset  # noqa: E402
from sstorch.data import Preprocessor, Schema, stratified_folds  # noqa: E402
from sstorch.exceptions import DataWarning  # noqa: E402
from sstorch.nn import SoftTree  # noqa: E402
from sstorch.objective import Sample, TrainingObjective  # noqa: E402
from sstorch.optim import Joint, LBFGSOptions, Nodec, Thresholds, Trainer  # noqa: E402
from sstorch.optim.starts.clusters import initialize_random, problem_seed  # noqa: E402
from sstorch.soft.problems import stack_splits  # noqa: E402

TABLE = HERE / "starts.csv"
DATASETS = (
    "veterans",
    "gbsg2",
    "whas500",
    "uissurv_no_los",
    "unemployment",
    "maintenance",
    "unempdur",
    "aids2",
    "credit",
    "churn",
)
LEAVES = ("log_logistic", "spline_po")
N_STARTS = 20
IN_USE = 0.02  # smallest share of the training rows of a leaf that is in use

# At e1 = 0 every gate counts as balanced: BN and LN steps only, no logistic regression, no reassignment.
NEVER = Thresholds(imbalance=0.0, high_imbalance=0.0, reassigned=0.0)
SLSQP = Nodec(lbfgs=LBFGSOptions(max_iterations=100))  # its steps are minimised by scipy_slsqp

# Trainers one after the other on the same trees, and the name of what stands after each. nodec+joint is nodec
# and then joint from the best point, so both come from one run.
CHAINS: dict[str, tuple[tuple[str, Trainer], ...]] = {
    "nodec": (("nodec", Nodec()), ("nodec+joint", Joint())),
    "no reassignment": (("nodec, no reassignment", Nodec(eps=NEVER)),),
    "joint": (("joint", Joint()),),
}
LIMITS = (20, 50, 100)  # iterations a step; Nodec's own limit, 30, is in the chain "nodec"
LIMITED = ("gbsg2", "veterans")
SOLVED_BY_SLSQP = ("gbsg2", "veterans", "unemployment")


@dataclass(frozen=True)
class Cell:
    """One data set, depth, leaf and chain of trainers on the training rows of one fold."""

    dataset: str
    fold: int
    depth: int
    leaf: str
    chain: str

    @property
    def trainers(self) -> tuple[tuple[str, Trainer], ...]:
        """What is run, in order."""
        if self.chain == "slsqp":
            return (("nodec, SLSQP", SLSQP),)
        if self.chain.startswith("limit"):
            limit = int(self.chain.split()[1])
            return ((f"nodec, {limit} iterations", Nodec(lbfgs=LBFGSOptions(max_iterations=limit))),)
        return CHAINS[self.chain]


def cells(depths: list[int], folds: list[int]) -> Iterator[Cell]:
    """All cells: every trainer everywhere, then the limits of iterations, and SLSQP, the slowest, last."""
    for fold, depth, dataset, leaf, chain in itertools.product(folds, depths, DATASETS, LEAVES, CHAINS):
        yield Cell(dataset, fold, depth, leaf, chain)
    limits = [f"limit {limit}" for limit in LIMITS]
    if 2 in depths:
        for fold, dataset, leaf, chain in itertools.product(folds, LIMITED, LEAVES, limits):
            yield Cell(dataset, fold, 2, leaf, chain)
    for fold, depth, dataset, leaf in itertools.product(folds, depths, SOLVED_BY_SLSQP, LEAVES):
        yield Cell(dataset, fold, depth, leaf, "slsqp")


def run(cell: Cell) -> pd.DataFrame:
    """Train 20 random starts; one row a start and trainer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # times of zero, which the registry states
        data = load_dataset(cell.dataset)
    folds = stratified_folds(data.event, 5, seed=0)
    train, test = data.subset(folds != cell.fold), data.subset(folds == cell.fold)
    settings = SoftSurvivalTree(
        cell.depth, cell.leaf, init="random", n_starts=N_STARTS, penalties=GatePenalties(gate_ridge=1e-4)
    )._batch_settings()
    preprocessor = Preprocessor(Schema.of(data.frame)).fit(train.frame)
    tree, sample = stack_splits([train], [preprocessor.transform(train.frame)], preprocessor, settings)
    initialize_random(tree, sample, [problem_seed(0, cell.fold, k) for k in range(N_STARTS)])
    objective = TrainingObjective(settings.ridge, settings.gate_ridge)
    x = torch.as_tensor(preprocessor.transform(test.frame))
    tables, seconds, evaluations = [], 0.0, torch.zeros(N_STARTS, dtype=torch.long)
    for name, trainer in cell.trainers:
        begin = time.process_time()
        evaluations = evaluations + train_all(tree, sample, objective, trainer)
        seconds += time.process_time() - begin
        with torch.no_grad():
            value = objective(tree, sample)
        table = pd.DataFrame(
            {
                "dataset": cell.dataset,
                "fold": cell.fold,
                "depth": cell.depth,
                "leaf": cell.leaf,
                "trainer": name,
                "start": range(N_STARTS),
                "objective": value.numpy(),
                "log_likelihood": held_out(tree, x, test),
                "leaves_in_use": leaves_in_use(tree, sample),
                "evaluations": evaluations.numpy(),
                "cell_cpu_seconds": round(seconds, 2),
            }
        )
        tables.append(table)
    return pd.concat(tables)


def train_all(tree: SoftTree, sample: Sample, objective: TrainingObjective, trainer: Trainer) -> torch.Tensor:
    """Train the starts in one batch, or one by one where the minimiser is for one tree; evaluations (R,)."""
    everyone = torch.arange(tree.n_problems)
    peer = scipy_slsqp if trainer is SLSQP else None
    evaluations = torch.zeros(tree.n_problems, dtype=torch.long)
    for problems in everyone.split(tree.n_problems if peer is None else 1):
        part = tree.select(problems)
        with minimized_by(peer):
            steps = trainer.train(part, objective, sample.select(problems)).steps
        tree.assign(problems, part)
        counts = steps.groupby("problem")["evaluations"].sum()
        own = torch.as_tensor(counts.index.to_numpy(dtype="int64"))
        evaluations[problems[own]] = torch.as_tensor(counts.to_numpy(dtype="int64"))
    return evaluations


def held_out(tree: SoftTree, x: torch.Tensor, test: SurvivalData) -> list[float]:
    """Mean log-likelihood of the test rows under each tree, from the leaf of the most probable path."""
    with torch.no_grad():
        loss = tree.most_probable(x).nll(torch.as_tensor(test.time), torch.as_tensor(test.event))
    return (-loss).tolist()


def leaves_in_use(tree: SoftTree, sample: Sample) -> list[int]:
    """Leaves that more than 2 % of the training rows reach, for each tree."""
    with torch.no_grad():
        leaf = tree.apply_leaf(sample.x)
    mass = [(sample.normalised_weight * (leaf == k)).sum(-1) for k in range(2**tree.topology.depth)]
    return (torch.stack(mass) > IN_USE).sum(0).tolist()


def finished() -> set[tuple[str, int, int, str, str]]:
    """Cells that are in the table whole; the rows of one that was interrupted are dropped from it."""
    if not TABLE.exists():
        return set()
    table = pd.read_csv(TABLE)
    key = ["dataset", "fold", "depth", "leaf", "trainer"]
    whole = table.groupby(key)["start"].transform("size") == N_STARTS
    if not whole.all():
        table[whole].to_csv(TABLE, index=False)
    return set(table.loc[whole, key].itertuples(index=False, name=None))


def main() -> None:
    """Run every cell that is not in the table yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no cell after so many CPU minutes")
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--folds", type=int, nargs="+", default=[0])
    parser.add_argument("--data", nargs="+", default=DATASETS, choices=DATASETS)
    parser.add_argument("--skip-slsqp", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    done = finished()
    for cell in cells(options.depths, options.folds):
        names = [name for name, _ in cell.trainers]
        missing = [n for n in names if (cell.dataset, cell.fold, cell.depth, cell.leaf, n) not in done]
        skipped = cell.dataset not in options.data or (options.skip_slsqp and cell.chain == "slsqp")
        if skipped or not missing:
            continue
        if time.process_time() > 60 * options.minutes:
            break
        found = run(cell).query("trainer in @missing")
        text = found.to_csv(index=False, header=not TABLE.exists(), float_format="%.6g")
        with TABLE.open("a") as file:
            file.write(text)
        print(cell, f"{time.process_time():.0f} s CPU in all", flush=True)


if __name__ == "__main__":
    main()
