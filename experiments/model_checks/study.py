"""Level and power of `validation.check` in simulated data.

    python experiments/model_checks/study.py 500 > experiments/model_checks/rates.csv

Weibull data with two numeric covariates and one binary one, a quarter censored. Scenarios: the model holds
(``holds``); the effect of the first covariate ends at time 1 (``fades``); the effect of the first
covariate is a U (``u_shape``). Share of data sets in which each test has p < .05.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pandas as pd

from sstorch import Columns, Penalties, Surv, SurvivalRegression
from sstorch.exceptions import DataWarning
from sstorch.validation import check

MODELS = {
    "weibull, no penalty": ("weibull", Penalties(ridge=0), Columns(numeric="linear")),
    "log-logistic, no penalty": ("log_logistic", Penalties(ridge=0), Columns(numeric="linear")),
    "spline_ph, estimated": ("spline_ph", Penalties(), Columns(numeric="auto")),
}


def simulated(
    scenario: str, family: str, n: int, generator: np.random.Generator
) -> tuple[pd.DataFrame, Surv]:
    """Rows and their outcome."""
    X = pd.DataFrame(
        {"a": generator.normal(size=n), "b": generator.uniform(-1, 1, n), "c": generator.integers(0, 2, n)}
    )
    a = X["a"].to_numpy()
    effect = 0.6 * (a**2 - 1) if scenario == "u_shape" else 0.6 * a
    rest = 0.5 * X["b"].to_numpy() - 0.4 * X["c"].to_numpy()
    uniform = generator.uniform(size=n)
    hazard = np.log((1 - uniform) / uniform) if family == "log_logistic" else np.log(-np.log(uniform))
    if family == "log_logistic":  # log odds of the event
        hazard = -hazard
    if scenario == "fades":  # cumulative hazard exp(effect + rest) t^1.5 up to time 1, exp(rest) afterwards
        total = np.exp(hazard)
        before = np.exp(effect + rest)
        late = total > before
        power = np.where(late, 1 + (total - before) / np.exp(rest), total / before)
        time = power ** (1 / 1.5)
    else:
        time = np.exp((hazard - effect - rest) / 1.5)
    censored = generator.uniform(0.2, 4.0, n)
    return X, Surv(np.minimum(time, censored), time <= censored)


def main(n_simulations: int) -> None:
    """Print a table: model, scenario, rows, test, share of rejections."""
    warnings.simplefilter("ignore", DataWarning)
    print("model,scenario,n,check,term,simulations,rejected")
    for name, (leaf, penalties, columns) in MODELS.items():
        for scenario, n in (("holds", 200), ("holds", 400), ("holds", 500), ("fades", 500), ("u_shape", 500)):
            if leaf == "log_logistic" and scenario == "fades":
                continue
            family = "log_logistic" if leaf == "log_logistic" else "weibull"
            p_values = []
            for seed in range(n_simulations):
                X, y = simulated(scenario, family, n, np.random.default_rng([seed, n]))
                model = SurvivalRegression(leaf, penalties=penalties, columns=columns).fit(X, y)
                p_values.append(check(model, X, y).tests["p"])
            rates = (pd.concat(p_values, axis=1) < 0.05).mean(axis=1)
            for (_, kind, term), rate in rates.items():
                print(f'"{name}",{scenario},{n},{kind},{term},{n_simulations},{rate:.3f}', flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
