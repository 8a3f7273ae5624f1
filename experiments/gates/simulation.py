"""Do trained gates find a slope that turns where two columns together say so, and nothing where it does not?

python experiments/gates/simulation.py [--truths oblique threshold] [--samples 30] [--rows 600]

Eight standard normal columns; the effect of one turns its sign. C of Harrell
on 2,000 new rows, of the true predictor and of each model; which model had the most evidence.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import pandas as pd
import torch

from sstorch import PrognosticTree, SoftSurvivalTree, Surv, SurvivalRegression

MODELS = {
    "regression": SurvivalRegression,
    "tree": PrognosticTree,
    "soft": SoftSurvivalTree,
    "soft, if needed": lambda: SoftSurvivalTree(only_if_needed=True),
}
TRUTHS = ("oblique", "threshold", "additive", "causes")


def predictor(x: np.ndarray, truth: str) -> np.ndarray:
    """Log hazard of rows, (n,)."""
    shared = 0.5 * x[:, 1] - 0.5 * x[:, 2]
    if truth == "additive":
        return shared + 0.5 * x[:, 0] + 0.5 * np.maximum(x[:, 3], 0)
    score = x[:, 3] if truth == "threshold" else x[:, 3] + x[:, 4]
    return shared + np.where(score > 0, x[:, 0], -x[:, 0])


def drawn(n: int, truth: str, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Rows, times and causes (0 censored)."""
    x = rng.normal(size=(n, 8))
    frame = pd.DataFrame(x, columns=[f"x{j + 1}" for j in range(8)])
    rates = [np.exp(predictor(x, truth))]
    if truth == "causes":
        rates.append(0.5 * np.exp(-0.5 * predictor(x, truth)))
    times = np.stack([rng.weibull(1.2, n) * rate ** (-1 / 1.2) for rate in rates])
    censoring = rng.uniform(0.5, 4.0, n)
    first = times.min(axis=0)
    cause = np.where(first <= censoring, 1 + times.argmin(axis=0), 0)
    return frame, np.minimum(first, censoring), cause


def sample(truth: str, number: int, rows: int) -> list[dict[str, object]]:
    """Rows of results of one sample."""
    rng = np.random.default_rng(number)
    frame, time_, cause = drawn(rows, truth, rng)
    new, new_time, new_cause = drawn(2000, truth, rng)
    y = (time_, cause > 0)
    if truth == "causes":
        y = Surv(time_, cause, causes=["first", "second"])
    found = [{"model": "truth", "c": concordance(new_time, new_cause, predictor(new.to_numpy(), truth))}]
    for name, make in MODELS.items():
        begin = time.process_time()
        model = make().fit(frame, y)
        seconds = time.process_time() - begin
        at = float(np.median(time_[cause > 0]))
        if truth == "causes":
            risk = np.asarray(model.predict_cumulative_incidence(new, times=[at]))[:, 0, 0]
        else:
            risk = -np.asarray(model.predict_survival_function(new, times=[at]))[:, 0]
        groups = len(np.unique(model.apply(frame)))
        found.append({"model": name, "c": concordance(new_time, new_cause, risk), "seconds": seconds})
        found[-1] |= {"groups": groups, "chosen": model.choice_.chosen}
    return [{"truth": truth, "sample": number} | each for each in found]


def concordance(time_: np.ndarray, cause: np.ndarray, risk: np.ndarray) -> float:
    """C of Harrell of a risk score, for the first cause; other causes count as censoring."""
    before = (time_[:, None] < time_) & (cause == 1)[:, None]
    right = (risk[:, None] > risk) + 0.5 * (risk[:, None] == risk)
    return float(right[before].mean())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("--truths", nargs="*", choices=TRUTHS, default=list(TRUTHS))
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--rows", type=int, default=600)
    options = parser.parse_args()
    table = pd.DataFrame(
        row
        for truth in options.truths
        for k in range(options.samples)
        for row in sample(truth, k, options.rows)
    )
    print(
        table.groupby(["truth", "model"], sort=False)[["c", "seconds", "groups"]].mean().round(4).to_string()
    )
    chosen = table.dropna(subset="chosen").groupby(["truth", "model", "chosen"], sort=False).size()
    print(chosen.to_string())
