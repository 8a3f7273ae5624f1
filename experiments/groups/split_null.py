"""How often `split_test` finds a split where there is none: see split_test.md here."""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd

from sstorch import Surv, SurvivalData
from sstorch.bench.flat import soft_tree
from sstorch.data import Schema
from sstorch.fitted.tree import FittedTree
from sstorch.soft import train_batch
from sstorch.soft.split_test import _Scores, leaf_tests

N_FLIPS = 199
# Columns, rows, parameters of the tree, entry times.
SETTINGS = {
    "mixed, n = 150": ("mixed", 150, {}, False),
    "mixed, n = 150, ridge 1e-2": ("mixed", 150, {"ridge": 1e-2}, False),
    "mixed, n = 150, entry times": ("mixed", 150, {}, True),
    "mixed, n = 500, broken lines": ("mixed", 500, {"numeric": "piecewise"}, False),
    "mixed, n = 150, weibull": ("mixed", 150, {"leaf": "weibull"}, False),
    "skewed, n = 150": ("skewed", 150, {}, False),
    "ten columns, n = 200": ("ten", 200, {}, False),
}


def features(kind: str, n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """Columns and the log time scale of rows, straight in all of them."""
    if kind == "skewed":
        x = rng.exponential(size=(n, 3)) ** 1.5
        return pd.DataFrame(x, columns=list("abc")), x @ [-0.6, 0.3, 0.0]
    x = rng.normal(size=(n, 3))
    x[:, 1] += x[:, 0]
    sex, grade = rng.integers(0, 2, n), rng.integers(0, 3, n)
    frame = pd.DataFrame(x, columns=list("abc")).assign(sex=sex, grade=np.array(["I", "II", "III"])[grade])
    if kind == "ten":
        frame[list("defgh")] = rng.uniform(size=(n, 5)).round(1)
    return frame, 0.5 * x[:, 0] - 0.5 * x[:, 1] + 0.8 * sex - 0.4 * grade


def simulate(kind: str, n: int, leaf: str, late: bool, rng: np.random.Generator) -> SurvivalData:
    """Times of a family, a third of them censored; half of the rows enter late if so asked."""
    while True:
        frame, location = features(kind, n if not late else 2 * n, rng)
        u = rng.uniform(size=len(frame))
        noise = u / (1 - u) if leaf == "log_logistic" else -np.log(u)
        time = np.exp(location) * noise**0.6
        censoring = 3 * rng.exponential(size=len(frame))
        entry = rng.uniform(size=len(frame)) * rng.integers(0, 2, len(frame)) * late
        end = np.minimum(time, censoring)
        seen = np.flatnonzero(end > entry)[:n]
        if len(seen) == n:
            frame, event = frame.iloc[seen], (time <= censoring)[seen]
            return SurvivalData(frame.reset_index(drop=True), Surv(end[seen], event, entry=entry[seen]))


def permuted_p(tree: FittedTree, data: SurvivalData, column: str, rng: np.random.Generator) -> float:
    """The p value if the order of a numeric column is permuted and scores are centred."""
    scores = _Scores.of(tree, tree.encode(data.frame), data, 0).effective
    n = len(scores)
    values, vectors = np.linalg.eigh(scores.T @ scores / n)
    white = scores @ (vectors / np.sqrt(np.where(values > 1e-8 * values[-1], values, np.inf)))
    order = [np.argsort(data.frame[column].to_numpy(), kind="stable")]
    order += [rng.permutation(n) for _ in range(N_FLIPS)]
    ends = np.arange(-(-n // 10), n - n // 10 + 1)
    process = white[np.stack(order)].cumsum(axis=1)[:, ends - 1]
    statistics = ((process**2).sum(axis=-1) / (ends * (n - ends) / n)).max(axis=1)
    return float((statistics >= statistics[0] * (1 - 1e-9)).mean())


def rates(name: str, repeats: int) -> dict[str, float]:
    """Shares of simulations with p <= .05."""
    kind, n, parameters, late = SETTINGS[name]
    rng = np.random.default_rng(0)
    estimator = soft_tree(depth=0, n_starts=1, trainer="joint", **parameters)
    splits = [simulate(kind, n, estimator.leaf, late, rng) for _ in range(repeats)]
    batch = train_batch(splits, estimator._batch_settings(), Schema.of(splits[0].frame))
    rows = []
    for number, data in enumerate(splits):
        tree = batch.fitted(number, 0)
        test = leaf_tests(tree, data, n_flips=N_FLIPS, seed=number)
        level = leaf_tests(tree, data, parameters="level", n_flips=N_FLIPS, seed=number)
        p = test.table["p"].dropna()
        rows.append(
            {
                "overall": test.overall[0],
                "level alone": level.overall[0],
                "Bonferroni": p.min() * len(p),
                "column a": p[0, "a"],
                "a permuted": permuted_p(tree, data, "a", rng),
            }
        )
    # p values are multiples of 1 / 200, rounded.
    return dict((pd.DataFrame(rows) <= 0.05 + 1e-9).mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--only", nargs="*", default=list(SETTINGS), metavar="SETTING")
    arguments = parser.parse_args()
    for setting in arguments.only:
        print(
            setting, {name: round(float(rate), 3) for name, rate in rates(setting, arguments.repeats).items()}
        )
