"""Size and power of `split_test`: see split_test.md here."""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd

from sstorch import Columns, SurvivalRegression
from sstorch.validation import split_test

N_DRAWS = 199
PROPORTIONAL_HAZARDS = ("weibull", "spline_ph")


def draw(
    leaf: str, n: int, change: float, rng: np.random.Generator
) -> tuple[pd.DataFrame, tuple[np.ndarray, np.ndarray]]:
    """Rows of a family; ``change`` is that of the slope of ``normal`` where ``skewed`` passes 1."""
    frame = pd.DataFrame({"normal": rng.normal(size=n), "skewed": rng.lognormal(0, 1.3, n)})
    frame["factor"] = rng.choice(list("abcd"), n, p=[0.5, 0.3, 0.15, 0.05])
    frame["binary"] = (rng.random(n) < 0.1).astype(float)
    noise = np.log(rng.exponential(size=n)) if leaf in PROPORTIONAL_HAZARDS else rng.logistic(size=n)
    location = 0.4 * frame["normal"] + 0.3 * (frame["factor"] == "b")
    location += change * frame["normal"] * (frame["skewed"] > 1)
    time, censoring = np.exp(location + 0.6 * noise).to_numpy(), rng.exponential(3, n)
    return frame, (np.minimum(time, censoring), time <= censoring)


def rates(
    leaf: str, n: int, parameters: str, numbers: range, change: float
) -> tuple[dict[str, float], dict[str, int]]:
    """Shares of data sets with p <= .05, adjusted and of each column alone, and how many had a p."""
    rows = []
    for number in numbers:
        X, y = draw(leaf, n, change, np.random.default_rng((number, n)))
        model = SurvivalRegression(leaf=leaf, columns=Columns(numeric="linear")).fit(X, y)
        test = split_test(model, X, y, parameters=parameters, n_draws=N_DRAWS)
        rows.append({"adjusted": test.overall.iloc[0], **test.table.loc[1, "p"]})
    found = pd.DataFrame(rows)
    # p-values are multiples of 1 / 200, rounded; a column that cannot split the rows has none.
    n_tested = found.notna().sum()
    return dict((found <= 0.05 + 1e-9).sum() / n_tested), dict(n_tested)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("leaf")
    parser.add_argument("n", type=int)
    parser.add_argument("--parameters", default="all", choices=["all", "level"])
    parser.add_argument("--repeats", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="number of the first data set")
    parser.add_argument("--change", type=float, default=0.0)
    asked = parser.parse_args()
    numbers = range(asked.first, asked.first + asked.repeats)
    found, n_tested = rates(asked.leaf, asked.n, asked.parameters, numbers, asked.change)
    print({name: (round(float(rate), 4), int(n_tested[name])) for name, rate in found.items()})
