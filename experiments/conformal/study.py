"""Coverage of conformal lower bounds on simulated times: see README.md here."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.optimize import brentq

from sstorch import SoftSurvivalTree
from sstorch.conformal import ConformalLowerBound

HERE = Path(__file__).parent
LEVELS = (0.8, 0.9)
CENSORED = (0.2, 0.5, 0.8)
N_ROWS, N_TEST = 1000, 2000
# The right family and the wrong one: hazards of the simulated times rise.
MODELS = {
    "log_logistic": SoftSurvivalTree(
        depth=1, leaf="log_logistic", trainer="joint", init="kmeans", n_starts=1
    ),
    "exponential": SoftSurvivalTree(depth=0, leaf="exponential", trainer="joint", init="kmeans", n_starts=1),
}
CENSORING = {
    "kaplan_meier": "kaplan_meier",
    "tree": SoftSurvivalTree(depth=0, leaf="weibull", trainer="joint", init="kmeans", n_starts=1),
}


def times(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Log-logistic with a location that bends: no leaf fits it exactly."""
    location = np.sin(3 * x[:, 0]) + x[:, 1] * (x[:, 2] > 0.5)
    u = rng.uniform(size=len(x))
    return np.exp(location) * (u / (1 - u)) ** (1 / 2.5)


def censoring(x: np.ndarray, rng: np.random.Generator, scale: float, depends: bool) -> np.ndarray:
    return scale * rng.exponential(size=len(x)) * (np.exp(1.5 * x[:, 0] - 0.75) if depends else 1.0)


def scale_of(share: float, depends: bool) -> float:
    """Scale of the censoring times at which a share of the rows is censored."""
    x = np.random.default_rng(1).uniform(size=(100_000, 3))
    t, c = times(x, np.random.default_rng(2)), censoring(x, np.random.default_rng(3), 1.0, depends)
    return brentq(lambda scale: (scale * c < t).mean() - share, 1e-3, 1e3)


def simulate(share: float, depends: bool, repeats: int) -> list[dict[str, object]]:
    scale, rows = scale_of(share, depends), []
    for repeat in range(repeats):
        rng = np.random.default_rng((7, repeat))
        x, t = (x := rng.uniform(size=(N_ROWS, 3))), times(x, rng)
        c = censoring(x, rng, scale, depends)
        y = np.minimum(t, c), t <= c
        new = rng.uniform(size=(N_TEST, 3))
        truth = times(new, rng)
        for name, model in MODELS.items():
            # What is mostly done: quantiles of the model of all rows.
            plain = model.fit(x, y)
            own = {"model quantile": {level: plain.predict_quantile(new, 1 - level) for level in LEVELS}}
            cutoffs, sizes = {"model quantile": np.nan}, {"model quantile": np.nan}
            for label, kind in CENSORING.items():
                bounds = ConformalLowerBound(model, censoring=kind, random_state=repeat).fit(x, y)
                own[label] = {level: bounds.predict(new, level) for level in LEVELS}
                cutoffs[label], sizes[label] = bounds.cutoff_, bounds.effective_size_
            for label, found in own.items():
                for level, lower in found.items():
                    about = {"censored": share, "depends": depends, "repeat": repeat, "model": name}
                    about |= {"bounds": label, "level": level, "coverage": (truth >= lower).mean()}
                    about |= {"mean": lower.mean(), "at_cutoff": (lower >= cutoffs[label]).mean()}
                    rows.append(
                        {**about, "beyond_cutoff": (truth >= cutoffs[label]).mean(), "size": sizes[label]}
                    )
    return rows


def main() -> None:
    """Simulate, write scores.csv and print the table of the README."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    rows = [
        row for depends in (False, True) for share in CENSORED for row in simulate(share, depends, repeats)
    ]
    table = pd.DataFrame(rows)
    keys = ["depends", "censored", "model", "bounds", "level"]
    found = table.groupby(keys, sort=False)[["coverage", "mean", "at_cutoff", "beyond_cutoff", "size"]].mean()
    found["standard_error"] = table.groupby(keys, sort=False)["coverage"].sem()
    found.to_csv(HERE / "scores.csv", float_format="%.4f")
    print(found.round(4).to_string())


if __name__ == "__main__":
    main()
