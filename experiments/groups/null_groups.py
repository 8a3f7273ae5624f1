"""How often a difference between groups is shown, where there is none and where there is one.

python experiments/groups/null_groups.py --repeats 500       # the numbers of the README
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

import numpy as np
import pandas as pd
import torch

from sstorch import PrognosticTree, SoftSurvivalTree, SurvivalData, load_dataset
from sstorch.data import Schema, stratified_folds
from sstorch.groups.validation import LEAST_CONCORDANCE, LEVEL, held_out_groups
from sstorch.soft.batch import train_batch
from sstorch.validation import validate_groups

N_FOLDS = 5
# Rows, and what the log time changes by over the range of one of the five columns.
SETTINGS = {
    "null, n = 150": (150, 0.0),
    "null, n = 300": (300, 0.0),
    "null, n = 600": (600, 0.0),
    "one column, n = 300": (300, 1.0),
}


def simulate(n: int, effect: float, rng: np.random.Generator) -> SurvivalData:
    """Weibull times, a third of them censored; four uniform columns and one of three categories."""
    x = rng.uniform(size=(n, 4))
    frame = pd.DataFrame(x, columns=list("abcd")).assign(e=rng.choice(["I", "II", "III"], n))
    time = np.exp(effect * (x[:, 0] - 0.5)) * rng.weibull(1.5, n)
    censoring = rng.uniform(0.3, 2.4, n)
    return SurvivalData(frame, (np.minimum(time, censoring), time <= censoring))


def verdicts(name: str, repeats: int, tree: SoftSurvivalTree) -> pd.DataFrame:
    """The validated groups of each data set, as `validate_groups` makes them; all trees are one batch."""
    n, effect = SETTINGS[name]
    rng = np.random.default_rng((23, n, int(10 * effect)))
    sets = [simulate(n, effect, rng) for _ in range(repeats)]
    folds = [stratified_folds(data.event, N_FOLDS, 0) for data in sets]
    splits = [
        data.subset(own != fold) for data, own in zip(sets, folds, strict=True) for fold in range(N_FOLDS)
    ]
    batch = train_batch(splits, tree._batch_settings(), Schema.of(sets[0].frame))
    rows = []
    for number, (data, own) in enumerate(zip(sets, folds, strict=True)):
        own_splits = range(N_FOLDS * number, N_FOLDS * (number + 1))
        trees = [batch.fitted(split, batch.best_start(split)) for split in own_splits]
        found = held_out_groups(data, own, np.stack([each.apply(each.encode(data.frame)) for each in trees]))
        rows.append(asdict(found.first) | {"differ": found.differ})
    return pd.DataFrame(rows)


def main() -> None:
    """Print a line for each setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200, help="data sets of each setting")
    parser.add_argument("--only", nargs="*", default=list(SETTINGS), metavar="SETTING")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.only:
        found = verdicts(name, arguments.repeats, PrognosticTree())
        parts = {
            "difference shown": found["differ"].mean(),
            f"p <= {LEVEL:g}": (found["p_value"] <= LEVEL).mean(),
            f"C >= {LEAST_CONCORDANCE:g}": (found["c_groups"] >= LEAST_CONCORDANCE).mean(),
            "mean C": found["c_groups"].mean(),
            "ari": found["ari"].mean(),
        }
        print(name, {part: round(float(value), 3) for part, value in parts.items()}, flush=True)
    for name in ("gbsg2", "aids2"):
        data = load_dataset(name)
        y = (data.time, data.event)
        print(name, validate_groups(PrognosticTree().fit(data.frame, y), data.frame, y))


if __name__ == "__main__":
    main()
