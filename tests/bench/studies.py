"""Small studies with known numbers."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from sstorch.bench.report.results import Results

Cell = tuple[str, str, int | None]  # data set, model, depth


def rows(
    dataset: str,
    model: str,
    depth: int | None,
    values: Mapping[str, list[list[float]]],
    *,
    part: str = "test",
    config: str = "0123456789ab",
    reason: str = "",
    chosen: int = 0,
) -> pd.DataFrame:
    """Rows of a task; values are by metric, then fold, then start."""
    about = {"dataset": dataset, "model": model, "depth": depth, "config": config, "part": part}
    return pd.DataFrame(
        [
            about
            | {"fold": fold, "start": start, "chosen": start == min(chosen, len(starts) - 1)}
            | {"metric": metric, "value": value, "reason": "" if value == value else reason}
            for metric, folds in values.items()
            for fold, starts in enumerate(folds)
            for start, value in enumerate(starts)
        ]
    ).astype({"depth": "Int64"})


def facts(dataset: str, model: str, depth: int | None, **own: Any) -> dict[str, Any]:
    """Record of a task."""
    return {
        "dataset": dataset,
        "model": model,
        "depth": depth,
        "config": "0123456789ab",
        "settings": {"tree.depth": depth} if model.startswith("sst_") else {},
        "seconds": {"fit": 8.0, "score": 0.5},
        "versions": {"sstorch": "1.0", "torch": "2.9"},
        "n_folds": 2,
        "n_starts": 1,
        "seed": 0,
        "device": "cpu",
        "data": "0" * 64,
        "finished": "2026-01-02T03:04:05Z",
    } | own


def results_of(table: pd.DataFrame) -> Results:
    """Results of a table with a usual record of each task."""
    tasks = table[["dataset", "model", "depth"]].drop_duplicates().itertuples(index=False)
    records = [facts(name, model, None if pd.isna(depth) else int(depth)) for name, model, depth in tasks]
    return Results(table, records)


def study(means: Mapping[Cell, float], metric: str = "c_harrell") -> Results:
    """Two folds of one start each, on both parts, around the means given."""
    tables = [
        rows(*cell, {metric: [[mean - 0.01], [mean + 0.01]]}, part=part)
        for cell, mean in means.items()
        for part in ("test", "train")
    ]
    return results_of(pd.concat(tables, ignore_index=True))


def whole_study() -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """Four metrics, four data sets, soft and greedy trees and Cox; one cell absent, one value undefined."""
    models = [("sst_llog", 2), ("sst_po", 2), ("ctree", 2), ("ctree", 3), ("cox", None)]
    bases = {"c_harrell": 0.6, "c_uno": 0.58, "cd_auc": 0.65, "ibs_graf": 0.15}
    tables, records = [], []
    for j, dataset in enumerate(("aids", "gbsg2", "veterans", "whas500")):
        for k, (model, depth) in enumerate(models):
            if (dataset, model) == ("whas500", "cox"):
                continue
            starts = range(3 if model.startswith("sst") else 1)
            for part in ("test", "train"):
                values = {
                    metric: [
                        [base + 0.01 * ((j * 7 + k * 5 + 3 * fold + 2 * start) % 11) for start in starts]
                        for fold in range(3)
                    ]
                    for metric, base in bases.items()
                }
                if (dataset, model, part) == ("aids", "sst_po", "test"):
                    values["c_uno"][1][2] = float("nan")
                reason = "no pair | up to <tau>"
                tables.append(rows(dataset, model, depth, values, part=part, reason=reason, chosen=1))
            records.append(facts(dataset, model, depth, n_folds=3, n_starts=len(starts)))
    return pd.concat(tables, ignore_index=True), records
