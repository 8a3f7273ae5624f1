"""The results of a study: one table of scores, its models and metrics, and the published tables.

``published.csv`` holds the means and standard deviations of section 5.2 and of appendices D.1 and D.2 of
Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis": 15 data sets, six soft trees at
depths 1 and 2, SkSurv, RPART and CTree at depths 2 to 5, means over 5 folds x 20 starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd

from sstorch.bench.scores import OBJECTIVE
from sstorch.exceptions import ConfigError
from sstorch.metrics.registry import METRICS, Metric

# Of the tests, and of the p-values that count as rejections.
LEVEL = 0.05
# Names of models in the order of the tables, those of the paper as there.
_TITLES = {
    "sst_exp": "Exp",
    "sst_weibull": "Weibull",
    "sst_llog": "Llog",
    "sst_llog_kmeans": "Llog k-means",
    "sst_po": "PO",
    "sst_ph": "PH",
    "sksurv": "SkSurv",
    "rpart": "RPART",
    "ctree": "CTree",
    "surtree": "SurTree",
    "osst": "OSST",
    "kaplan_meier": "Kaplan-Meier",
    "cox": "Cox",
    "cox_lifelines": "Cox, small ridge",
    "weibull_aft": "Weibull AFT",
    "log_logistic_aft": "Log-logistic AFT",
    "rsf": "RSF",
    "gradient_boosting": "Gradient boosting",
    "deepsurv": "DeepSurv",
    "coxtime": "CoxTime",
    "logistic_hazard": "Logistic hazard",
}
# Soft trees of the paper with a ridge on their gates, and with curved effects in their leaves.
_VARIANTS = ("gated", "curved")
_TASK = ["dataset", "key", "config"]


def measure_of(name: str) -> Metric:
    """The metric of a name, ``"ibs:relapse"`` of a cause; one that is not registered has no direction."""
    of, _, cause = name.partition(":")
    known = METRICS.get(of) or Metric(of, of, of, None)
    if not cause:
        return known
    return replace(known, name=name, title=f"{known.title}, {cause}", short=f"{known.short} {cause}")


def arrow_of(metric: Metric) -> str:
    """The direction of a metric as an arrow, behind a heading."""
    return {True: " ↑", False: " ↓", None: ""}[metric.higher_is_better]


def model_of(name: str, depth: int | None) -> dict[str, Any]:
    """How a model is printed and sorted; ``plain`` is the published model that it is compared with."""
    base, _, settings = name.partition(",")
    plain, _, variant = base.rpartition("_")
    if variant not in _VARIANTS or plain not in _TITLES:
        plain, variant = base, ""
    title = f"{_TITLES.get(plain, plain)} {variant}".rstrip() + f" ({settings})" * bool(settings)
    return {
        "key": name if depth is None else f"{name}_d{depth}",
        "name": name,
        "depth": depth,
        "label": title if depth is None else f"{title} D{depth}",
        "plain": name if settings else plain,
        "order": ([*_TITLES, plain].index(plain), name, -1 if depth is None else depth),
    }


@cache
def published_tables() -> pd.DataFrame:
    """The published tables: split, metric (ibs is our ibs_graf), model, depth, dataset, mean, std, source."""
    with (files("sstorch.bench.report") / "published.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


def common(means: pd.DataFrame) -> pd.DataFrame:
    """Part of a table of models x data sets over which averages can be compared: all values are finite."""
    # Models with finite values on fewer than half of the data sets leave first, then incomplete data sets.
    known = means.notna() & means.abs().ne(np.inf)
    enough = known.sum(axis=1) * 2 >= max(1, int(known.any().sum()))
    return means.loc[enough, known[enough].all()] if enough.any() else means.iloc[:0, :0]


class Results:
    """Results of a study, or of some of its rows, from ``table`` and ``facts`` of a `ResultStore`."""

    def __init__(self, table: pd.DataFrame, facts: Iterable[Mapping[str, Any]]) -> None:
        if table.empty:
            raise ConfigError("`table` must have results, got none")
        tasks = pd.DataFrame(list(facts))
        depths = [None if pd.isna(depth) else int(depth) for depth in tasks["depth"]]
        made = pd.DataFrame(map(model_of, tasks["model"], depths))
        tasks = tasks.assign(key=made["key"].to_numpy())
        depth = table["depth"].astype("Int64").astype("string")
        rows = table.assign(key=table["model"].astype("string").str.cat("_d" + depth).fillna(table["model"]))
        tasks = tasks.merge(rows[_TASK].drop_duplicates()).sort_values(["finished", "config"])
        # Of several configurations of a model, the one finished last.
        self.tasks = tasks.drop_duplicates(["dataset", "key"], keep="last").sort_values(["dataset", "key"])
        self.notes = [
            f"{dataset}, {key}: several configurations have results; the one finished last is reported."
            for dataset, key in tasks.loc[tasks.duplicated(["dataset", "key"]), ["dataset", "key"]].to_numpy()
        ]
        for dataset, own in self.tasks.groupby("dataset"):
            groups = [sorted(keys) for _, keys in own.groupby(["data", "n_folds", "seed"])["key"]]
            if len(groups) > 1:
                few = ", ".join(sorted(groups, key=len)[0])
                self.notes.append(
                    f"{dataset}: {few} had other rows, columns or folds than the other models, and cannot be "
                    "compared with them; run the study again for all models."
                )
        # Categories: a study has millions of rows, and comparing their texts would take minutes. Sorted, so
        # that sums are the same to the last bit whatever the order of the files.
        rows = rows.merge(self.tasks[_TASK])
        rows = rows.astype(dict.fromkeys(["dataset", "key", "part", "metric"], "category"))
        order = ["dataset", "key", "fold", "start", "part", "metric"]
        self.rows = rows.sort_values(order, kind="stable", ignore_index=True)
        self.datasets = sorted(set(rows["dataset"]))
        places = {name: place for place, name in enumerate(METRICS)}
        self.metrics = sorted(
            # Training objectives of different models are not comparable.
            set(rows["metric"]) - {OBJECTIVE},
            key=lambda name: (places.get(name.partition(":")[0], len(places)), name),
        )
        made = made[made["key"].isin(set(rows["key"]))].drop_duplicates("key")
        self.models = made.sort_values("order").set_index("key")
        self.labels = {str(key): str(label) for key, label in self.models["label"].items()}

    def summary(self, metric: str, part: str = "test", *, chosen: bool = False) -> pd.DataFrame:
        """``mean``, ``std``, ``count`` of defined runs and ``size`` of all, by ``key`` and ``dataset``."""
        # Over all folds and starts, or the chosen start of each; of p-values the mean is the share below .05.
        rows = self.rows[(self.rows["metric"] == metric) & (self.rows["part"] == part)]
        rows = (rows[rows["chosen"]] if chosen else rows).astype({"key": object, "dataset": object})
        if measure_of(metric).rejection:
            rejected = (rows["value"] < LEVEL).astype(float)
            rows = rows.assign(value=rejected.where(rows["value"].notna()))
        return rows.groupby(["key", "dataset"])["value"].agg(["mean", "std", "count", "size"])

    def means(self, metric: str, part: str = "test", *, chosen: bool = False) -> pd.DataFrame:
        """Means of `summary`, models x data sets; NaN where there is none."""
        wide = self.summary(metric, part, chosen=chosen)["mean"].unstack()
        return wide.reindex(index=self.models.index, columns=self.datasets).astype(float)

    def by_fold(self, metric: str) -> pd.DataFrame:
        """Test scores by (data set, fold) and key: means over the starts, NaN if one is not defined."""
        rows = self.rows[(self.rows["metric"] == metric) & (self.rows["part"] == "test")]
        grouped = rows.groupby(["dataset", "fold", "key"], observed=True)["value"]
        return grouped.mean().where(grouped.count() == grouped.size()).unstack()
