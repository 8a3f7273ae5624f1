"""Which cells, runs and values are missing."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from sstorch.evaluation.report.document import Block, Bullets, Cell, Paragraph, Section, Table
from sstorch.evaluation.report.numbers import ABSENT, listed
from sstorch.evaluation.report.published import published_datasets, published_tables
from sstorch.evaluation.report.results import Results


def completeness_section(results: Results) -> Section:
    """Which cells, runs and facts are missing."""
    present = set(results.rows[["dataset", "key"]].itertuples(index=False, name=None))
    items = list(results.notes)
    for model in results.models:
        absent = [name for name in results.datasets if (name, model.key) not in present]
        if absent:
            items.append(f"{model.label} has no results on {listed(absent)}.")
    items += [*_incomplete_grids(results), *_unclear_choices(results)]
    without = [name for name in published_datasets() if name not in results.datasets]
    if without:
        items.append(f"Of the paper's data sets not among these results: {listed(without)}.")
    names = {model.name for model in results.models}
    paper = [name for name in dict.fromkeys(published_tables()["model"]) if name not in names]
    if paper:
        items.append(f"Of the paper's models not among these results: {listed(paper)}.")
    unknown = [f"{dataset} {key}" for dataset, key in sorted(present) if (dataset, key) not in results.facts]
    if unknown:
        items.append(f"No record of settings, versions and times of {listed(unknown)}.")
    complete = all((name, model.key) in present for name in results.datasets for model in results.models)
    blocks: list[Block] = []
    if complete:
        text = "Every model has results on every data set."
    else:
        n = len(results.datasets) * len(results.models)
        text = (
            f"{len(present)} of {n} cells (data set and model) have results. An absent one is shown as "
            f"“{ABSENT}”; averages and ranks are compared over data sets in common only."
        )
    blocks.append(Paragraph(text))
    return Section("Completeness", [*blocks, *([Bullets(items)] if items else [])])


def undefined_section(results: Results) -> Section:
    """Values that are NaN, with their reasons."""
    rows = results.rows[results.rows["value"].isna()]
    if rows.empty:
        return Section(
            "Values that are not defined", [Paragraph("None: every metric of every run has a value.")]
        )
    reasons = rows["reason"].fillna("").replace("", "no reason given")
    keys = ["metric", "key", "part"]
    groups = {
        tuple(map(str, key)): own for key, own in rows.assign(reason=reasons).groupby(keys, observed=True)
    }
    order = {model.key: position for position, model in enumerate(results.models)}
    lines = []
    for metric, key, part in sorted(
        groups, key=lambda key: (results.metrics.index(key[0]), order[key[1]], key[2])
    ):
        own = groups[metric, key, part]
        datasets = sorted(set(own["dataset"]))
        every = "all" if len(datasets) == len(results.datasets) else ", ".join(datasets)
        texts = [results.model(key).label, metric, part, str(len(own)), every, _reasons(own["reason"])]
        lines.append([Cell(text) for text in texts])
    text = (
        f"{len(rows)} of {len(results.rows)} values are NaN. A mean is over the runs that have a value, "
        "whose number stands beside it where it is not all of them; “n. d.” is a metric without any."
    )
    header = ["model", "metric", "part", "values", "data sets", "reason"]
    return Section(
        "Values that are not defined",
        [Paragraph(text), Table("", header, lines, left=frozenset({1, 2, 4, 5}))],
    )


def _incomplete_grids(results: Results) -> list[str]:
    """Tasks with fewer runs than their record says."""
    items = []
    sizes = (
        results.rows.groupby(["dataset", "key", "part", "metric"], observed=True)
        .size()
        .groupby(["dataset", "key"], observed=True)
        .min()
    )
    for (dataset, key), facts in sorted(results.facts.items()):
        if "n_folds" not in facts or "n_starts" not in facts:
            continue
        expected = int(facts["n_folds"]) * int(facts["n_starts"])
        if sizes[dataset, key] < expected:
            items.append(f"{dataset}, {results.model(key).label}: {sizes[dataset, key]} of {expected} runs.")
    return items


def _unclear_choices(results: Results) -> list[str]:
    """Folds that have not exactly one chosen start."""
    keys = ["dataset", "key", "fold", "part", "metric"]
    counts = results.rows.groupby(keys, observed=True)["chosen"].sum()
    unclear = counts[counts != 1].groupby(["dataset", "key"], observed=True).size()
    return [
        f"{dataset}, {results.model(key).label}: folds without exactly one chosen start."
        for dataset, key in sorted(unclear.index)
    ]


def _reasons(reasons: pd.Series) -> str:
    """The commonest reason; the others, which often differ in a number only, are counted."""
    counts = Counter(map(str, reasons))
    first = min(counts, key=lambda reason: (-counts[reason], reason))
    if len(counts) == 1:
        return first
    more = len(counts) - 1
    return f"{first} ({counts[first]} times; {more} other reason{'s' * (more > 1)})"
