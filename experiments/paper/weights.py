"""Whose censoring distribution weighs the published Brier scores? See README.md here.

    .venv/bin/python experiments/paper/weights.py [--datasets gbsg2 ...]

Writes weights.csv: the integrated Brier score of the same trees with G estimated on the training rows, as in
all our tables, and with G estimated on the test rows themselves, beside the published value.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from sstorch import SoftSurvivalTree, load_dataset, metrics
from sstorch.bench import make_folds, soft_tree_models
from sstorch.bench.report import published_means
from sstorch.data import Schema
from sstorch.exceptions import DataWarning

TABLE = Path(__file__).parent / "weights.csv"
MODEL = {
    "sst_llog": {"leaf": "log_logistic", "init": "random", "gate_ridge": 0.01, "n_starts": 3, "depth": 1}
}


def scores(name: str) -> dict[str, float]:
    """Mean over 5 folds x 3 starts of both scores."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        data = load_dataset(name)
    folds = make_folds(data, 5, 0)
    splits = [data.subset(folds != fold) for fold in range(5)]
    tests = [data.subset(folds == fold) for fold in range(5)]
    (model,) = soft_tree_models(SoftSurvivalTree.paper(), MODEL)
    found: dict[str, list[float]] = {"training rows": [], "test rows": []}
    for fit in model.fits(splits, Schema.of(data.frame), "cpu"):
        train, test = splits[fit.fold], tests[fit.fold]
        grid = metrics.evaluation_times(test.time, train.time, "graf")
        curves = fit.predictor.falling_curves(test.frame, grid)
        for source, rows in (("training rows", train), ("test rows", test)):
            value = metrics.integrated_brier_score(
                (test.time, test.event), curves, grid, train=(rows.time, rows.event)
            )
            found[source].append(value)
    return {source: float(np.mean(values)) for source, values in found.items()}


def main() -> None:
    published = published_means("ibs_graf")["sst_llog_d1"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=list(published.index), choices=list(published.index))
    rows = {}
    for name in parser.parse_args().datasets:
        rows[name] = {**scores(name), "published": published[name]}
        print(name, {source: round(value, 4) for source, value in rows[name].items()}, flush=True)
    table = pd.DataFrame(rows).T.rename_axis("dataset")
    table.to_csv(TABLE, float_format="%.4f")
    print((table.sub(table["published"], axis=0)).mean().round(4).to_string())


if __name__ == "__main__":
    main()
