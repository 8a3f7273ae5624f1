"""What annealing the sharpness of gates does to fit and generalisation: see README.md here."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from sstorch import SoftSurvivalTree, SurvivalData, load_dataset
from sstorch.evaluation import cross_validate
from sstorch.optim import Annealing, Nodec

HERE = Path(__file__).parent
DATASETS = ("veterans", "whas500", "gbsg2")
INITS = ("random", "greedy", "kmeans")
SEED, N_STARTS = 0, 6
# Annealing, and the ridge on gates that stays.
VARIANTS: dict[str, tuple[Annealing | None, float]] = {
    "none": (None, 1e-4),
    "0.01 over 3": (Annealing(0.01, 3), 1e-4),
    "0.1 over 3": (Annealing(0.1, 3), 1e-4),
    "ridge 0.01": (None, 0.01),
}


def main() -> None:
    """Cross-validate with and without annealing; write scores.csv, one row a run, and print it."""
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for name in DATASETS:
        data = load_dataset(name)
        for init in INITS:
            for label, (annealing, gate_ridge) in VARIANTS.items():
                trainer = Nodec(annealing=annealing)
                tree = SoftSurvivalTree(
                    2, n_starts=N_STARTS, init=init, trainer=trainer, gate_ridge=gate_ridge
                )
                begin = time.perf_counter()
                result = cross_validate(tree, data, n_folds=5, seed=SEED)
                seconds = time.perf_counter() - begin
                test = result.scores.query("part == 'test'")
                chosen = test[test["chosen"]]
                rows.append(
                    {
                        "dataset": name,
                        "init": init,
                        "annealing": label,
                        "objective_mean": test["objective"].mean(),
                        "objective_chosen": chosen["objective"].mean(),
                        # A single row of a wild tree can have any log-likelihood: the median over trees.
                        "log_likelihood_median": test["log_likelihood"].median(),
                        "log_likelihood_chosen": chosen["log_likelihood"].median(),
                        "c_mean": test["c_harrell"].mean(),
                        "c_chosen": chosen["c_harrell"].mean(),
                        "ibs_mean": test["ibs_graf"].mean(),
                        "ibs_chosen": chosen["ibs_graf"].mean(),
                        "leaves_in_use": float(np.mean([_in_use(tree, data) for tree in result.trees])),
                        "evaluations": int(result.batch.history.steps["evaluations"].sum()),
                        "seconds": seconds,
                    }
                )
                print(rows[-1], flush=True)
                pd.DataFrame(rows).to_csv(HERE / "scores.csv", index=False, float_format="%.4f")
    print(pd.DataFrame(rows).round(3).to_string())


def _in_use(tree: SoftSurvivalTree, data: SurvivalData) -> int:
    """Leaves that predict for more than 2 % of the rows."""
    return int((np.bincount(tree.apply(data.frame)) > 0.02 * len(data)).sum())


if __name__ == "__main__":
    main()
