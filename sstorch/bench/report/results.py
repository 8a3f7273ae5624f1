"""The results of a study: one table of scores, its models and metrics, and the published tables.

``published.csv`` holds the means and standard deviations of section 5.2 and of appendices D.1 and D.2 of
Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis": 15 data sets, six soft trees at
depths 1 and 2, SkSurv, RPART and CTree at depths 2 to 5, means over 5 folds x 20 starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
_ROW = ["dataset", "key", "fold", "start", "part", "metric"]
# Titles as in Consolo, Amaldi and Carrizosa.
FAMILIES: dict[str, dict[str, str]] = {
    "soft trees": {
        "sst_exp": "Exp",
        "sst_weibull": "Weibull",
        "sst_llog": "Llog",
        "sst_llog_kmeans": "Llog k-means",
        "sst_po": "PO",
        "sst_ph": "PH",
    },
    "greedy trees": {"sksurv": "SkSurv", "rpart": "RPART", "ctree": "CTree"},
    "exact trees": {"surtree": "SurTree", "osst": "OSST"},
    "other models": {
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
    },
}
_TITLES = {name: title for names in FAMILIES.values() for name, title in names.items()}
# Soft trees of the paper with a ridge on their gates, and with curved effects in their leaves.
_VARIANTS = ("", "gated", "curved")


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


def model_of(name: str, depth: int | None = None, soft: bool = False) -> dict[str, Any]:
    """How a model is printed and sorted; `soft` for a soft tree, by its settings, of unknown name.

    ``plain`` is the published model that it is compared with.
    """
    base, _, settings = name.partition(",")
    plain, _, variant = base.rpartition("_")
    if variant not in _VARIANTS or plain not in FAMILIES["soft trees"]:
        plain, variant = base, ""
    known = (family for family, names in FAMILIES.items() if plain in names)
    family = next(known, "soft trees" if soft else "other models")
    title = f"{_TITLES.get(plain, plain)} {variant}".rstrip() + f" ({settings})" * bool(settings)
    places = list(FAMILIES).index(family), _VARIANTS.index(variant), [*_TITLES, plain].index(plain)
    return {
        "key": name if depth is None else f"{name}_d{depth}",
        "name": name,
        "depth": depth,
        "label": title if depth is None else f"{title} D{depth}",
        "family": family,
        "plain": name if settings else plain,
        "order": (*places, name, -1 if depth is None else depth),
    }


@cache
def published_tables() -> pd.DataFrame:
    """The published tables: split, metric, model, depth, dataset, mean, std (NaN if none), source.

    The metric is c_harrell, c_uno, cd_auc or ibs; the last is our ``ibs_graf``.
    """
    with (files("sstorch.bench.report") / "published.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


def common(means: pd.DataFrame) -> pd.DataFrame:
    """The part of a table of models x data sets over which averages and ranks can be compared.

    Models with finite values on fewer than half of the data sets leave first, then incomplete data sets.
    """
    known = means.notna() & means.abs().ne(np.inf)
    enough = known.sum(axis=1) * 2 >= max(1, int(known.any().sum()))
    return means.loc[enough, known[enough].all()] if enough.any() else means.iloc[:0, :0]


class Results:
    """Results of a study.

    Args:
        table: :meth:`~sstorch.bench.ResultStore.table`.
        facts: a record per task, :meth:`~sstorch.bench.ResultStore.facts`.
        metrics: names to keep; None keeps all but the training objective.
        models: names to keep, with or without their depth ("sst_llog" or "sst_llog_d2"); None keeps all.
        datasets: names to keep; None keeps all.

    Attributes:
        rows: the rows kept, sorted, with the column ``key`` of `model_of`.
        tasks: a row per task kept: ``dataset``, ``key`` and the facts.
        models: a row per model in the order of the tables, see `model_of`, by ``key``.
        labels: names of the models to print, by ``key``.
        datasets: names, sorted.
        metrics: names, in the order of the tables.
        notes: remarks on how the rows were chosen, to be shown to the reader.

    Raises:
        ConfigError: a name that the table does not have.
    """

    def __init__(
        self,
        table: pd.DataFrame,
        facts: Iterable[Mapping[str, Any]],
        *,
        metrics: Sequence[str] | None = None,
        models: Sequence[str] | None = None,
        datasets: Sequence[str] | None = None,
    ) -> None:
        tasks = pd.DataFrame(list(facts))
        soft = [any(str(name).startswith("tree.") for name in settings) for settings in tasks["settings"]]
        depths = [None if pd.isna(depth) else int(depth) for depth in tasks["depth"]]
        made = pd.DataFrame(map(model_of, tasks["model"], depths, soft))
        tasks = tasks.assign(key=made["key"].to_numpy())
        made = made.drop_duplicates("key").sort_values("order").set_index("key")
        depth = table["depth"].astype("Int64").astype("string")
        rows = table.assign(key=table["model"].astype("string").str.cat("_d" + depth).fillna(table["model"]))
        # Training objectives of different models are not comparable: they are asked for by name.
        scores = _in_order(set(rows["metric"]))
        asked = [name for name in scores if name != OBJECTIVE] if metrics is None else metrics
        keys = _chosen("models", [*made.index, *made["name"]], models)
        wanted = {
            "metric": _chosen("metrics", scores, asked),
            "key": list(made.index[made.index.isin(keys) | made["name"].isin(keys)]),
            "dataset": _chosen("datasets", sorted(set(rows["dataset"])), datasets),
        }
        for column, names in wanted.items():
            rows = rows[rows[column].isin(names)]
        if rows.empty:
            raise ConfigError("no result has the requested data sets, models and metrics")
        task = ["dataset", "key", "config"]
        tasks = tasks.merge(rows[task].drop_duplicates()).sort_values(["finished", "config"])
        self.tasks = tasks.drop_duplicates(["dataset", "key"], keep="last").sort_values(["dataset", "key"])
        self.notes = [*self._repeated(tasks), *self._different_data()]
        # Categories: a study has millions of rows, and comparing their texts would take minutes. Sorted, so
        # that sums are the same to the last bit whatever the order of the files.
        rows = rows.merge(self.tasks[task])
        rows = rows.astype(dict.fromkeys(["dataset", "key", "part", "metric"], "category"))
        self.rows = rows.sort_values(_ROW, kind="stable", ignore_index=True)
        # Models, data sets and metrics of which the choice has left nothing are not part of the report.
        left = {column: set(self.rows[column]) for column in wanted}
        self.metrics = [name for name in wanted["metric"] if metrics is not None or name in left["metric"]]
        self.datasets = [name for name in wanted["dataset"] if name in left["dataset"]]
        self.models = made.loc[[key for key in wanted["key"] if key in left["key"]]]
        self.labels = {str(key): str(label) for key, label in self.models["label"].items()}
        self._summaries = {chosen: self._summary(chosen) for chosen in (False, True)}

    def _repeated(self, tasks: pd.DataFrame) -> list[str]:
        """Notes on models with several configurations: the one finished last is reported."""
        counts = tasks.groupby(["dataset", "key"]).size()
        return [
            f"{dataset}, {key}: results of {counts[dataset, key]} configurations; the one finished last, "
            f"{config}, is reported."
            for dataset, key, config in self.tasks[["dataset", "key", "config"]].itertuples(index=False)
            if counts[dataset, key] > 1
        ]

    def _different_data(self) -> list[str]:
        """Notes on data sets whose models were not fitted to the same folds of the same rows."""
        notes = []
        meanings = {"data": "other rows or columns", "n_folds": "another number of folds"}
        for dataset, tasks in self.tasks.groupby("dataset"):
            for name, difference in (meanings | {"seed": "other folds"}).items():
                groups = [sorted(keys) for _, keys in tasks.groupby(name)["key"]]
                if len(groups) > 1:
                    few = min(groups, key=len)
                    notes.append(
                        f"{dataset}: {', '.join(few)} had {difference} than the other models, and cannot be "
                        "compared with them; run the study again for all models."
                    )
        return notes

    def _summary(self, chosen: bool) -> pd.DataFrame:
        rows = self.rows[self.rows["chosen"]] if chosen else self.rows
        shares = rows["metric"].isin([name for name in self.metrics if measure_of(name).rejection])
        rejected = (rows["value"] < LEVEL).astype(float).where(rows["value"].notna())
        values = rows.assign(value=rows["value"].where(~shares, rejected))
        grouped = values.groupby(["metric", "part", "key", "dataset"], observed=True)["value"]
        table = grouped.agg(["mean", "std", "count", "size"]).reset_index()
        return table.astype(dict.fromkeys(["metric", "part", "key", "dataset"], object))

    def summary(self, metric: str, part: str = "test", *, chosen: bool = False) -> pd.DataFrame:
        """``mean``, ``std``, ``count`` of the defined runs and ``size`` of all, by ``key`` and ``dataset``.

        Args:
            metric: its name; of p-values the mean is the share below .05.
            part: "test" or "train".
            chosen: over the chosen start of each fold instead of over all folds and starts.
        """
        table = self._summaries[chosen]
        own = table[(table["metric"] == metric) & (table["part"] == part)]
        return own.set_index(["key", "dataset"])[["mean", "std", "count", "size"]]

    def means(self, metric: str, part: str = "test", *, chosen: bool = False) -> pd.DataFrame:
        """Means of `summary`, models x data sets; NaN where there is none."""
        wide = self.summary(metric, part, chosen=chosen)["mean"].unstack()
        return wide.reindex(index=self.models.index, columns=self.datasets).astype(float)

    def by_fold(self, metric: str, *, chosen: bool = False) -> pd.DataFrame:
        """Test scores by (data set, fold) and key: means over the starts, or of the chosen start alone.

        NaN if one of the starts is not defined.
        """
        rows = self.rows[(self.rows["metric"] == metric) & (self.rows["part"] == "test")]
        rows = rows[rows["chosen"]] if chosen else rows
        grouped = rows.groupby(["dataset", "fold", "key"], observed=True)["value"]
        return grouped.mean().where(grouped.count() == grouped.size()).unstack()

    def deepest(self) -> pd.Index[str]:
        """Keys of the models, each at its largest depth, so that no result influences the choice."""
        return self.models.drop_duplicates("name", keep="last").index


def _in_order(names: Iterable[str]) -> list[str]:
    """Names of metrics: those known here in their order, then the others by name."""
    places = {name: place for place, name in enumerate(METRICS)}
    return sorted(names, key=lambda name: (places.get(name.partition(":")[0], len(places)), name))


def _chosen(option: str, known: Sequence[str], asked: Sequence[str] | None) -> list[str]:
    strange = [name for name in asked or () if name not in known]
    if strange:
        there = ", ".join(dict.fromkeys(known))
        raise ConfigError(f"{option}: no results of {', '.join(strange)}; there are {there}")
    return [name for name in dict.fromkeys(known) if asked is None or name in asked]
