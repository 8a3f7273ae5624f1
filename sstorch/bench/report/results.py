"""The results of a study: its metrics, its models, its long table, and the published tables.

``published.csv`` holds the means and standard deviations of section 5.2 and of appendices D.1 and D.2 of
Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis": 15 data sets, six soft trees at
depths 1 and 2, SkSurv, RPART and CTree at depths 2 to 5, means over 5 folds x 20 starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sstorch.bench.scores import OBJECTIVE
from sstorch.exceptions import ConfigError
from sstorch.metrics.registry import METRICS, Metric

PARTS = ("test", "train")
_ROW = ["dataset", "key", "fold", "start", "part", "metric"]
# Of the tests, and of the p-values that count as rejections.
LEVEL = 0.05

Facts = Mapping[str, Any]


def measure_of(name: str) -> Metric:
    """The metric of a name; one that is not in the registry has no direction.

    A name such as ``"ibs:relapse"`` is that of a metric of one competing cause.
    """
    of, _, cause = name.partition(":")
    known = METRICS.get(of) or Metric(of, of, of, None)
    if not cause:
        return known
    return replace(known, name=name, title=f"{known.title}, {cause}", short=f"{known.short} {cause}")


def in_order(names: Iterable[str]) -> list[str]:
    """Names of metrics: those known here in their order, then the others by name."""
    places = {name: place for place, name in enumerate(METRICS)}
    return sorted(names, key=lambda name: (places.get(name.partition(":")[0], len(places)), name))


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


class Model(NamedTuple):
    """A column of the tables: a model, at a depth where it has one."""

    name: str  # such as "sst_llog", or "sst_llog,ridge=0.1" for one of several settings
    depth: int | None
    key: str  # the name of its files in a run folder, such as "sst_llog_d2"
    title: str  # the name to print, without the depth; settings in brackets, fit for lists
    label: str  # the name to print, with the depth
    family: str  # one of `FAMILIES`; names that are unknown belong to the last, unless they are soft trees
    plain: str  # name of the published model it is compared with: itself, or the plain one of its leaf
    order: tuple[int, int, int, str, int]  # to sort by: family, known names, others by name; then the depth


def model_of(name: str, depth: int | None = None, soft: bool = False) -> Model:
    """The model of a name and depth; `soft` if it is a soft tree by its settings, though of unknown name."""
    base, _, settings = name.partition(",")
    plain, _, variant = base.rpartition("_")
    if variant not in _VARIANTS or plain not in FAMILIES["soft trees"]:
        plain, variant = base, ""
    known = (family for family, names in FAMILIES.items() if plain in names)
    family = next(known, "soft trees" if soft else "other models")
    title = f"{_TITLES.get(plain, plain)} {variant}".rstrip() + f" ({settings})" * bool(settings)
    key, label = (name, title) if depth is None else (f"{name}_d{depth}", f"{title} D{depth}")
    places = list(FAMILIES).index(family), _VARIANTS.index(variant), [*_TITLES, plain].index(plain)
    order = (*places, name, -1 if depth is None else depth)
    return Model(name, depth, key, title, label, family, name if settings else plain, order)


def by_family(models: Iterable[Model]) -> dict[str, list[Model]]:
    """Models by family, in the order of `FAMILIES`; families without a model are excluded."""
    members: dict[str, list[Model]] = {family: [] for family in FAMILIES}
    for model in models:
        members[model.family].append(model)
    return {family: group for family, group in members.items() if group}


def deepest(models: Iterable[Model]) -> list[Model]:
    """One entry per model: that of the largest depth, so that no result influences the choice."""
    return list({model.name: model for model in sorted(models, key=lambda model: model.order)}.values())


@cache
def published_tables() -> pd.DataFrame:
    """The published tables in long form.

    Returns:
        Columns split, metric, model, depth, dataset, mean, std (NaN if none was given) and source, a row per
        value. The metric is c_harrell, c_uno, cd_auc or ibs; the last is our ``ibs_graf``.
    """
    with (files("sstorch.bench.report") / "published.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


@cache
def published_means(metric: str, part: str = "test") -> pd.DataFrame:
    """Published means of a metric.

    Args:
        metric: its name here, such as "ibs_graf".
        part: "test" or "train".

    Returns:
        A row per data set, a column per model (its key); empty if the metric was not published.
    """
    table = published_tables()
    chosen = table[(table["metric"] == measure_of(metric).published) & (table["split"] == part)]
    keys = chosen["model"] + "_d" + chosen["depth"].astype(int).astype(str)
    return chosen.assign(key=keys).pivot(index="dataset", columns="key", values="mean")


class Cells(NamedTuple):
    """A metric of one part; every frame has a row per data set and a column per model (its key)."""

    mean: pd.DataFrame  # over the runs for which it is defined; NaN where there is none
    std: pd.DataFrame  # standard deviation (n - 1) over the same runs
    defined: pd.DataFrame  # number of these runs
    runs: pd.DataFrame  # number of runs with a row, defined or not; 0 where the model has no result


class Block(NamedTuple):
    """Data sets and models (keys) without a gap, over which averages and ranks can be compared."""

    datasets: list[str]
    models: list[str]
    left_out: list[str]  # models that have values on fewer than half of the data sets


def common_block(mean: pd.DataFrame) -> Block:
    """Data sets with a finite value for every model; models on fewer than half of them are excluded first."""
    known = mean.notna() & mean.abs().ne(np.inf)
    enough = known.sum() * 2 >= max(1, int(known.any(axis=1).sum()))
    kept = known.loc[:, enough]
    rows = kept.all(axis=1) if kept.shape[1] else pd.Series(False, index=kept.index)
    return Block(list(kept.index[rows]), list(kept.columns), list(known.columns[~enough]))


class Results:
    """Results of a study.

    Args:
        table: :meth:`~sstorch.bench.ResultStore.table`.
        facts: a record per task, :meth:`~sstorch.bench.ResultStore.facts`.
        metrics: names to keep; None keeps all but the training objective.
        models: names to keep, with or without their depth ("sst_llog" or "sst_llog_d2"); None keeps all.
        datasets: names to keep; None keeps all.

    Attributes:
        rows: the rows kept, sorted, with the column ``key`` of `Model.key`.
        facts: the records kept, by (data set, key).
        datasets: names, sorted.
        models: in the order of the tables.
        metrics: names, in the order of the tables.
        notes: remarks on how the rows were chosen, to be shown to the reader.

    Raises:
        ConfigError: a name that the table does not have.
    """

    def __init__(
        self,
        table: pd.DataFrame,
        facts: Iterable[Facts],
        *,
        metrics: Sequence[str] | None = None,
        models: Sequence[str] | None = None,
        datasets: Sequence[str] | None = None,
    ) -> None:
        records = list(facts)
        everything = {model.key: model for model in map(_model_of, records)}
        keys = {key: model.name for key, model in everything.items()}
        if models is not None:
            known = [*keys, *keys.values()]
            models = [key for key in keys if {key, keys[key]} & set(_chosen("models", known, models))]
        depth = table["depth"].astype("Int64").astype("string")
        rows = table.assign(key=table["model"].astype("string").str.cat("_d" + depth).fillna(table["model"]))
        # Training objectives of different models are not comparable: they are asked for by name.
        scores = in_order(set(rows["metric"]))
        asked = [name for name in scores if name != OBJECTIVE] if metrics is None else metrics
        wanted = {"metric": _chosen("metrics", scores, asked), "key": _chosen("models", list(keys), models)}
        wanted["dataset"] = _chosen("datasets", sorted(set(rows["dataset"])), datasets)
        for column, names in wanted.items():
            rows = rows[rows[column].isin(names)]
        if rows.empty:
            raise ConfigError("no result has the requested data sets, models and metrics")
        by_task = {(r["dataset"], _model_of(r).key, r["config"]): r for r in records}
        self.notes: list[str] = []
        rows = self._last_of_each(rows, by_task)
        # Categories: a study has millions of rows, and comparing their texts would take minutes. Sorted, so
        # that sums are the same to the last bit whatever the order of the files.
        rows = rows.astype(dict.fromkeys(["dataset", "key", "part", "metric"], "category"))
        self.rows = rows.sort_values(_ROW, kind="stable", ignore_index=True)
        tasks = self.rows[["dataset", "key", "config"]].drop_duplicates().itertuples(index=False, name=None)
        self.facts = {task[:2]: by_task[task] for task in tasks}
        # Models and data sets of which the choice has left nothing are not part of the report.
        left = {column: set(self.rows[column]) for column in wanted}
        self.metrics = tuple(
            name for name in wanted["metric"] if metrics is not None or name in left["metric"]
        )
        self.datasets = tuple(name for name in wanted["dataset"] if name in left["dataset"])
        chosen = [everything[key] for key in wanted["key"] if key in left["key"]]
        self.models = tuple(sorted(chosen, key=lambda model: model.order))
        self._note_different_data()
        self._summaries: dict[bool, pd.DataFrame] = {}

    def _last_of_each(self, rows: pd.DataFrame, facts: Mapping[tuple[Any, ...], Facts]) -> pd.DataFrame:
        """Rows of one configuration per data set and model: the one finished last; a note names it."""
        tasks = rows[["dataset", "key", "config"]].drop_duplicates()
        finished = [str(facts[task]["finished"]) for task in tasks.itertuples(index=False, name=None)]
        ordered = tasks.assign(finished=finished).sort_values(["finished", "config"])
        last = ordered.groupby(["dataset", "key"]).tail(1)
        counts = tasks.groupby(["dataset", "key"]).size()
        for dataset, key, config, _ in last.sort_values(["dataset", "key"]).itertuples(index=False):
            if counts[dataset, key] > 1:
                self.notes.append(
                    f"{dataset}, {key}: results of {counts[dataset, key]} configurations; the one finished "
                    f"last, {config}, is reported."
                )
        return rows.merge(last[["dataset", "key", "config"]])

    def _note_different_data(self) -> None:
        """Note the data sets whose models were not fitted to the same folds of the same rows."""
        meanings = {"data": "other rows or columns", "n_folds": "another number of folds"}
        for dataset in self.datasets:
            for name, difference in (meanings | {"seed": "other folds"}).items():
                groups: dict[object, list[str]] = {}
                for (of, key), record in self.facts.items():
                    if of == dataset:
                        groups.setdefault(record[name], []).append(key)
                if len(groups) > 1:
                    few = min(groups.values(), key=len)
                    self.notes.append(
                        f"{dataset}: {', '.join(sorted(few))} had {difference} than the other models, and "
                        "cannot be compared with them; run the study again for all models."
                    )

    def model(self, key: str) -> Model:
        """The model of a key."""
        return next(model for model in self.models if model.key == key)

    def values(self, metric: str, *, chosen: bool = False) -> pd.DataFrame:
        """Test scores: dataset, key, fold, start, chosen, value."""
        rows = self.rows[(self.rows["metric"] == metric) & (self.rows["part"] == "test")]
        rows = rows[rows["chosen"]] if chosen else rows
        columns = ["dataset", "key", "fold", "start", "chosen", "value"]
        return rows[columns].astype({"dataset": object, "key": object})

    def by_fold(self, metric: str, *, chosen: bool = False) -> pd.Series:
        """Test scores by data set, key and fold: means over the starts, or of the chosen start alone.

        NaN if one of the starts is not defined.
        """
        grouped = self.values(metric, chosen=chosen).groupby(["dataset", "key", "fold"])["value"]
        return grouped.mean().where(grouped.count() == grouped.size())

    def have_same_folds(self, dataset: str, one: str, two: str) -> bool:
        """True if two models (keys) had the same folds of the same data."""
        first, second = (self.facts[dataset, key] for key in (one, two))
        return all(first[name] == second[name] for name in ("seed", "n_folds", "data"))

    def cells(self, metric: str, part: str = "test", *, chosen: bool = False) -> Cells:
        """Mean and standard deviation by data set and model.

        Args:
            metric: its name; of p-values, the share below .05.
            part: "test" or "train".
            chosen: over the chosen start of each fold instead of over all folds and starts.
        """
        if chosen not in self._summaries:
            rows = self.rows[self.rows["chosen"]] if chosen else self.rows
            shares = rows["metric"].isin([name for name in self.metrics if measure_of(name).rejection])
            rejected = (rows["value"] < LEVEL).astype(float).where(rows["value"].notna())
            values = rows.assign(value=rows["value"].where(~shares, rejected))
            grouped = values.groupby(["metric", "part", "dataset", "key"], observed=True)["value"]
            table: pd.DataFrame = grouped.agg(["mean", "std", "count", "size"]).reset_index()
            self._summaries[chosen] = table.astype({"dataset": object, "key": object})
        summary = self._summaries[chosen]
        own = summary[(summary["metric"] == metric) & (summary["part"] == part)]

        def frame(name: str) -> pd.DataFrame:
            wide = own.pivot(index="dataset", columns="key", values=name)
            return wide.reindex(index=list(self.datasets), columns=[model.key for model in self.models])

        counts = (frame(name).fillna(0).astype(int) for name in ("count", "size"))
        return Cells(frame("mean").astype(float), frame("std").astype(float), *counts)


def _model_of(record: Facts) -> Model:
    """The model of the record of a task; soft trees have settings of a tree, whatever their name."""
    depth = record.get("depth")
    soft = any(str(name).startswith("tree.") for name in record["settings"])
    return model_of(str(record["model"]), None if depth is None or pd.isna(depth) else int(depth), soft)


def _chosen(option: str, known: Sequence[str], asked: Sequence[str] | None) -> list[str]:
    if asked is None:
        return list(known)
    strange = [name for name in asked if name not in known]
    if strange:
        there = ", ".join(dict.fromkeys(known))
        raise ConfigError(f"{option}: no results of {', '.join(strange)}; there are {there}")
    return [name for name in dict.fromkeys(known) if name in asked]
