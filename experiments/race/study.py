"""What a race between starts saves and costs: see README.md here."""

from __future__ import annotations

import time
from pathlib import Path

import pandas as pd
import torch

from sstorch import GatePenalties, SoftSurvivalTree, load_dataset
from sstorch.bench import cross_validate
from sstorch.optim import Nodec, Race

HERE = Path(__file__).parent
DATASETS = ("gbsg2", "whas500", "veterans")
SEEDS = (0, 1, 2)
N_STARTS = 20
RACES = {"none": None, "after 1, 2, 4": Race((1, 2, 4)), "after 3": Race((3,)), "after 1": Race((1,), 0.25)}
SCORES = ("c_harrell", "ibs_sksurv", "ibs_graf", "log_likelihood")


def main() -> None:
    """Cross-validate with and without races; write scores.csv, one row a run, and print the means."""
    torch.set_num_threads(1)
    rows = []
    for name in DATASETS:
        data = load_dataset(name)
        for seed in SEEDS:
            for label, race in RACES.items():
                tree = SoftSurvivalTree(
                    trainer=Nodec(race=race),
                    init="random",
                    n_starts=N_STARTS,
                    penalties=GatePenalties(gate_ridge=1e-4),
                )
                begin = time.perf_counter()
                result = cross_validate(tree, data, n_folds=5, seed=seed)
                seconds = time.perf_counter() - begin
                chosen = result.scores.query("chosen and part == 'test'")
                rows.append(
                    {
                        "dataset": name,
                        "fold_seed": seed,
                        "race": label,
                        "seconds": seconds,
                        "evaluations": int(result.batch.history.steps["evaluations"].sum()),
                        **chosen[["objective", *SCORES]].mean().to_dict(),
                    }
                )
                print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    table.to_csv(HERE / "scores.csv", index=False, float_format="%.5f")
    means = table.groupby(["dataset", "race"], sort=False).mean(numeric_only=True).drop(columns="fold_seed")
    print(means.round(4).to_string())


if __name__ == "__main__":
    main()
