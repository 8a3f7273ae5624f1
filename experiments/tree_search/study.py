"""What to compare candidates by, and which: nested cross-validation of every candidate of a search.

python experiments/tree_search/study.py train [data sets]   # candidates.csv, baselines.csv
python experiments/tree_search/study.py report              # the tables of the README
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import pandas as pd
import torch

from sstorch import load_dataset
from sstorch.bench import make_baseline, make_folds, score_predictor
from sstorch.bench.flat import soft_tree
from sstorch.data import Schema, stratified_folds
from sstorch.soft import train_batch
from sstorch.soft.candidates import candidates
from sstorch.soft.search import SCORINGS, HeldOutRows

HERE = Path(__file__).parent
DATA = ("veterans", "gbsg2", "whas500", "aids")
TRAINERS = ("nodec", "joint")
LISTS = {
    "depth": (0, 1, 2),
    "leaf": "log_logistic",
    "init": "kmeans",
    "n_starts": 3,
    "ridge": (1e-3, 1e-2),
    "gate_ridge": (1e-4, 1e-3, 1e-2),
    "fused": (0.0, 0.03, 0.3),
    "numeric": "linear",
    "roughness": 0.0,
    "gate_features": None,
}
COLUMNS = ["data", "trainer", "fold", "inner", "depth", "ridge", "gate_ridge", "fused", *SCORINGS]


def scored(batch, split: int, setting: int, count: int, rows: HeldOutRows) -> dict[str, float]:
    start = batch.best_start(split, setting, count)
    tree = batch.tree.select(batch.position(split, start, setting))
    return {name: rows.score(tree, name) for name in SCORINGS}


def nested(name: str, trainer: str) -> pd.DataFrame:
    """Inner scores of every candidate, and those of the same candidate trained on all rows of the fold."""
    data = load_dataset(name)
    outer, schema, rows = make_folds(data, 5, 0), Schema.of(data.frame), []
    found = candidates(LISTS, trainer)
    settings = {each: soft_tree(trainer=trainer, **each.parameters)._batch_settings() for each in found}
    for fold in range(5):
        begin = time.process_time()
        train, test = data.subset(outer != fold), data.subset(outer == fold)
        inner = stratified_folds(train.event, 5, 0)
        # The inner folds, and the outer one as a sixth split of the same batch.
        splits = [train.subset(inner != k) for k in range(5)] + [train]
        held_out = [train.subset(inner == k) for k in range(5)] + [test]
        for key in dict.fromkeys(own.batch for own in found):
            own = [candidate for candidate in found if candidate.batch == key]
            coefficients = list(dict.fromkeys(settings[candidate].coefficients for candidate in own))
            batch = train_batch(splits, settings[own[0]], schema, coefficients=coefficients)
            for k in range(6):
                scorer = HeldOutRows(held_out[k], splits[k], batch.preprocessors[k], "hbp")
                for candidate in own:
                    setting = batch.coefficients.index(settings[candidate].coefficients)
                    scores = scored(batch, k, setting, candidate.n_starts, scorer)
                    about = {"data": name, "trainer": trainer, "fold": fold, "inner": k}
                    rows.append({**about, **candidate.row(), **scores})
        print(name, trainer, fold, f"{time.process_time() - begin:.0f} s of the processor", flush=True)
    return pd.DataFrame(rows)


def baselines(name: str) -> pd.DataFrame:
    data = load_dataset(name)
    outer, schema, rows = make_folds(data, 5, 0), Schema.of(data.frame), []
    for fold in range(5):
        train, test = data.subset(outer != fold), data.subset(outer == fold)
        for model in ("cox", "rsf"):
            scores = score_predictor(make_baseline(model).fit(train, schema, 0), test, train)
            own = {"c_harrell": scores["c_harrell"].value, "ibs": -scores["ibs_graf"].value}
            rows.append({"data": name, "model": model, "fold": fold, **own})
    return pd.DataFrame(rows)


def chosen(
    table: pd.DataFrame, scoring: str, one_standard_error: bool, keep: pd.Series | None = None
) -> pd.DataFrame:
    """Outer scores of the candidate that the inner folds choose, a row per data set and fold."""
    table = table if keep is None else table[keep]
    keys = ["trainer", "depth", "ridge", "gate_ridge", "fused"]
    rows = []
    for (name, fold), own in table.groupby(["data", "fold"], sort=False):
        inner = own[own["inner"] < 5].groupby(keys)[scoring].agg(["mean", "sem"])
        best = inner["mean"].idxmax()
        if one_standard_error:
            near = inner[inner["mean"] >= inner.loc[best, "mean"] - inner.loc[best, "sem"]]
            near = near.index.to_frame(index=False)
            best = near.sort_values(
                ["depth", "fused", "gate_ridge", "ridge"], ascending=[True, False, False, False]
            )
            best = tuple(best[keys].iloc[0])
        outer = own[own["inner"] == 5].set_index(keys).loc[best]
        rows.append(
            {"data": name, "fold": fold, **dict(zip(keys, best, strict=True)), **outer[list(SCORINGS)]}
        )
    return pd.DataFrame(rows)


def report() -> None:
    table, others = pd.read_csv(HERE / "candidates.csv"), pd.read_csv(HERE / "baselines.csv")
    names = [name for name in DATA if name in set(table["data"])]

    def line(label: str, found: pd.DataFrame) -> dict[str, object]:
        means = found.groupby("data")[["c_harrell", "ibs"]].mean()
        row: dict[str, object] = {"choice": label}
        for name in names:
            row[f"{name} C"], row[f"{name} IBS"] = means.loc[name, "c_harrell"], -means.loc[name, "ibs"]
        return {**row, "mean C": means["c_harrell"].mean(), "mean IBS": -means["ibs"].mean()}

    rows = [line(model, own) for model, own in others.groupby("model")]
    for trainer in (*TRAINERS, None):
        own = table if trainer is None else table[table["trainer"] == trainer]
        for scoring in SCORINGS:
            for rule in (False, True):
                label = f"{trainer or 'both'}, {scoring}{', one SE' if rule else ''}"
                rows.append(line(label, chosen(own, scoring, rule)))
    default = table["gate_ridge"] != 1e-3
    for trainer in TRAINERS:
        of_trainer = table["trainer"] == trainer
        found = chosen(table[of_trainer & default], "log_likelihood", False)
        rows.append(line(f"{trainer}, log_likelihood, the default grid", found))
        depths = found.groupby("data", sort=False)["depth"].apply(list).to_dict()
        print(f"{trainer}: depths chosen with the default grid in the five outer folds: {depths}")
        for name, values in (("depth", (0, 1, 2)), ("ridge", LISTS["ridge"]), ("fused", LISTS["fused"])):
            for value in values:
                # A single leaf knows no penalty but the ridge.
                own = (table[name] == value) | ((table["depth"] == 0) & (name == "fused"))
                found = chosen(table[of_trainer & own], "log_likelihood", False)
                rows.append(line(f"{trainer}, log_likelihood, {name} {value:g} alone", found))
    print(pd.DataFrame(rows).round(4).to_string(index=False))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["train", "report"])
    parser.add_argument("data", nargs="*", default=DATA)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "report":
        report()
    else:
        others = pd.concat([baselines(name) for name in given.data])
        others.to_csv(HERE / "baselines.csv", index=False, float_format="%.5f")
        whole = pd.concat([nested(name, trainer) for name in given.data for trainer in TRAINERS])
        whole[COLUMNS].to_csv(HERE / "candidates.csv", index=False, float_format="%.5g")
