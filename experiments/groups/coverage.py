"""Coverage of the intervals of group medians, naive and corrected, on simulated trees: see README.md here."""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
import torch

from sstorch import GatePenalties, SoftSurvivalTree
from sstorch.validation import group_table

TREE = SoftSurvivalTree(
    depth=2,
    trainer="joint",
    init="kmeans",
    n_starts=1,
    penalties=GatePenalties(ridge=1e-2, gate_ridge=1e-5),
)
N_ROWS, N_TRUTH, LEAST = 300, 20_000, 0.05


def location(x: np.ndarray, kind: str) -> np.ndarray:
    """Log scale of the times."""
    if kind == "linear":
        return 1.5 * (x[:, 0] - 0.5) + (x[:, 1] - 0.5)
    if kind == "null":
        return np.zeros(len(x))
    low, high = np.where(x[:, 1] < 0.4, -0.6, 0.0), np.where(x[:, 2] < 0.5, 0.3, 1.0)
    return np.where(x[:, 0] < 0.5, low, high)


def draw(n: int, kind: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = rng.uniform(size=(n, 5))
    return x, 10 * np.exp(location(x, kind)) * rng.weibull(1.5, n)


def simulate(kind: str, repeats: int, n_resamples: int) -> pd.DataFrame:
    rows = []
    for repeat in range(repeats):
        rng = np.random.default_rng((11, repeat))
        x, time = draw(N_ROWS, kind, rng)
        censoring = rng.uniform(5, 30, N_ROWS)
        y = np.minimum(time, censoring), time <= censoring
        tree = TREE.fit(x, y)
        table = group_table(tree, x, y, n_resamples=n_resamples)
        new, truth = draw(N_TRUTH, kind, rng)
        group = tree.apply(new)
        for place, (number, line) in enumerate(table["median"].sort_values("estimate").iterrows()):
            if table["rows", ""][number] < LEAST * N_ROWS:
                continue
            median = float(np.median(truth[group == number]))
            for label, parts in {
                "naive": ("estimate", "lower", "upper"),
                "corrected": ("corrected", "corrected lower", "corrected upper"),
            }.items():
                value, lower, upper = line[list(parts)]
                rows.append(
                    {
                        "times": kind,
                        "repeat": repeat,
                        "interval": label,
                        "covers": lower <= median <= upper,
                        "bias": np.log(value / median) if np.isfinite(value) else np.nan,
                        "width": np.log(upper / lower) if np.isfinite(upper) else np.nan,
                        "risk": {0: "highest", len(table) - 1: "lowest"}.get(place, "between"),
                    }
                )
    return pd.DataFrame(rows)


def report(results: pd.DataFrame) -> str:
    """Coverage and bias (of the log median) by kind of interval, over all groups and at both ends of risk."""
    lines = []
    for (times, interval), part in results.groupby(["times", "interval"], sort=False):
        covers, ends = part["covers"], part.groupby("risk")
        lines.append(
            {
                "times": times,
                "interval": interval,
                "groups": len(part),
                "coverage": covers.mean(),
                # Groups of a data set hang together.
                "error": np.sqrt(((covers - covers.mean()).groupby(part["repeat"]).sum() ** 2).sum())
                / len(part),
                "cov. highest": ends["covers"].mean()["highest"],
                "cov. lowest": ends["covers"].mean()["lowest"],
                "bias highest": ends["bias"].mean()["highest"],
                "bias lowest": ends["bias"].mean()["lowest"],
                "width": part["width"].median(),
            }
        )
    return pd.DataFrame(lines).round(3).to_string(index=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=60, help="data sets of each kind")
    parser.add_argument("--resamples", type=int, default=50)
    parser.add_argument("--times", nargs="+", default=["tree", "linear", "null"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    parts = [simulate(kind, arguments.repeats, arguments.resamples) for kind in arguments.times]
    print(report(pd.concat(parts)))


if __name__ == "__main__":
    main()
