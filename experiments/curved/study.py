"""What curves of single columns are worth in one leaf: chosen within the training rows, judged on the folds.

python experiments/curved/study.py train [--sets NAME ...]    # results.csv, a row for each fold and model
python experiments/curved/study.py report                     # the tables of the README
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from sstorch import Columns, Penalties, PrognosticTreeCV, SurvivalRegression, load_dataset, metrics
from sstorch.bench import make_baseline, make_folds
from sstorch.bench.baselines import Curves
from sstorch.data import Schema, SurvivalData
from sstorch.exceptions import DataWarning

HERE = Path(__file__).parent
RESULTS = HERE / "results.csv"
PUBLISHED = ["gbsg2", "veterans", "whas500", "uissurv", "credit", "churn", "unempdur", "aids2"]
FURTHER = ["rott2", "nwtco", "grace", "trace", "colon", "actg"]
LARGE = ["employee"]
ENCODINGS = {"straight": "linear", "curved": "auto"}
PEERS = {"cox": {}, "rsf": {"n_trees": 200}, "gradient_boosting": {}}


def leaf(numeric: str, train: SurvivalData, schema: Schema) -> PrognosticTreeCV:
    """One log-logistic leaf; encoding, ridge and roughness by the likelihood of inner folds."""
    encodings = ("linear",) if numeric == "linear" else ("linear", "log", "piecewise", "spline")
    candidates = {
        f"{encoding} {ridge} {roughness}": SurvivalRegression(
            "log_logistic", Penalties(ridge=ridge, roughness=roughness), Columns(numeric=encoding)
        )
        for encoding in encodings
        for ridge in (1e-4, 1e-3, 1e-2)
        for roughness in ((1e-3, 1e-2, 1e-1) if encoding in ("piecewise", "spline") else (0.0,))
    }
    search = PrognosticTreeCV(candidates, scoring="log_likelihood", prefer="accuracy")
    return search._fit_data(train, schema)


def scores(model: Curves, test: SurvivalData, train: SurvivalData) -> dict[str, float]:
    """Time-dependent concordance and integrated Brier score, convention sksurv."""
    times = np.unique(test.time[test.event])
    grid = metrics.evaluation_times(test.time, train.time, "sksurv")
    curves = model.falling_curves(test.frame, times)
    score = metrics.integrated_brier_score(
        (test.time, test.event),
        model.falling_curves(test.frame, grid),
        grid,
        train=(train.time, train.event),
        convention="sksurv",
    )
    return {"c": metrics.concordance_harrell((test.time, test.event), curves, times), "ibs": score}


def train_set(name: str) -> list[dict[str, object]]:
    """Every model on the five folds of a data set."""
    data = load_dataset(name)
    folds, schema = make_folds(data, 5, 0), Schema.of(data.frame)
    rows: list[dict[str, object]] = []
    for fold in range(5):
        train, test = data.subset(folds != fold), data.subset(folds == fold)
        for model, numeric in ENCODINGS.items():
            begin = time.process_time()
            search = leaf(numeric, train, schema)
            seconds = time.process_time() - begin
            chosen = dict(zip(("numeric", "ridge", "roughness"), search.best_name_.split(), strict=True))
            found = scores(search.best_estimator_, test, train)
            rows.append({"data": name, "fold": fold, "model": model, **found, "seconds": seconds, **chosen})
        for model, options in PEERS.items() if name in FURTHER else ():
            begin = time.process_time()
            peer = make_baseline(model, **options).fit(train, schema, seed=0)
            seconds = time.process_time() - begin
            found = scores(peer, test, train)
            rows.append({"data": name, "fold": fold, "model": model, **found, "seconds": seconds})
        print(pd.DataFrame(rows).query("fold == @fold")[["model", "c", "ibs", "seconds"]].to_string())
    return rows


def report() -> None:
    """Means over folds by data set and model, and over data sets."""
    results = pd.read_csv(RESULTS)
    for title, names in (("published folds", PUBLISHED), ("large", LARGE), ("further sets", FURTHER)):
        some = results[results["data"].isin(names)]
        for score in ("c", "ibs"):
            wide = some.pivot_table(score, "data", "model", sort=False)
            wide = wide[[model for model in (*ENCODINGS, *PEERS) if model in wide]]
            wide.loc["mean"] = wide.mean()
            print(f"\n{title}: {score}\n{wide.round(4).to_string()}")
    chosen = results[results["model"] == "curved"].groupby("data", sort=False)["numeric"]
    print("\nchosen\n" + chosen.agg(lambda own: own.value_counts().to_dict()).to_string())


def main() -> None:
    """See the head of the file."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["train", "report"])
    parser.add_argument("--sets", nargs="*", default=[*PUBLISHED, *LARGE, *FURTHER])
    arguments = parser.parse_args()
    if arguments.what == "report":
        report()
        return
    for name in arguments.sets:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            found = pd.DataFrame(train_set(name))
        if RESULTS.exists():
            before = pd.read_csv(RESULTS)
            found = pd.concat([before[before["data"] != name], found])
        found.to_csv(RESULTS, index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
