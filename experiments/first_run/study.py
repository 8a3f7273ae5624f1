"""Cross-validation on GBSG2 over initial solutions, gate penalties and fold seeds: see README.md here."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from sstorch import GatePenalties, SoftSurvivalTree, load_dataset
from sstorch.bench import cross_validate
from sstorch.optim import Nodec

SEEDS = (0, 1, 2)
GATE_RIDGES = (0.0, 1e-4, 1e-3, 1e-2)
SCORES = ("c_harrell", "ibs_sksurv", "ibs_graf", "log_likelihood")


def main() -> None:
    """Write scores.csv (means over the runs of a fold seed) and print the table of means."""
    data = load_dataset("gbsg2")
    rows = []
    for init in ("random", "kmeans"):
        for gate_ridge in GATE_RIDGES:
            for seed in SEEDS:
                tree = SoftSurvivalTree(
                    trainer=Nodec(), init=init, penalties=GatePenalties(gate_ridge=gate_ridge)
                )
                result = cross_validate(tree, data, n_folds=5, seed=seed)
                test = result.scores[result.scores["part"] == "test"]
                leaves = [f"mass_{node}" for node in range(4, 8)]
                final = result.batch.history.macro_iterations.groupby("problem")[leaves].last()
                for trees, chosen in (("all starts", test), ("chosen start", test[test["chosen"]])):
                    rows.append(
                        {
                            "init": init,
                            "gate_ridge": gate_ridge,
                            "fold_seed": seed,
                            "trees": trees,
                            **chosen[list(SCORES)].mean().to_dict(),
                            "objective": chosen["objective"].mean(),
                            "leaves_in_use": (final > 0.02).sum(axis=1).mean(),
                        }
                    )
                print(rows[-2], flush=True)
    table = pd.DataFrame(rows)
    table.to_csv(Path(__file__).parent / "scores.csv", index=False, float_format="%.5f")
    means = table.drop(columns="fold_seed").groupby(["init", "gate_ridge", "trees"], sort=False).mean()
    print(means.round(4).to_string())


if __name__ == "__main__":
    main()
