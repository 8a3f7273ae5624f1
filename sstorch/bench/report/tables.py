"""Tables of a study: what was run and what is missing, scores with their averages, and times."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import pandas as pd

from sstorch.bench.report.results import (
    PARTS,
    Cells,
    Facts,
    Model,
    Results,
    by_family,
    common_block,
    measure_of,
    published_datasets,
    published_tables,
)
from sstorch.document import (
    ABSENT,
    DIGITS,
    Block,
    Cell,
    Section,
    as_table,
    digits_of,
    listed,
    number,
    seconds,
)
from sstorch.metrics.registry import Metric

# More columns than this are broken into a table per family.
_WIDE = 12
UNDEFINED = "n. d."


def run_section(results: Results) -> Section:
    """Data sets, models, folds, starts, dates and versions of the study."""
    rows = [
        _row("data sets", f"{len(results.datasets)}: {', '.join(results.datasets)}"),
        *(
            _row(family, ", ".join(model.label for model in members))
            for family, members in by_family(results.models).items()
        ),
        _row("metrics", ", ".join(results.metrics)),
        _row("folds x starts", _grids(results)),
        *_protocol(results),
        _row("tasks", str(len(results.rows[["dataset", "key"]].drop_duplicates()))),
    ]
    finished = [str(facts["finished"]) for facts in results.facts.values()]
    first, last = min(finished), max(finished)
    rows.append(_row("finished", first if first == last else f"{first} to {last}"))
    table = as_table(["", "this study"], rows)
    return Section("What was run", [table, _versions(results)])


def _row(name: str, text: str) -> list[str]:
    return [name, text]


def _protocol(results: Results) -> list[list[str]]:
    """Seed of the folds and device."""
    names = {"seed": "seed of the folds", "device": "device"}
    counts = {name: Counter(str(facts[name]) for facts in results.facts.values()) for name in names}
    return [_row(title, _counted(counts[name], "; ")) for name, title in names.items()]


def _counted(counts: Counter[str], separator: str) -> str:
    """The value that all tasks share; where they differ, each value with its number of tasks."""
    if len(counts) == 1:
        return next(iter(counts))
    texts = [f"{value} ({count} task{'s' * (count > 1)})" for value, count in sorted(counts.items())]
    return "tasks differ: " + separator.join(texts)


def _grids(results: Results) -> str:
    """Numbers of folds and starts, each pair with its number of tasks."""
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


def _versions(results: Results) -> Section:
    """Versions of the packages; where tasks differ, each with its number of tasks."""
    counts: dict[str, Counter[str]] = {}
    for facts in results.facts.values():
        for package, version in facts["versions"].items():
            counts.setdefault(str(package), Counter())[str(version)] += 1
    rows = [_row(package, _counted(counts[package], ", ")) for package in sorted(counts)]
    return Section("Versions", [as_table(["package", "version"], rows)], folded=True)


def completeness_section(results: Results) -> Section:
    """The cells that are missing, and how rows were chosen."""
    present = set(results.rows[["dataset", "key"]].itertuples(index=False, name=None))
    items = list(results.notes)
    for model in results.models:
        absent = [name for name in results.datasets if (name, model.key) not in present]
        if absent:
            items.append(f"{model.label} has no results on {listed(absent)}.")
    # The paper has no value for a user's data.
    of_paper = bool(set(published_datasets()) & set(results.datasets))
    without = [name for name in published_datasets() if name not in results.datasets]
    if without and of_paper:
        items.append(f"Of the paper's data sets not among these results: {listed(without)}.")
    names = {model.name for model in results.models}
    paper = [name for name in dict.fromkeys(published_tables()["model"]) if name not in names]
    if paper and of_paper:
        items.append(f"Of the paper's models not among these results: {listed(paper)}.")
    complete = all((name, model.key) in present for name in results.datasets for model in results.models)
    if complete:
        text = "Every model has results on every data set."
    else:
        n = len(results.datasets) * len(results.models)
        text = (
            f"{len(present)} of {n} cells (data set and model) have results. An absent one is shown as "
            f"“{ABSENT}”; averages and ranks are compared over data sets in common only."
        )
    blocks: list[Block] = [text]
    if items:
        blocks.append(items)
    return Section("Completeness", blocks)


def undefined_section(results: Results) -> Section:
    """Values that are NaN, with their reasons."""
    rows = results.rows[results.rows["value"].isna()]
    if rows.empty:
        return Section("Values that are not defined", ["None: every metric of every run has a value."])
    reasons = rows["reason"].fillna("").replace("", "no reason given")
    keys = ["metric", "key", "part"]
    groups = {
        tuple(map(str, key)): group for key, group in rows.assign(reason=reasons).groupby(keys, observed=True)
    }
    order = {model.key: position for position, model in enumerate(results.models)}
    lines = []
    for metric, key, part in sorted(
        groups, key=lambda key: (results.metrics.index(key[0]), order[key[1]], key[2])
    ):
        undefined = groups[metric, key, part]
        datasets = sorted(set(undefined["dataset"]))
        every = "all" if len(datasets) == len(results.datasets) else ", ".join(datasets)
        n, why = str(len(undefined)), _reasons(undefined["reason"])
        lines.append([results.model(key).label, metric, part, n, every, why])
    text = (
        f"{len(rows)} of {len(results.rows)} values are NaN. A mean is over the runs that have a value, "
        "whose number follows where it is not all of them; “n. d.” is a metric without any."
    )
    header = ["model", "metric", "part", "values", "data sets", "reason"]
    return Section(
        "Values that are not defined",
        [text, as_table(header, lines)],
    )


def _reasons(reasons: pd.Series) -> str:
    """The commonest reason; the others, which often differ in a number only, are counted."""
    counts = Counter(map(str, reasons))
    first = min(counts, key=lambda reason: (-counts[reason], reason))
    if len(counts) == 1:
        return first
    more = len(counts) - 1
    return f"{first} ({counts[first]} times; {more} other reason{'s' * (more > 1)})"


def average_table(results: Results, *, chosen: bool = False) -> pd.DataFrame:
    """Test means over the data sets in common, a row per model; a metric has its own number of data sets."""
    shown = [measure_of(name) for name in results.metrics if measure_of(name).averaged]
    columns, best, heads = {}, {}, []
    for measure in shown:
        mean = results.cells(measure.name, chosen=chosen).mean
        block = common_block(mean)
        column = mean.loc[list(block.datasets), list(block.models)].mean().reindex(mean.columns)
        columns[measure.name] = column
        best[measure.name] = best_of_rows(column.to_frame().T, measure.higher_is_better).iloc[0]
        arrow = {True: " ↑", False: " ↓", None: ""}[measure.higher_is_better]
        heads.append(f"{measure.short}{arrow} ({len(block.datasets)})")
    rows: list[list[object]] = [
        [
            model.label,
            *(Cell(number(columns[name][model.key]), "", bool(best[name][model.key])) for name in columns),
        ]
        for model in results.models
    ]
    over = "the chosen start of each fold" if chosen else "all folds and starts"
    caption = (
        f"Test means over {over}, averaged over the data sets that the models have in common "
        "(their number in brackets). ↑ higher is better, ↓ lower is better; the best in bold."
    )
    return as_table(["model", *heads], rows, caption)


def as_text(table: pd.DataFrame) -> str:
    """An :func:`average_table` for the terminal."""
    rows = [[str(table.columns.names[-1]), *table.columns.get_level_values(-1)]]
    for label, cells in zip(table.index, table.to_numpy(), strict=True):
        rows.append([str(label), *(cell.text + "*" * cell.best for cell in cells)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows
    ]
    return "\n".join([*lines, "* best; test means over the data sets in common (their number in brackets)"])


def average_section(results: Results) -> Section:
    """The averages at a glance, and the models that they leave out."""
    left_out = {
        results.model(key).label
        for name in results.metrics
        for key in common_block(results.cells(name).mean).left_out
        if results.cells(name).mean[key].notna().any()
    }
    blocks: list[Block] = [average_table(results)]
    if left_out:
        blocks.append(
            "Excluded from the averages, with values on fewer than half of the data sets: "
            f"{listed(sorted(left_out))}."
        )
    if not results.rows["chosen"].all():
        table = average_table(results, chosen=True)
        blocks.append(Section("Averages over the chosen start of each fold", [table], folded=True))
    return Section("Averages", blocks)


def score_section(results: Results, metric: str) -> Section:
    """All tables of a metric: over all runs and over the chosen starts, test and train."""
    measure = measure_of(metric)
    blocks: list[Block] = []
    for part in PARTS:
        for chosen in (False, True):
            cells = results.cells(metric, part, chosen=chosen)
            if not cells.runs.to_numpy().any():
                continue
            over = "chosen start of each fold" if chosen else "all folds and starts"
            blocks.append(
                Section(
                    f"{part.capitalize()}, {over}",
                    list(score_tables(results, measure, cells)),
                    folded=part == "train" or chosen,
                )
            )
    if measure.rejection:
        text = "A model that is calibrated is rejected in 5 % of the fits; no value is marked as best."
        blocks.insert(0, text)
    return Section(f"{measure.title} ({metric}; {measure.direction})", blocks)


def score_tables(results: Results, measure: Metric, cells: Cells) -> list[pd.DataFrame]:
    """Means and standard deviations, the best of a row marked, with rows of averages below."""
    if not cells.runs.to_numpy().any():
        return []
    shown = [model for model in results.models if cells.runs[model.key].any()]
    families = by_family(shown) if len(shown) > _WIDE else {"": shown}
    values = cells.mean[[model.key for model in shown]]
    digits = digits_of(values.to_numpy(dtype=float))
    best = best_of_rows(values, measure.higher_is_better, digits)
    averages = averages_of(values) if measure.averaged else []
    tables = []
    for family, members in families.items():
        keys = [model.key for model in members]
        in_family = best_of_rows(values[keys], measure.higher_is_better, digits)

        def cell(dataset: str, key: str, in_family: pd.DataFrame = in_family) -> Cell:
            text, note = _texts(cells, dataset, key, digits, measure)
            return Cell(text, note, bool(best.at[dataset, key]), bool(in_family.at[dataset, key]))

        groups, header = heading(members)
        rows: list[list[object]] = [[name, *(cell(name, key) for key in keys)] for name in results.datasets]
        rows += [_footer(average, keys, measure, digits) for average in averages]
        table = as_table(header, rows, family.capitalize(), groups=groups, n_averages=len(averages))
        tables.append(table)
    return tables


def heading(models: Sequence[Model]) -> tuple[list[tuple[str, int]], list[str]]:
    """Two rows of headings, names and depths; a single row where no model has a depth."""
    if all(model.depth is None for model in models):
        return [], ["data set", *(model.title for model in models)]
    groups = [
        (title, len(list(members))) for title, members in groupby(models, key=lambda model: model.title)
    ]
    return [("", 1), *groups], ["data set", *("" if m.depth is None else f"D{m.depth}" for m in models)]


def best_of_rows(values: pd.DataFrame, higher_is_better: bool | None, digits: int = DIGITS) -> pd.DataFrame:
    """True for the best values of each row, those that print alike together.

    Nowhere true where there is no direction, or only one value to choose from.
    """
    if higher_is_better is None:
        return pd.DataFrame(False, index=values.index, columns=values.columns)
    printed = values.map(lambda value: float(f"{value:.{digits}f}"))
    best = printed.max(axis=1) if higher_is_better else printed.min(axis=1)
    return printed.eq(best, axis=0) & (values.notna().sum(axis=1) > 1).to_numpy()[:, None]


@dataclass(frozen=True)
class Average:
    """A row of averages over data sets."""

    name: str
    values: pd.Series  # by key of the model
    counts: pd.Series | None = None  # data sets by key, where models differ; such values are not compared


def averages_of(values: pd.DataFrame) -> list[Average]:
    """Averages over data sets.

    One row where all models with values have them on every data set. Otherwise one over the data sets that
    each model has, which is not comparable between models, and one over the data sets in common (`Block`).
    """
    block = common_block(values)
    n = len(block.datasets)
    common = values.loc[list(block.datasets), list(block.models)].mean().reindex(values.columns)
    name = f"average of {n} data set{'s' * (n != 1)}"
    counts = values.notna().sum()
    if counts[counts > 0].eq(len(values)).all():
        return [Average(name, common)]
    return [
        Average("average, own data sets", values.mean(), counts),
        Average(f"average, {n} in common", common),
    ]


def _footer(average: Average, keys: list[str], measure: Metric, digits: int) -> list[object]:
    values, counts = average.values, average.counts
    texts = [number(values[key], digits) for key in keys]
    if counts is not None:
        return [
            average.name,
            *map(Cell, texts, [f"of {counts[key]}" * bool(counts[key]) for key in keys]),
        ]
    best = best_of_rows(values.to_frame().T, measure.higher_is_better, digits).iloc[0]
    in_family = best_of_rows(values[keys].to_frame().T, measure.higher_is_better, digits).iloc[0]
    cells = (
        Cell(text, "", bool(best[key]), bool(in_family[key])) for key, text in zip(keys, texts, strict=True)
    )
    return [average.name, *cells]


def _texts(cells: Cells, dataset: str, key: str, digits: int, measure: Metric) -> tuple[str, str]:
    mean, std, defined, runs = cells.at(dataset, key)
    if not runs:
        return ABSENT, ""
    if not defined:
        return UNDEFINED, ""
    notes = [] if measure.rejection or math.isnan(std) else [number(std, digits)]
    if defined < runs:
        notes.append(f"{defined} of {runs} runs")
    return number(mean, digits), ", ".join(notes)


def time_section(results: Results) -> Section:
    """Seconds of fitting and scoring by model."""
    rows = []
    for model in results.models:
        tasks = [facts for (_, key), facts in sorted(results.facts.items()) if key == model.key]
        n = len(tasks)
        n_fits = sum(int(facts["n_folds"]) * int(facts["n_starts"]) for facts in tasks)
        fit = [_seconds(facts, "fit") for facts in tasks]
        score = sum(_seconds(facts, "score") for facts in tasks)
        times = (sum(fit), sum(fit) / n, max(fit), sum(fit) / n_fits, score, score / n)
        rows.append([model.label, str(n), str(n_fits), *map(seconds, times)])
    groups = [("", 1), ("number of", 2), ("seconds of fitting", 4), ("seconds of scoring", 2)]
    header = ["model", "tasks", "fits", "all", "per task", "longest task", "per fit", "all", "per task"]
    caption = (
        "A task is a model on a data set, with all its folds and starts; a fit is one tree or model. The "
        "fits of a task may have run side by side, so that seconds per fit are a share of the task."
    )
    blocks: list[Block] = [as_table(header, rows, caption, groups=groups)]
    blocks.append(Section("Seconds of fitting by data set", [_by_dataset(results)], folded=True))
    return Section("Time", blocks)


def _by_dataset(results: Results) -> pd.DataFrame:
    groups, header = heading(results.models)

    def text(dataset: str, key: str) -> str:
        facts = results.facts.get((dataset, key))
        return seconds(_seconds(facts, "fit")) if facts is not None else ABSENT

    rows = [
        [dataset, *(text(dataset, model.key) for model in results.models)] for dataset in results.datasets
    ]
    return as_table(header, rows, groups=groups)


def _seconds(facts: Facts, name: str) -> float:
    return float(facts["seconds"][name])
