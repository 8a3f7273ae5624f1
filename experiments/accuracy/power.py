"""How often does the evidence ask for groups where there is no interaction, and where there is one?

python experiments/accuracy/power.py [--repeats 200] [--rows 500]        # the table of the README
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")  # before NumPy and torch are loaded

import argparse
import multiprocessing
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
import pandas as pd
import torch
from scipy.stats import chi2

from sstorch import Columns, Penalties, PrognosticTree, SurvivalData, SurvivalRegression

# Family of the times, and half the difference of the slopes of b between a > .5 and a < .5, on the scale of
# the linear predictor; b is uniform on [0, 1]. Without interaction a and c have effects, a curved one too.
SETTINGS = {
    "no effect": ("log_logistic", 0.0),
    "no interaction": ("log_logistic", 0.0),
    "no interaction, proportional hazards": ("weibull", 0.0),
    "weak": ("log_logistic", 0.5),
    "middle": ("log_logistic", 1.0),
    "strong": ("log_logistic", 1.5),
}


def simulate(setting: str, rows: int, seed: int) -> SurvivalData:
    """Five uniform columns and one of three categories; about three in ten rows are censored."""
    leaf, half = SETTINGS[setting]
    rng = np.random.default_rng((list(SETTINGS).index(setting), seed))
    x = rng.uniform(size=(rows, 5))
    frame = pd.DataFrame(x, columns=list("abcde")).assign(f=rng.choice(["I", "II", "III"], rows))
    eta = (np.where(x[:, 0] > 0.5, half, -half)) * (x[:, 1] - 0.5)
    if setting != "no effect":
        eta += 1.5 * (x[:, 0] - 0.5) + 6 * (x[:, 2] - 0.5) ** 2 + 0.5 * (frame["f"] == "III")
    uniform = rng.uniform(size=rows)
    odds = -np.log(uniform) if leaf == "weibull" else 1 / uniform - 1  # cumulative hazard, or odds of death
    time = (odds * np.exp(-eta)) ** (1 / 1.5)
    censoring = rng.exponential(3.0, rows)
    return SurvivalData(frame, (np.minimum(time, censoring), time <= censoring))


def oracle(data: SurvivalData, leaf: str) -> bool:
    """Likelihood-ratio test of level 5 % of the true interaction, in the true family with the true curve."""
    a, b, c = (data.frame[name] for name in "abc")
    frame = data.frame.assign(square=(c - 0.5) ** 2, above=(a > 0.5).astype(float))
    product = {"product": (frame["above"] - 0.5) * (b - 0.5)}
    regression = SurvivalRegression(leaf, Penalties(ridge=1e-9), columns=Columns(numeric="linear"))
    gains = [
        regression.fit(own, data.y).log_likelihood(own, data.y) for own in (frame, frame.assign(**product))
    ]
    return bool(2 * len(data) * (gains[1] - gains[0]) > chi2.ppf(0.95, 1))


def trial(setting: str, rows: int, seed: int) -> dict[str, object]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    data = simulate(setting, rows, seed)
    tree = PrognosticTree(only_if_needed=True).fit(data.frame, data.y)
    groups = [value for name, value in tree.choice_.evidence.items() if name != "regression"]
    return {
        "setting": setting,
        "groups": len(np.unique(tree.apply(data.frame))) > 1,
        "nats": max(groups, default=-np.inf) - tree.choice_.evidence["regression"],
        "events": data.event.mean(),
        "oracle": oracle(data, SETTINGS[setting][0]),
    }


def main() -> None:
    """Print a line for each setting."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    print("| setting | trees | 95 % limits | oracle test | nats of groups: median, 95 % quantile | events |")
    print("|---|---|---|---|---|---|")
    with ProcessPoolExecutor(given.processes, multiprocessing.get_context("spawn")) as pool:
        for setting in given.settings:
            found = pd.DataFrame(pool.map(partial(trial, setting, given.rows), range(given.repeats)))
            share = found["groups"].mean()
            # Wilson's limits.
            z, n = 1.96, given.repeats
            middle, half = share + z**2 / (2 * n), z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
            low, high = (middle - half) / (1 + z**2 / n), (middle + half) / (1 + z**2 / n)
            print(
                f"| {setting} | {share:.1%} | {low:.1%} to {high:.1%} | {found['oracle'].mean():.1%} | "
                f"{found['nats'].median():+.1f}, {found['nats'].quantile(0.95):+.1f} | "
                f"{found['events'].mean():.0%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
