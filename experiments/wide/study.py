"""More columns than rows: SurvivalRegression compared with Coxnet on simulated sparse and dense truths.

    python experiments/wide/study.py results.csv --rows 400 --columns 1000 --repeats 10

Each repeat draws new columns, coefficients and times: columns of variance one in blocks of twenty with
correlation one half, ten coefficients of +1 or -1 ("sparse") or normal ones of all columns ("dense"), linear
predictors of standard deviation 1.2, Weibull times and about a third of the rows censored. Concordance is
that of 1,000 further rows. Coxnet is the lasso of scikit-survival; its alpha is the one of a path of 50 with
the best concordance in five inner folds. Lines are appended to the file; repeats that are there already are
left out.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import KFold
from sksurv.linear_model import CoxnetSurvivalAnalysis
from sksurv.metrics import concordance_index_censored
from sksurv.util import Surv

from sstorch import SurvivalRegression

TRUTHS = ("sparse", "dense")
N_TEST, BLOCK, N_EFFECTS = 1_000, 20, 10


def simulate(
    truth: str, n_rows: int, n_columns: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Columns, times, events and linear predictors of training and test rows."""
    rng = np.random.default_rng([seed, n_rows, n_columns, TRUTHS.index(truth)])
    n_all = n_rows + N_TEST
    factor = np.repeat(rng.standard_normal((n_all, -(-n_columns // BLOCK))), BLOCK, axis=1)[:, :n_columns]
    x = np.sqrt(0.5) * (factor + rng.standard_normal((n_all, n_columns)))
    coefficient = rng.standard_normal(n_columns)
    if truth == "sparse":
        coefficient = np.zeros(n_columns)
        coefficient[rng.choice(n_columns, N_EFFECTS, replace=False)] = rng.choice([-1.0, 1.0], N_EFFECTS)
    predictor = x @ coefficient
    predictor *= 1.2 / predictor.std()
    death = 5 * (rng.exponential(size=n_all) / np.exp(predictor)) ** (1 / 1.3)
    censoring = rng.uniform(0, np.quantile(death, 0.9), n_all)
    return x, np.minimum(death, censoring), death <= censoring, predictor


def concordance(times: np.ndarray, event: np.ndarray, risk: np.ndarray) -> float:
    """Harrell's C; one half where all risks are equal."""
    return float(concordance_index_censored(event, times, risk)[0]) if np.ptp(risk) > 0 else 0.5


def coxnet(x: np.ndarray, times: np.ndarray, event: np.ndarray) -> np.ndarray:
    """Coefficients at the best alpha of five inner folds."""
    y = Surv.from_arrays(event, times)
    path = CoxnetSurvivalAnalysis(l1_ratio=1.0, alpha_min_ratio=0.05, n_alphas=50).fit(x, y).alphas_
    score = np.zeros(len(path))
    for inner, outer in KFold(5, shuffle=True, random_state=0).split(x):
        model = CoxnetSurvivalAnalysis(l1_ratio=1.0, alphas=path).fit(x[inner], y[inner])
        for k, coefficient in enumerate(model.coef_.T):
            score[k] += concordance(times[outer], event[outer], x[outer] @ coefficient)
    best = CoxnetSurvivalAnalysis(l1_ratio=1.0, alphas=path).fit(x, y)
    return best.coef_[:, score.argmax()]


def repeat(truth: str, n_rows: int, n_columns: int, seed: int) -> dict[str, object]:
    """One line of the table."""
    x, times, event, predictor = simulate(truth, n_rows, n_columns, seed)
    train, test = slice(0, n_rows), slice(n_rows, None)
    begin = time.process_time()
    model = SurvivalRegression().fit(x[train], (times[train], event[train]))
    seconds = time.process_time() - begin
    begin = time.process_time()
    lasso = coxnet(x[train], times[train], event[train])
    coxnet_seconds = time.process_time() - begin
    (estimation,) = model.choice_.estimations.values()
    return {
        "truth": truth,
        "rows": n_rows,
        "columns": n_columns,
        "seed": seed,
        "events": int(event[train].sum()),
        "prior": estimation.column_prior,
        "c": round(concordance(times[test], event[test], model.predict(x[test])), 4),
        "c_coxnet": round(concordance(times[test], event[test], x[test] @ lasso), 4),
        "c_truth": round(concordance(times[test], event[test], predictor[test]), 4),
        "cpu_s": round(seconds, 1),
        "cpu_s_coxnet": round(coxnet_seconds, 1),
    }


def main() -> None:
    """Append repeats to a file and print the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--columns", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=10)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for seed in range(given.repeats):
        for truth in TRUTHS:
            there = pd.read_csv(given.file) if given.file.exists() else pd.DataFrame(columns=["truth"])
            key = {"truth": truth, "rows": given.rows, "columns": given.columns, "seed": seed}
            if len(there) and (there[list(key)] == pd.Series(key)).all(axis=1).any():
                continue
            line = pd.DataFrame([repeat(truth, given.rows, given.columns, seed)])
            line.to_csv(given.file, mode="a", header=not given.file.exists(), index=False)
    table = pd.read_csv(given.file)
    print(table.groupby(["rows", "columns", "truth"])[["c", "c_coxnet", "c_truth", "cpu_s"]].mean().round(3))


if __name__ == "__main__":
    main()
