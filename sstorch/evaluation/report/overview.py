"""What was run, what is missing, and the averages at a glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sstorch.evaluation.report.document import Block, Bullets, Cell, Paragraph, Section, Table
from sstorch.evaluation.report.measures import measure
from sstorch.evaluation.report.models import by_family
from sstorch.evaluation.report.numbers import ABSENT, listed, number
from sstorch.evaluation.report.published import published_datasets, published_tables
from sstorch.evaluation.report.results import Results, common_block
from sstorch.evaluation.report.score_tables import best_of_rows


def run_section(results: Results) -> Section:
    """What was run: data sets, models, folds, starts, dates and versions."""
    rows = [
        _row("data sets", f"{len(results.datasets)}: {', '.join(results.datasets)}"),
        *(
            _row(family, ", ".join(model.label for model in members))
            for family, members in by_family(results.models).items()
        ),
        _row("metrics", ", ".join(results.metrics)),
        _row("folds x starts", _grids(results)),
        _row("tasks", str(len(results.rows[["dataset", "key"]].drop_duplicates()))),
    ]
    finished = sorted(str(own["finished"]) for own in results.facts.values() if own.get("finished"))
    if finished:
        rows.append(
            _row(
                "finished", finished[0] if finished[0] == finished[-1] else f"{finished[0]} to {finished[-1]}"
            )
        )
    table = Table("", ["", "this study"], rows, left=frozenset({1}))
    return Section("What was run", [table, *_versions(results)])


def completeness_section(results: Results) -> Section:
    """Which cells, runs and facts are missing."""
    present = set(results.rows[["dataset", "key"]].itertuples(index=False, name=None))
    items = list(results.notes)
    for model in results.models:
        absent = [name for name in results.datasets if (name, model.key) not in present]
        if absent:
            items.append(f"{model.label} has no results on {listed(absent)}.")
    items += _incomplete_grids(results)
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


def average_table(results: Results) -> Table:
    """Test means over the data sets in common, a row a model; a metric has its own number of data sets."""
    shown = [name for name in results.metrics if measure(name).averaged]
    columns, best, heads = {}, {}, []
    for name in shown:
        own = measure(name)
        mean = results.cells(name).mean
        block = common_block(mean)
        column = mean.loc[list(block.datasets), list(block.models)].mean().reindex(mean.columns)
        columns[name] = column
        best[name] = best_of_rows(column.to_frame().T, own.higher_is_better).iloc[0]
        arrow = {True: " ↑", False: " ↓", None: ""}[own.higher_is_better]
        heads.append(f"{own.short}{arrow} ({len(block.datasets)})")
    rows = [
        [
            Cell(model.label),
            *(Cell(number(columns[name][model.key]), "", bool(best[name][model.key])) for name in shown),
        ]
        for model in results.models
    ]
    caption = (
        "Test means over all folds and starts, averaged over the data sets that the models have in common "
        "(their number in brackets). ↑ higher is better, ↓ lower is better; the best in bold."
    )
    return Table(caption, ["model", *heads], rows)


def average_section(results: Results) -> Section:
    """The averages at a glance, and which models they leave out."""
    left_out = {
        results.model(key).label
        for name in results.metrics
        for key in common_block(results.cells(name).mean).left_out
        if results.cells(name).mean[key].notna().any()
    }
    blocks: list[Block] = [average_table(results)]
    if left_out:
        blocks.append(
            Paragraph(
                "Left out of the averages, with values on fewer than half of the data sets: "
                f"{listed(sorted(left_out))}."
            )
        )
    return Section("Averages", blocks)


def undefined_section(results: Results) -> Section:
    """Values that are NaN, with their reasons."""
    rows = results.rows[results.rows["value"].isna()]
    if rows.empty:
        return Section(
            "Values that are not defined", [Paragraph("None: every metric of every run has a value.")]
        )
    reasons = rows["reason"].fillna("").replace("", "no reason given")
    keys = ["metric", "key", "part", "reason"]
    groups = {
        tuple(map(str, key)): own for key, own in rows.assign(reason=reasons).groupby(keys, observed=True)
    }
    order = {model.key: position for position, model in enumerate(results.models)}
    lines = []
    for metric, key, part, reason in sorted(
        groups, key=lambda key: (results.metrics.index(key[0]), order[key[1]], key[2:])
    ):
        own = groups[metric, key, part, reason]
        datasets = sorted(set(own["dataset"]))
        lines.append(
            [
                Cell(results.model(key).label),
                Cell(metric),
                Cell(part),
                Cell(str(len(own))),
                Cell("all" if len(datasets) == len(results.datasets) else ", ".join(datasets)),
                Cell(reason),
            ]
        )
    text = (
        f"{len(rows)} of {len(results.rows)} values are NaN. A mean is over the runs that have a value, "
        "whose number stands beside it where it is not all of them; “n. d.” is a metric without any."
    )
    header = ["model", "metric", "part", "values", "data sets", "reason"]
    return Section(
        "Values that are not defined",
        [Paragraph(text), Table("", header, lines, left=frozenset({1, 2, 4, 5}))],
    )


def _row(name: str, text: str) -> list[Cell]:
    return [Cell(name), Cell(text)]


def _grids(results: Results) -> str:
    grids = Counter(
        (int(folds), int(starts))
        for folds, starts in results.rows.groupby(["dataset", "key"], observed=True)[["fold", "start"]]
        .nunique()
        .itertuples(index=False)
    )
    return "; ".join(
        f"{folds} x {starts} ({count} task{'s' * (count > 1)})"
        for (folds, starts), count in sorted(grids.items())
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


def _versions(results: Results) -> Sequence[Block]:
    """Versions of the packages; where tasks differ, each with its number of tasks."""
    found: dict[str, Counter[str]] = {}
    for own in results.facts.values():
        for package, version in own.get("versions", {}).items():
            found.setdefault(str(package), Counter())[str(version)] += 1
    if not found:
        return [Paragraph("The versions of the packages are not recorded.")]
    rows = []
    for package in sorted(found):
        versions = sorted(found[package].items())
        if len(versions) == 1:
            text = versions[0][0]
        else:
            text = "tasks differ: " + ", ".join(
                f"{version} ({count} task{'s' * (count > 1)})" for version, count in versions
            )
        rows.append(_row(package, text))
    return [Section("Versions", [Table("", ["package", "version"], rows, left=frozenset({1}))], folded=True)]
