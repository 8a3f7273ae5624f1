"""`SoftSurvivalTree()` on the 15 data sets of the published study: test folds, beside the published values.

Writes presets.csv, a line a data set, leaf and depth, and prints the differences of the means. Extra
`datasets`. About ten minutes of one core.

    python experiments/paper/presets.py [--data gbsg2 ...] [--leaves log_logistic ...] [--depths 1 2]
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from sstorch import SoftSurvivalTree, load_dataset
from sstorch.bench.cross_validation import make_folds
from sstorch.bench.models import SoftTreeModel
from sstorch.bench.scores import RowsToScore
from sstorch.data import Schema
from sstorch.data.folds import split
from sstorch.groups.validation import count_groups

HERE = Path(__file__).parent
SETS = [
    *("veterans", "whas500", "uissurv", "gbsg2", "maintenance", "credit", "aids", "aids_death", "churn"),
    *("unempdur", "aids2", "framingham", "dialysis", "flchain", "employee"),
]
# Leaves by the name of their model in the published tables.
MODELS = {
    "exponential": "sst_exp",
    "weibull": "sst_weibull",
    "log_logistic": "sst_llog",
    "spline_po": "sst_po",
    "spline_ph": "sst_ph",
}
PUBLISHED = Path(__file__).parents[2] / "sstorch" / "bench" / "report" / "published.csv"
# Of published scores, and of ours that are computed alike.
SCORES = {"c_harrell": "c_harrell", "c_uno": "c_uno", "cd_auc": "cd_auc", "ibs": "ibs_graf_own"}


def scores(name: str, leaf: str, depth: int) -> dict[str, float]:
    """Mean test scores over five folds, and the number of groups of 5 % of the rows or more."""
    data = load_dataset(name)
    folds = list(split(data, make_folds(data, 5, 0)))
    model = SoftTreeModel("tree", SoftSurvivalTree(depth, leaf))
    found = []
    for fit in model.fits([fold.train for fold in folds], Schema.of(data.frame), "cpu"):
        fold = folds[fit.fold]
        values = RowsToScore(fold.test, fold.train).scores(fit.predictor, tuple(SCORES.values()))
        n_groups = count_groups(fit.predictor.apply(data.frame), data.sample_weight)
        found.append({key: score.value for key, score in values.items()} | {"groups": float(n_groups)})
    return {key: float(np.nanmean([each[key] for each in found])) for key in found[0]}


def main() -> None:
    """Score, write and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=SETS)
    parser.add_argument("--leaves", nargs="+", default=list(MODELS))
    parser.add_argument("--depths", nargs="+", type=int, default=[1, 2])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for leaf in options.leaves:
        for depth in options.depths:
            for name in options.data:
                found = scores(name, leaf, depth)
                rows.append({"dataset": name, "leaf": leaf, "depth": depth, **found})
    table = pd.DataFrame(rows).round(4)
    table.to_csv(HERE / "presets.csv", index=False)
    published = pd.read_csv(PUBLISHED)
    published = published[published["split"] == "test"]
    published = published.pivot_table(index=["dataset", "model", "depth"], columns="metric", values="mean")
    table["model"] = table["leaf"].map(MODELS)
    ours = table.set_index(["dataset", "model", "depth"])
    differences = pd.DataFrame({name: ours[own] - published[name] for name, own in SCORES.items()})
    differences = differences.loc[ours.index].groupby(["model", "depth"], sort=False).mean().round(4)
    print(differences.to_string())
    groups = table.pivot_table(index="dataset", columns=["model", "depth"], values="groups", sort=False)
    print((groups >= 2).sum().to_string())


if __name__ == "__main__":
    main()
