"""The long table of a study, checked, and its means by data set and model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sstorch.evaluation.report.measures import LEVEL, by_default, in_order, measure
from sstorch.evaluation.report.models import Model
from sstorch.evaluation.store import COLUMNS
from sstorch.exceptions import ConfigError, DataError

PARTS = ("test", "train")
_ROW = ["dataset", "key", "fold", "start", "part", "metric"]

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Cells:
    """A metric of one part; every frame has a row a data set and a column a model (its key).

    Attributes:
        mean: over the runs for which it is defined; NaN where there is none.
        std: standard deviation (n - 1) over the same runs.
        defined: number of these runs.
        runs: number of runs with a row, defined or not; 0 where the model has no result.
    """

    mean: pd.DataFrame
    std: pd.DataFrame
    defined: pd.DataFrame
    runs: pd.DataFrame

    def at(self, dataset: str, key: str) -> tuple[float, float, int, int]:
        """Mean, standard deviation, number of defined runs and of runs of one cell."""
        frames = (self.mean, self.std, self.defined, self.runs)
        mean, std, defined, runs = (float(frame.loc[[dataset], key].iloc[0]) for frame in frames)
        return mean, std, int(defined), int(runs)


@dataclass(frozen=True)
class Block:
    """Data sets and models without a gap, over which averages and ranks can be compared.

    Attributes:
        datasets: with a value for every model.
        models: keys.
        left_out: keys of models that have values on fewer than half of the data sets.
    """

    datasets: tuple[str, ...]
    models: tuple[str, ...]
    left_out: tuple[str, ...]


def common_block(mean: pd.DataFrame) -> Block:
    """Data sets with a finite value for every model; models on fewer than half of them are left out first."""
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
        facts: a record per task: dataset, model, depth, config, seconds, versions, n_folds, n_starts,
            finished.
        metrics: names to keep; None keeps all but the training objective.
        models: names to keep, with or without their depth ("sst_llog" or "sst_llog_d2"); None keeps all.
        datasets: names to keep; None keeps all.

    Attributes:
        rows: the rows kept, sorted, with the column ``key`` of `Model.key`.
        facts: the records kept, by (data set, key).
        datasets: names, sorted.
        models: in the order of the tables.
        metrics: names, in the order of the tables.
        notes: what a reader must know of how the rows were taken.

    Raises:
        DataError: a column is missing, there are no rows, a run is there twice, or a part is unknown.
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
                f"table: expected the columns {', '.join(COLUMNS)}; {', '.join(missing)} missing."
            )
        if table.empty:
            raise DataError("table: expected results; it has no rows.")
        unknown = sorted(set(table["part"]) - set(PARTS))
        if unknown:
            raise DataError(f"part: expected {' or '.join(PARTS)}; got {', '.join(map(repr, unknown))}.")
        rows = table.loc[:, list(COLUMNS)].copy()
        pairs = rows[["model", "depth"]].drop_duplicates()
        records = list(facts)
        soft = {record["model"] for record in records if _is_soft_tree(record)}
        found = {
            (name, depth): Model(str(name), None if pd.isna(depth) else int(depth), name in soft)
            for name, depth in zip(
                pairs["model"], pairs["depth"].astype(object).where(pairs["depth"].notna(), None), strict=True
            )
        }
        depth = rows["depth"].astype("Int64").astype("string").fillna("")
        rows["key"] = rows["model"].astype("string") + depth.where(depth == "", "_d" + depth)
        rows["key"] = rows["key"].astype(object)
        everything = sorted(found.values(), key=lambda model: model.order)
        self.models = tuple(_chosen_models(everything, models))
        self.datasets = tuple(_chosen("datasets", sorted(set(rows["dataset"])), datasets))
        known = set(rows["metric"])
        wanted = by_default(known) if metrics is None else _chosen("metrics", in_order(known), metrics)
        self.metrics = tuple(wanted)
        keep = (
            rows["dataset"].isin(self.datasets)
            & rows["key"].isin([model.key for model in self.models])
            & rows["metric"].isin(self.metrics)
        )
        if not keep.any():
            raise DataError("table: no row has the data sets, models and metrics asked for.")
        by_task = {_task(record): record for record in records}
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
            if (dataset, key, config) in by_task
        }
        self._note_different_data()
        self._cells: dict[tuple[str, str, bool], Cells] = {}
        self._summaries: dict[bool, dict[tuple[str, str], pd.DataFrame]] = {}
        # Models and data sets of which the choice has left nothing are not part of the report.
        self.datasets = tuple(name for name in self.datasets if name in set(self.rows["dataset"]))
        self.models = tuple(model for model in self.models if model.key in set(self.rows["key"]))

    def _last_of_each(self, rows: pd.DataFrame, facts: Mapping[tuple[str, str, str], Facts]) -> pd.DataFrame:
        """One configuration per data set and model: the one finished last, told in a note."""
        tasks = rows[["dataset", "key", "config"]].drop_duplicates()
        repeated = tasks[tasks.duplicated(["dataset", "key"], keep=False)]
        dropped = []
        for (dataset, key), own in repeated.groupby(["dataset", "key"]):
            finished = {
                config: str(facts.get((str(dataset), str(key), config), {}).get("finished", ""))
                for config in own["config"]
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
        """Tell of data sets whose models were not fitted to the same folds of the same rows."""
        what = {"data": "other rows or columns", "n_folds": "another number of folds", "seed": "other folds"}
        for dataset in self.datasets:
            for name, told in what.items():
                groups: dict[object, list[str]] = {}
                for (own, key), record in self.facts.items():
                    if own == dataset and name in record:
                        groups.setdefault(record[name], []).append(key)
                if len(groups) > 1:
                    few = min(groups.values(), key=len)
                    self.notes.append(
                        f"{dataset}: {', '.join(sorted(few))} had {told} than the other models, and cannot "
                        "be compared with them; run the study again for all models."
                    )

    def model(self, key: str) -> Model:
        """The model of a key."""
        return next(model for model in self.models if model.key == key)

    def values(self, metric: str, part: str = "test") -> pd.DataFrame:
        """The rows of a metric on one part: dataset, key, fold, start, chosen, value."""
        own = self.rows[(self.rows["metric"] == metric) & (self.rows["part"] == part)]
        columns = ["dataset", "key", "fold", "start", "chosen", "value"]
        return own[columns].astype({"dataset": object, "key": object})

    def by_fold(self, metric: str, *, chosen: bool = False) -> dict[tuple[str, str], pd.Series]:
        """Test scores of the folds by (data set, key): means over the starts, or of the chosen start alone.

        NaN where one of the starts is not defined.
        """
        rows = self.values(metric)
        if chosen:
            rows = rows[rows["chosen"]]
        grouped = rows.groupby(["dataset", "key", "fold"])["value"]
        means = grouped.mean().where(grouped.count() == grouped.size())
        return {
            (str(dataset), str(key)): own.droplevel(["dataset", "key"])
            for (dataset, key), own in means.groupby(["dataset", "key"])
        }

    def have_same_folds(self, dataset: str, one: str, two: str) -> bool:
        """Whether two models (keys) were given the same folds of the same data, as far as is recorded."""
        facts = [self.facts.get((dataset, key), {}) for key in (one, two)]
        pairs = [[record.get(name) for record in facts] for name in ("seed", "n_folds", "data")]
        return all(None in pair or pair[0] == pair[1] for pair in pairs)

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

    def _make_cells(self, own: pd.DataFrame | None) -> Cells:
        keys = [model.key for model in self.models]

        def frame(name: str, fill: float) -> pd.DataFrame:
            wide = pd.DataFrame(dtype=float) if own is None else own[name].unstack("key")
            return wide.reindex(index=list(self.datasets), columns=keys).astype(float).fillna(fill)

        counts = (frame(name, 0.0).astype(int) for name in ("defined", "runs"))
        return Cells(frame("mean", np.nan), frame("std", np.nan), *counts)

    def _summary(self, chosen: bool) -> dict[tuple[str, str], pd.DataFrame]:
        if chosen not in self._summaries:
            rows = self.rows[self.rows["chosen"]] if chosen else self.rows
            shares = rows["metric"].isin([name for name in self.metrics if measure(name).rejection])
            rejected = (rows["value"] < LEVEL).astype(float).where(rows["value"].notna())
            values = rows.assign(value=rows["value"].where(~shares, rejected))
            grouped = values.groupby(["metric", "part", "dataset", "key"], observed=True)["value"]
            table = grouped.agg(mean="mean", std="std", defined="count", runs="size").reset_index()
            self._summaries[chosen] = {
                (str(metric), str(part)): own.set_index(["dataset", "key"])
                for (metric, part), own in table.groupby(["metric", "part"], observed=True)
            }
        return self._summaries[chosen]


def _is_soft_tree(record: Facts) -> bool:
    """Whether a task was one of soft trees, whatever its name, as its settings tell."""
    return any(str(name).startswith("tree.") for name in record.get("settings", {}))


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
