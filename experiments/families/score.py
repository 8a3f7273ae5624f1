"""By which score should a search choose? Small training samples of sets that no other choice was made on.

python experiments/families/score.py train     # score.csv: an hour of one core
python experiments/families/score.py report    # the table of the README
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from study import parameters

from sstorch import (
    PrognosticTree,
    PrognosticTreeCV,
    SoftSurvivalTree,
    SurvivalRegression,
    load_dataset,
    metrics,
)
from sstorch.bench.flat import soft_tree
from sstorch.data import SurvivalData
from sstorch.exceptions import DataWarning

RESULTS = Path(__file__).parent / "score.csv"
SETS = ("grace", "trace", "colon", "actg")
SIZES, DRAWS = (150, 400), 3
RULES = ("c_harrell", "log_likelihood", "ibs")


def scores(tree: SoftSurvivalTree, train: SurvivalData, test: SurvivalData) -> dict[str, float]:
    """Concordance and Brier score of the rows that were not drawn."""
    y, times = (test.time, test.event), np.unique(test.time[test.event])
    grid = metrics.evaluation_times(test.time, train.time, "sksurv")
    known = train.time, train.event
    return {
        "c": metrics.concordance_harrell(y, tree.falling_curves(test.frame, times), times),
        "ibs": metrics.integrated_brier_score(
            y, tree.falling_curves(test.frame, grid), grid, train=known, convention="sksurv"
        ),
    }


def samples(name: str, size: int, draw: int) -> list[dict[str, object]]:
    """The best of each family by every score, and the defaults without a search, for one training sample."""
    data = load_dataset(name)
    order = np.random.default_rng([draw, size]).permutation(len(data))
    train, test = data.subset(order[:size]), data.subset(order[size:])
    about, rows = {"data": name, "size": size, "draw": draw}, []
    for family, tree in (("groups", PrognosticTree()), ("regression", SurvivalRegression())):
        found = scores(tree._fit_data(train), train, test)
        rows.append({**about, "rule": "no search", "family": family, **found})
    for rule in RULES:
        search = PrognosticTreeCV(families=("regression", "groups"), scoring=rule)._fit_data(train)
        for family, line in search.families_.iterrows():
            tree = soft_tree(**parameters(search.cv_results_.loc[line["index"]]))._fit_data(train)
            rows.append({**about, "rule": rule, "family": family, **scores(tree, train, test)})
    return rows


def main() -> None:
    """See the head of the file."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["train", "report"])
    if parser.parse_args().what == "train":
        rows: list[dict[str, object]] = []
        for name in SETS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)
                for size in SIZES:
                    rows += [row for draw in range(DRAWS) for row in samples(name, size, draw)]
            print(name, flush=True)
        pd.DataFrame(rows).to_csv(RESULTS, index=False, float_format="%.6g")
    results = pd.read_csv(RESULTS)
    print(results.groupby(["size", "rule", "family"])[["c", "ibs"]].mean().unstack().round(4).to_string())


if __name__ == "__main__":
    main()
