"""How often 95 % limits of a validation hold the truth, on simulated rows: see README.md here."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from sstorch.exceptions import DataError
from sstorch.metrics import HorizonRows, measure
from sstorch.metrics.calibration import ErrorTest

# Weibull times: log(-log S(t | x)) = SHAPE log t + EFFECT x, x standard normal.
SHAPE, EFFECT, HORIZON = 1.3, 0.8, 0.5
CENSORING = {"light": 3.0, "heavy": 0.8}  # means of exponential times: 26 and 58 % censored
# Predicted log(-log S) is slope times the true one, plus a shift.
MODELS = {"true": (1.0, 0.0), "wrong": (0.6, 0.25)}
MEASURES = {
    "C Harrell": "c_harrell_t",
    "C Uno": "c_uno_t",
    "AUC": "auc",
    "Brier": "brier",
    "scaled Brier": "scaled_brier",
    "O/E": "oe_ratio",
    "intercept": "calibration_intercept",
    "slope": "calibration_slope",
}
ERRORS = {"ICI": "ici", "E50": "e50", "E90": "e90", "Emax": "e_max"}


def draw(n: int, censoring: str, model: str, rng: np.random.Generator) -> HorizonRows:
    x = rng.normal(size=n)
    life = rng.weibull(SHAPE, n) * np.exp(-EFFECT * x / SHAPE)
    end = rng.exponential(CENSORING[censoring], n)
    return HorizonRows.of((np.minimum(life, end), life <= end), predicted(x, model), HORIZON)


def predicted(x: np.ndarray, model: str) -> np.ndarray:
    slope, shift = MODELS[model]
    return np.exp(-np.exp(slope * (SHAPE * np.log(HORIZON) + EFFECT * x) + shift))


def truths(censoring: str, model: str, n_draws: int = 40) -> dict[str, float]:
    """Of measures that depend on censoring the mean over large samples, of the others the exact value."""
    rng, found = np.random.default_rng(7), {}
    for name in ("C Harrell", "C Uno", "AUC", "Brier", "scaled Brier"):
        values = [measure(draw(6000, censoring, model, rng), MEASURES[name]).value for _ in range(n_draws)]
        found[name] = float(np.mean(values))
    x = rng.normal(size=2_000_000)
    true, given = predicted(x, "true"), predicted(x, model)
    distance = np.abs(true - given)
    found |= {"O/E": (1 - true).mean() / (1 - given).mean(), "slope": 1 / MODELS[model][0]}
    if model == "true":
        found["intercept"] = 0.0
    # Of the largest distance the mean over samples would depend on n: each sample has its own truth.
    return found | {
        "ICI": distance.mean(),
        "E50": np.quantile(distance, 0.5),
        "E90": np.quantile(distance, 0.9),
    }


def error_held(rows: HorizonRows, name: str, truth: float) -> bool:
    """Whether limits of a calibration error hold the truth: its test accepts what they invert."""
    test, multiple = ErrorTest(rows, name), 0.0
    if truth > 0.0:
        low, multiple = 0.0, 1.0
        while test.at(multiple) < truth and multiple < 2**12:
            low, multiple = multiple, 2.0 * multiple
        for _ in range(20):
            middle = 0.5 * (low + multiple)
            low, multiple = (low, middle) if test.at(middle) >= truth else (middle, multiple)
    lower, upper = test.accepted(multiple)
    # The lower limit is 0 wherever a true error of 0 is not below the estimate.
    return bool(test.estimate <= upper and (multiple == 0.0 or lower <= test.estimate))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("coverage.csv"))
    asked = parser.parse_args()
    lines = []
    for censoring in CENSORING:
        for model in MODELS:
            truth = truths(censoring, model)
            for n in (50, 200, 1000):
                names = [name for name in (*MEASURES, *ERRORS) if name in truth or name == "Emax"]
                rng, held = np.random.default_rng(n), {name: [] for name in names}
                for _ in range(asked.repeats):
                    rows = draw(n, censoring, model, rng)
                    x = (np.log(-np.log(rows.survival)) - MODELS[model][1]) / MODELS[model][0]
                    truth["Emax"] = np.abs(np.exp(-np.exp(x)) - rows.survival).max()
                    for name, values in held.items():
                        try:
                            if name in ERRORS:
                                at = 0.0 if model == "true" else truth[name]
                                values.append(error_held(rows, ERRORS[name], at))
                                continue
                            _, lower, upper = measure(rows, MEASURES[name])
                        except DataError:  # a regression without a finite optimum
                            lower = upper = np.nan
                        values.append(lower <= truth[name] <= upper if np.isfinite(lower) else np.nan)
                line = {"censoring": censoring, "model": model, "n": n}
                line |= {name: float(np.nanmean(values)) for name, values in held.items()}
                line["without limits"] = int(sum(np.isnan(values).sum() for values in held.values()))
                lines.append(line)
                pd.DataFrame(lines).round(4).to_csv(asked.out, index=False)


if __name__ == "__main__":
    main()
