"""A hospital where everything has shifted: does a recalibrated tree fit there again?

python experiments/recalibration/drift.py [--runs 200]

A tree is trained on 1 500 simulated rows. In another place subjects live longer or shorter, effects are
weaker or stronger, and curves may have another shape. 1 000 rows recalibrate it; 1 000 others tell whether
observed and expected events agree and whether the slope is 1: within 1.96 standard errors, to which both
samples contribute. "As it was" has only the error of the second.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
import torch

from sstorch import Columns, PrognosticTree, SoftSurvivalTree, recalibrate

HOWS = ("intercept", "slope", "baseline")


def draw(
    rng: np.random.Generator, n: int, shift: float, strength: float, power: float
) -> tuple[pd.DataFrame, tuple[np.ndarray, np.ndarray]]:
    """Weibull times by a threshold and two lines, 40 % censored or so."""
    x = rng.normal(size=(n, 4))
    effect = 0.9 * (x[:, 0] > 0.3) + 0.5 * x[:, 1] - 0.4 * x[:, 2]
    time = 20 * np.exp(shift - strength * effect) * rng.weibull(1.3, n) ** power
    censoring = rng.uniform(5, 60, n)
    frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(4)])
    return frame, (np.minimum(time, censoring), time <= censoring)


def oe_error(tree: SoftSurvivalTree, frame: pd.DataFrame, y: tuple[np.ndarray, np.ndarray]) -> float:
    """Standard error of log(O/E), from the martingale residuals of the rows."""
    time, event = y
    curves = tree.predict_cumulative_hazard_function(frame, np.unique(time))
    expected = curves[np.arange(len(time)), np.searchsorted(np.unique(time), time)]
    return float(np.sqrt(((event - expected) ** 2).sum()) / event.sum())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for run in range(options.runs):
        rng = np.random.default_rng(run)
        tree = PrognosticTree(leaf="weibull", columns=Columns(numeric="linear")).fit(
            *draw(rng, 1500, 0, 1, 1)
        )
        drift = rng.uniform(-0.7, 0.7), rng.uniform(0.5, 1.2), rng.choice([1.0, 0.7, 1.3])
        there, tested = draw(rng, 1000, *drift), draw(rng, 1000, *drift)
        for how in (None, *HOWS):
            new = tree if how is None else recalibrate(tree, *there, how)
            said = recalibrate(new, *tested, "slope").recalibration_
            error = said.slope_error
            spread = oe_error(new, *tested)
            if how:
                error = np.hypot(error, new.recalibration_.slope_error or 0)
                spread = np.hypot(spread, oe_error(new, *there))
            rows.append(
                {
                    "how": how or "as it was",
                    "O/E": said.observed_expected[0],
                    "O/E holds 1": abs(np.log(said.observed_expected[0])) < 1.96 * spread,
                    "slope": said.slope,
                    "slope holds 1": abs(said.slope - 1) < 1.96 * error,
                    "same groups": bool((new.apply(tested[0]) == tree.apply(tested[0])).all()),
                    "shape changed": drift[2] != 1.0,
                }
            )
    table = pd.DataFrame(rows)
    for changed, part in table.groupby("shape changed"):
        print(f"shape of the curves {'changed' if changed else 'as it was'}, {len(part) // 4} runs")
        by = part.groupby("how")
        print(
            pd.DataFrame(
                {
                    "O/E from": by["O/E"].min().round(3),
                    "to": by["O/E"].max().round(3),
                    "O/E interval holds 1": by["O/E holds 1"].mean().round(3),
                    "slope, median": by["slope"].median().round(3),
                    "slope interval holds 1": by["slope holds 1"].mean().round(3),
                    "same groups": by["same groups"].all(),
                }
            ).to_string()
        )


if __name__ == "__main__":
    main()
