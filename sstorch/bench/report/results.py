"""The results of a study: its metrics, its models, its long table, and the published tables.

``published.csv`` holds the means and standard deviations of section 5.2 and of appendices D.1 and D.2 of
Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis": 15 data sets, six soft trees at
depths 1 and 2, SkSurv, RPART and CTree at depths 2 to 5, means over 5 folds x 20 starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd

from sstorch.bench.scores import OBJECTIVE
from sstorch.bench.store import COLUMNS
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.registry import METRICS, Metric

PARTS = ("test", "train")
_ROW = ["dataset", "key", "fold", "start", "part", "metric"]
# Of the tests, and of the p-values that count as rejections.
LEVEL = 0.05

SOURCE = "Consolo, Amaldi and Carrizosa, “Soft decision trees for survival analysis”"

# Their published integrated Brier scores lie below what any calibrated model can reach.
NOT_COMPARABLE = frozenset({"sst_po", "sst_ph"})
WHY_NOT_COMPARABLE = (
    "The published IBS of PO and PH are not comparable: they lie below what any calibrated model can "
    "reach, for instance .033 on Aids2, where Kaplan-Meier scores .138 to .147 by convention and no model "
    "discriminates."
)

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


def in_order(names: set[str]) -> list[str]:
    """Names of metrics: those known here in their order, then the others by name."""
    places = {name: place for place, name in enumerate(METRICS)}
    return sorted(names, key=lambda name: (places.get(name.partition(":")[0], len(places)), name))


# The soft trees of the paper.
_PAPER = {
    "sst_exp": "Exp",
    "sst_weibull": "Weibull",
    "sst_llog": "Llog",
    "sst_llog_kmeans": "Llog k-means",
    "sst_po": "PO",
    "sst_ph": "PH",
}
# They with a ridge on their gates, and with curved effects of numeric columns in their leaves.
_GATED, _CURVED = "_gated", "_curved"
# Titles of the soft trees as in Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis".
FAMILIES: dict[str, dict[str, str]] = {
    "soft trees": {
        **_PAPER,
        **{name + _GATED: f"{title} gated" for name, title in _PAPER.items()},
        **{name + _CURVED: f"{title} curved" for name, title in _PAPER.items()},
        "sst_cv": "Chosen by search",
    },
    "greedy trees": {"sksurv": "SkSurv", "rpart": "RPART", "ctree": "CTree"},
    "exact trees": {"surtree": "SurTree", "osst": "OSST"},
    "other models": {
        "kaplan_meier": "Kaplan-Meier",
        "cox": "Cox",
        "weibull_aft": "Weibull AFT",
        "log_logistic_aft": "Log-logistic AFT",
        "rsf": "RSF",
        "gradient_boosting": "Gradient boosting",
        "deepsurv": "DeepSurv",
        "coxtime": "CoxTime",
        "logistic_hazard": "Logistic hazard",
    },
}
_SOFT, _OTHER = "soft trees", "other models"
_TITLES = {name: title for names in FAMILIES.values() for name, title in names.items()}
_FAMILY_OF = {name: family for family, names in FAMILIES.items() for name in names}
_POSITION = {name: position for position, name in enumerate(_TITLES)}


@dataclass(frozen=True)
class Model:
    """A column of the tables: a model, at a depth where it has one."""

    name: str  # such as "sst_llog", or "sst_llog,ridge=0.1" for one of several settings
    depth: int | None = None
    soft: bool = field(default=False, compare=False)  # a soft tree by its settings, though of unknown name

    @property
    def key(self) -> str:
        """The name of its files in a run folder, such as "sst_llog_d2"."""
        return self.name if self.depth is None else f"{self.name}_d{self.depth}"

    @property
    def counterpart(self) -> Model:
        """The model of the published tables it is compared with: itself, or the plain one of its leaf."""
        return Model(self.name.removesuffix(_GATED).removesuffix(_CURVED), self.depth)

    @property
    def title(self) -> str:
        """The name to print, without the depth; settings after a comma are in brackets, fit for lists."""
        name, comma, settings = self.name.partition(",")
        title = _TITLES.get(name, name)
        return f"{title} ({settings})" if comma else title

    @property
    def label(self) -> str:
        """The name to print, with the depth."""
        return self.title if self.depth is None else f"{self.title} D{self.depth}"

    @property
    def family(self) -> str:
        """One of `FAMILIES`; names that are unknown belong to the last, unless they are soft trees."""
        return _FAMILY_OF.get(self.name.partition(",")[0], _SOFT if self.soft else _OTHER)

    @property
    def is_soft_tree(self) -> bool:
        """True for the soft trees."""
        return self.family == _SOFT

    @property
    def order(self) -> tuple[int, str, int]:
        """Key to sort by: known names in the order of `FAMILIES`, then others by name; then the depth."""
        position = _POSITION.get(self.name.partition(",")[0], len(_POSITION))
        return (position, self.name, -1 if self.depth is None else self.depth)


def by_family(models: Iterable[Model]) -> dict[str, list[Model]]:
    """Models by family, in the order of `FAMILIES`; families without a model are excluded."""
    members: dict[str, list[Model]] = {family: [] for family in FAMILIES}
    for model in models:
        members[model.family].append(model)
    return {family: group for family, group in members.items() if group}


def deepest(models: Iterable[Model]) -> list[Model]:
    """One entry per model: that of the largest depth, so that no result influences the choice."""
    chosen: dict[str, Model] = {}
    for model in sorted(models, key=lambda model: model.order):
        chosen[model.name] = model
    return list(chosen.values())


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
def published_datasets() -> tuple[str, ...]:
    """Names of the data sets of the published tables, sorted."""
    return tuple(sorted(set(published_tables()["dataset"])))


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
    keys = [Model(name, int(depth)).key for name, depth in zip(chosen["model"], chosen["depth"], strict=True)]
    return chosen.assign(key=keys).pivot(index="dataset", columns="key", values="mean")


def is_comparable(metric: str, model: Model) -> bool:
    """True if the published and our values of a metric measure the same thing."""
    return not (measure_of(metric).published == "ibs" and model.counterpart.name in NOT_COMPARABLE)


@dataclass(frozen=True)
class Cells:
    """A metric of one part; every frame has a row per data set and a column per model (its key)."""

    mean: pd.DataFrame  # over the runs for which it is defined; NaN where there is none
    std: pd.DataFrame  # standard deviation (n - 1) over the same runs
    defined: pd.DataFrame  # number of these runs
    runs: pd.DataFrame  # number of runs with a row, defined or not; 0 where the model has no result

    def at(self, dataset: str, key: str) -> tuple[float, float, int, int]:
        """Mean, standard deviation, number of defined runs and of runs of one cell."""
        frames = (self.mean, self.std, self.defined, self.runs)
        mean, std, defined, runs = (float(frame.loc[[dataset], key].iloc[0]) for frame in frames)
        return mean, std, int(defined), int(runs)


@dataclass(frozen=True)
class Block:
    """Data sets and models (keys) without a gap, over which averages and ranks can be compared."""

    datasets: tuple[str, ...]
    models: tuple[str, ...]
    left_out: tuple[str, ...]  # models that have values on fewer than half of the data sets


def common_block(mean: pd.DataFrame) -> Block:
    """Data sets with a finite value for every model; models on fewer than half of them are excluded first."""
    known = mean.notna() & mean.abs().ne(np.inf)
    enough = known.sum() * 2 >= max(1, int(known.any(axis=1).sum()))
    kept = known.loc[:, enough]
    rows = kept.all(axis=1) if kept.shape[1] else pd.Series(False, index=kept.index)
    return Block(tuple(kept.index[rows]), tuple(kept.columns), tuple(known.columns[~enough]))


class Results:
    """Results of a study.

    Args:
        table: a row per data set, model, depth, config, fold, start, part and metric, with the columns
            `COLUMNS`; in any order.
        facts: a record per task, as :meth:`~sstorch.bench.ResultStore.facts` returns them.
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
        DataError: a column is missing, there are no rows, a run is there twice, a part is unknown, or a task
            has no record.
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
        missing = [name for name in COLUMNS if name not in table]
        if missing:
            raise DataError(
                f"table must have the columns {', '.join(COLUMNS)}; {', '.join(missing)} missing."
            )
        if table.empty:
            raise DataError("table must have results; it has no rows.")
        unknown = sorted(set(table["part"]) - set(PARTS))
        if unknown:
            raise DataError(f"part must be {' or '.join(PARTS)}, got {', '.join(map(repr, unknown))}.")
        rows = table.loc[:, list(COLUMNS)].copy()
        pairs = rows[["model", "depth"]].drop_duplicates()
        records = list(facts)
        # Soft trees have settings of a tree, whatever their name.
        soft = {
            record["model"]
            for record in records
            if any(str(name).startswith("tree.") for name in record["settings"])
        }
        everything = sorted(
            {
                Model(str(name), None if pd.isna(depth) else int(depth), name in soft)
                for name, depth in zip(pairs["model"], pairs["depth"].astype(object), strict=True)
            },
            key=lambda model: model.order,
        )
        depth = rows["depth"].astype("Int64").astype("string").fillna("")
        rows["key"] = rows["model"].astype("string") + depth.where(depth == "", "_d" + depth)
        rows["key"] = rows["key"].astype(object)
        self.models = tuple(_chosen_models(everything, models))
        self.datasets = tuple(_chosen("datasets", sorted(set(rows["dataset"])), datasets))
        known = set(rows["metric"])
        # Training objectives of different models are not comparable: they are asked for by name.
        by_default = in_order(known - {OBJECTIVE})
        self.metrics = tuple(by_default if metrics is None else _chosen("metrics", in_order(known), metrics))
        keep = (
            rows["dataset"].isin(self.datasets)
            & rows["key"].isin([model.key for model in self.models])
            & rows["metric"].isin(self.metrics)
        )
        if not keep.any():
            raise DataError("table: no row has the requested data sets, models and metrics.")
        by_task = {_task(record): record for record in records}
        of_rows = rows[keep][["dataset", "key", "config"]].drop_duplicates()
        if without := [task for task in of_rows.itertuples(index=False, name=None) if task not in by_task]:
            raise DataError(f"facts must have a record of every task; {' '.join(without[0])} has none.")
        self.notes: list[str] = []
        self.rows = self._last_of_each(rows[keep], by_task)
        # Categories: a study has millions of rows, and comparing their texts would take minutes.
        names = ["dataset", "key", "part", "metric"]
        self.rows = self.rows.astype(dict.fromkeys(names, object)).astype(dict.fromkeys(names, "category"))
        # Sorted, so that sums are the same to the last bit whatever the order of the files.
        self.rows = self.rows.sort_values(_ROW, kind="stable", ignore_index=True)
        twice = self.rows.duplicated(_ROW)
        if twice.any():
            first = self.rows.loc[twice, _ROW].iloc[0]
            where = ", ".join(f"{name} {value}" for name, value in first.items())
            raise DataError(f"table: {int(twice.sum())} rows are there twice, the first: {where}.")
        tasks = self.rows[["dataset", "key", "config"]].drop_duplicates()
        self.facts = {
            (dataset, key): by_task[dataset, key, config]
            for dataset, key, config in tasks.itertuples(index=False)
        }
        self._note_different_data()
        self._cells: dict[tuple[str, str, bool], Cells] = {}
        self._summaries: dict[bool, dict[tuple[str, str], pd.DataFrame]] = {}
        # Models and data sets of which the choice has left nothing are not part of the report.
        self.datasets = tuple(name for name in self.datasets if name in set(self.rows["dataset"]))
        self.models = tuple(model for model in self.models if model.key in set(self.rows["key"]))

    def _last_of_each(self, rows: pd.DataFrame, facts: Mapping[tuple[str, str, str], Facts]) -> pd.DataFrame:
        """Rows of one configuration per data set and model: the one finished last; a note names it."""
        tasks = rows[["dataset", "key", "config"]].drop_duplicates()
        repeated = tasks[tasks.duplicated(["dataset", "key"], keep=False)]
        dropped = []
        for (dataset, key), group in repeated.groupby(["dataset", "key"]):
            finished = {
                config: str(facts[str(dataset), str(key), config]["finished"]) for config in group["config"]
            }
            last = max(finished, key=lambda config: (finished[config], config))
            dropped += [(dataset, key, config) for config in finished if config != last]
            self.notes.append(
                f"{dataset}, {key}: results of {len(finished)} configurations; the one finished last, "
                f"{last}, is reported."
            )
        if not dropped:
            return rows
        index = pd.MultiIndex.from_frame(rows[["dataset", "key", "config"]])
        return rows[~index.isin(dropped)]

    def _note_different_data(self) -> None:
        """Note the data sets whose models were not fitted to the same folds of the same rows."""
        meanings = {
            "data": "other rows or columns",
            "n_folds": "another number of folds",
            "seed": "other folds",
        }
        for dataset in self.datasets:
            for name, difference in meanings.items():
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

    def values(self, metric: str, part: str = "test") -> pd.DataFrame:
        """The rows of a metric on one part: dataset, key, fold, start, chosen, value."""
        rows = self.rows[(self.rows["metric"] == metric) & (self.rows["part"] == part)]
        columns = ["dataset", "key", "fold", "start", "chosen", "value"]
        return rows[columns].astype({"dataset": object, "key": object})

    def by_fold(self, metric: str, *, chosen: bool = False) -> dict[tuple[str, str], pd.Series]:
        """Test scores of the folds by (data set, key): means over the starts, or of the chosen start alone.

        NaN if one of the starts is not defined.
        """
        rows = self.values(metric)
        if chosen:
            rows = rows[rows["chosen"]]
        grouped = rows.groupby(["dataset", "key", "fold"])["value"]
        means = grouped.mean().where(grouped.count() == grouped.size())
        return {
            (str(dataset), str(key)): scores.droplevel(["dataset", "key"])
            for (dataset, key), scores in means.groupby(["dataset", "key"])
        }

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
        asked = (metric, part, chosen)
        if asked not in self._cells:
            self._cells[asked] = self._make_cells(self._summary(chosen).get((metric, part)))
        return self._cells[asked]

    def _make_cells(self, summary: pd.DataFrame | None) -> Cells:
        keys = [model.key for model in self.models]

        def frame(name: str, fill: float) -> pd.DataFrame:
            wide = pd.DataFrame(dtype=float) if summary is None else summary[name].unstack("key")
            return wide.reindex(index=list(self.datasets), columns=keys).astype(float).fillna(fill)

        counts = (frame(name, 0.0).astype(int) for name in ("defined", "runs"))
        return Cells(frame("mean", np.nan), frame("std", np.nan), *counts)

    def _summary(self, chosen: bool) -> dict[tuple[str, str], pd.DataFrame]:
        if chosen not in self._summaries:
            rows = self.rows[self.rows["chosen"]] if chosen else self.rows
            shares = rows["metric"].isin([name for name in self.metrics if measure_of(name).rejection])
            rejected = (rows["value"] < LEVEL).astype(float).where(rows["value"].notna())
            values = rows.assign(value=rows["value"].where(~shares, rejected))
            grouped = values.groupby(["metric", "part", "dataset", "key"], observed=True)["value"]
            table = grouped.agg(mean="mean", std="std", defined="count", runs="size").reset_index()
            self._summaries[chosen] = {
                (str(metric), str(part)): group.set_index(["dataset", "key"])
                for (metric, part), group in table.groupby(["metric", "part"], observed=True)
            }
        return self._summaries[chosen]


def _task(record: Facts) -> tuple[str, str, str]:
    depth = record.get("depth")
    model = Model(str(record["model"]), None if depth is None or pd.isna(depth) else int(depth))
    return str(record["dataset"]), model.key, str(record["config"])


def _chosen(option: str, known: Sequence[str], asked: Sequence[str] | None) -> list[str]:
    if asked is None:
        return list(known)
    strange = [name for name in asked if name not in known]
    if strange:
        raise ConfigError(f"{option}: no results of {', '.join(strange)}; there are {', '.join(known)}.")
    return [name for name in known if name in asked]


def _chosen_models(known: Sequence[Model], asked: Sequence[str] | None) -> list[Model]:
    if asked is None:
        return list(known)
    strange = [name for name in asked if not any(name in (model.name, model.key) for model in known)]
    if strange:
        there = ", ".join(model.key for model in known)
        raise ConfigError(f"models: no results of {', '.join(strange)}; there are {there}.")
    return [model for model in known if model.name in asked or model.key in asked]
