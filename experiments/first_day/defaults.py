"""The estimators as they come on six small data sets that everyone tries first, three seeds each.

python experiments/first_day/defaults.py [tree] [search]

Five folds by the seed; concordance, integrated Brier score and log-likelihood of held-out rows; leaves
of the tree of all rows, the least of its shares of rows, and what it warns of.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pandas as pd
import torch
from lifelines.datasets import load_lung, load_rossi

from sstorch import PrognosticTree, load_dataset, metrics
from sstorch.data import stratified_folds

SETS = ("veterans", "rossi", "lung", "whas500", "pbc", "gbsg2")
SCORES = ["c_harrell", "ibs_graf", "negative_log_likelihood"]


def read(name: str) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Columns, times, events."""
    if name == "rossi":
        frame = load_rossi()
        return (
            frame.drop(columns=["week", "arrest"]),
            frame["week"].to_numpy(float),
            (frame["arrest"] == 1).to_numpy(),
        )
    if name == "lung":
        frame = load_lung()
        return (
            frame.drop(columns=["time", "status"]),
            frame["time"].to_numpy(float),
            (frame["status"] == 1).to_numpy(),
        )
    data = load_dataset(name)
    return data.frame, data.time, data.event


def fit(seed: int, frame: pd.DataFrame, y: tuple[np.ndarray, np.ndarray]) -> tuple[PrognosticTree, list[str]]:
    """A fitted model and what it warns of, each warning by its first words."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = PrognosticTree(random_state=seed).fit(frame, y)
    return fitted, sorted({" ".join(str(warning.message).split()[:9]) for warning in caught})


def main() -> None:
    torch.set_num_threads(1)
    for name, seed in itertools.product(SETS, range(3)):
        frame, time, event = read(name)
        whole, words = fit(seed, frame, (time, event))
        share = np.bincount(whole.apply(frame)) / len(frame)
        line = f"{name} seed {seed}: {(share > 0).sum()} leaves, least {share[share > 0].min():.2f}"
        folds, scores = stratified_folds(event, 5, seed), []
        for fold in range(5):
            train, test = (
                (frame[part], (time[part], event[part])) for part in (folds != fold, folds == fold)
            )
            tree, _ = fit(seed, *train)
            scores.append(metrics.evaluate(tree, train, test, metrics=SCORES)["value"].to_numpy())
        c, ibs, loss = np.mean(scores, axis=0)
        line += f", C {c:.3f}, IBS {ibs:.3f}, negative log-likelihood {loss:.3f}"
        print(f"{line}; {'; '.join(words) or 'no warning'}", flush=True)


if __name__ == "__main__":
    main()
