"""The report of a study: what was run, averages, comparisons, scores, times and undefined values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pandas as pd

from sstorch.bench.report.comparisons import fold_section, paper_section, rank_section
from sstorch.bench.report.results import Results, arrow_of, common, measure_of, published_tables
from sstorch.document import (
    ABSENT,
    DIGITS,
    Block,
    Cell,
    Document,
    Section,
    as_table,
    digits_of,
    listed,
    number,
    seconds,
)

_UNDEFINED = "n. d."


def build_report(results: Results) -> Document:
    """The whole report; the same results give the same report."""
    optional = (paper_section, rank_section, fold_section)
    text = (
        "Mean, and standard deviation in small print, over the runs named; the best of a column in bold, "
        f"ties at the printed precision together. {ABSENT} is no result. Averages are over the data sets "
        "that the models have in common; models with values on fewer than half of the data sets have none."
    )
    sections = [
        _what_was_run(results),
        _completeness(results),
        _averages(results),
        *(section for make in optional if (section := make(results)) is not None),
        Section("Scores", [text, *(_scores(results, name) for name in results.metrics)]),
        _time(results),
        _undefined(results),
    ]
    n, k = len(results.datasets), results.models["name"].nunique()
    subtitle = f"{k} model{'s' * (k != 1)} on {n} data set{'s' * (n != 1)}"
    return Document("Study of survival models", subtitle, sections)


def _what_was_run(results: Results) -> Section:
    """Data sets, models, folds, starts, dates and versions of the study."""
    tasks, models = results.tasks, results.models
    starts = tasks["n_folds"].astype(str) + " x " + tasks["n_starts"].astype(str)
    finished = tasks["finished"].agg(["min", "max"]).drop_duplicates()
    rows = [
        ("data sets", f"{len(results.datasets)}: {', '.join(results.datasets)}"),
        *((family, ", ".join(own)) for family, own in models.groupby("family", sort=False)["label"]),
        ("metrics", ", ".join(results.metrics)),
        ("folds x starts", _counted(starts)),
        ("seed of the folds", _counted(tasks["seed"])),
        ("device", _counted(tasks["device"])),
        ("tasks", str(len(tasks))),
        ("finished", " to ".join(finished)),
    ]
    versions = pd.DataFrame(list(tasks["versions"]))
    packages = [(str(name), _counted(versions[name].dropna())) for name in sorted(versions, key=str)]
    more = Section("Versions", [as_table(["package", "version"], packages)], folded=True)
    return Section("What was run", [as_table(["", "this study"], rows), more])


def _counted(values: Iterable[object]) -> str:
    """The value that all tasks share; where they differ, each value with its number of tasks."""
    counts = Counter(map(str, values))
    if len(counts) == 1:
        return next(iter(counts))
    texts = [f"{value} ({count} task{'s' * (count > 1)})" for value, count in sorted(counts.items())]
    return f"tasks differ: {', '.join(texts)}"


def _completeness(results: Results) -> Section:
    """The tasks that are missing, and how rows were chosen."""
    items, held = list(results.notes), results.tasks.groupby("key")["dataset"].agg(set)
    for key, label in results.labels.items():
        if absent := [name for name in results.datasets if name not in held[key]]:
            items.append(f"{label} has no results on {listed(absent)}.")
    published = published_tables()
    if published["dataset"].isin(results.datasets).any():  # the paper has no value for a user's data
        for what, column, known in (
            ("data sets", "dataset", results.datasets),
            ("models", "model", list(results.models["name"])),
        ):
            if missing := [name for name in published[column].unique() if name not in known]:
                items.append(f"Of the paper's {what} not among these results: {listed(missing)}.")
    n = len(results.datasets) * len(results.models)
    text = "Every model has results on every data set."
    if len(results.tasks) < n:
        text = (
            f"{len(results.tasks)} of {n} cells (data set and model) have results. An absent one is shown as "
            f"“{ABSENT}”; averages and ranks are compared over data sets in common only."
        )
    return Section("Completeness", [text, items] if items else [text])


def average_table(results: Results, *, chosen: bool = False) -> pd.DataFrame:
    """Test means over the data sets in common, a row per model; a metric has its own number of data sets."""
    columns: dict[str, list[Any]] = {"model": list(results.labels.values())}
    for measure in filter(lambda measure: measure.averaged, map(measure_of, results.metrics)):
        means = results.means(measure.name, chosen=chosen)
        block = common(means)
        average = block.mean(axis=1).reindex(means.index)
        best = best_of(average.to_frame(), measure.higher_is_better)[0]
        header = f"{measure.short}{arrow_of(measure)} ({block.shape[1]})"
        columns[header] = [Cell(number(average[key]), best=bool(best[key])) for key in average.index]
    over = "the chosen start of each fold" if chosen else "all folds and starts"
    caption = (
        f"Test means over {over}, averaged over the data sets that the models have in common "
        "(their number in brackets). ↑ higher is better, ↓ lower is better; the best in bold."
    )
    return as_table(list(columns), list(zip(*columns.values(), strict=True)), caption)


def as_text(table: pd.DataFrame) -> str:
    """An :func:`average_table` for the terminal."""
    shown = table.map(lambda cell: cell.text + "*" * cell.best)
    shown.columns = table.columns.get_level_values(-1)
    text = shown.rename_axis("model", axis=1).to_string()
    return f"{text}\n* best; test means over the data sets in common (their number in brackets)"


def _averages(results: Results) -> Section:
    """The averages at a glance, and the models that they leave out."""
    left_out = set[str]()
    for means in map(results.means, results.metrics):
        left_out |= set(means.index[means.notna().any(axis=1)].difference(common(means).index))
    blocks: list[Block] = [average_table(results)]
    if left_out:
        few = "Excluded from the averages, with values on fewer than half of the data sets: "
        blocks.append(f"{few}{listed(sorted(results.labels[key] for key in left_out))}.")
    if not results.rows["chosen"].all():
        table = average_table(results, chosen=True)
        blocks.append(Section("Averages over the chosen start of each fold", [table], folded=True))
    return Section("Averages", blocks)


def _scores(results: Results, metric: str) -> Section:
    """All tables of a metric: over all runs and over the chosen starts, test and train."""
    measure, blocks = measure_of(metric), list[Block]()
    if measure.rejection:
        blocks.append("A model that is calibrated is rejected in 5 % of the fits; no value is in bold.")
    for part in ("test", "train"):
        for chosen in (False, True):
            table = score_table(results, metric, part, chosen=chosen)
            over = "chosen start of each fold" if chosen else "all folds and starts"
            if not table.empty:
                folded = part == "train" or chosen
                blocks.append(Section(f"{part.capitalize()}, {over}", [table], folded))
    return Section(f"{measure.title} ({metric}; {measure.direction})", blocks)


def score_table(results: Results, metric: str, part: str = "test", *, chosen: bool = False) -> pd.DataFrame:
    """Means and standard deviations, a row per model, a column per data set; averages, the best in bold."""
    measure, summary = measure_of(metric), results.summary(metric, part, chosen=chosen)
    means = results.means(metric, part, chosen=chosen)
    means = means[means.index.isin(summary.index.get_level_values("key"))]
    digits, block = digits_of(means.to_numpy()), common(means)
    if measure.averaged:
        means = means.assign(average=block.mean(axis=1))
    best = best_of(means, measure.higher_is_better, digits)
    known: dict[Any, list[float]] = dict(zip(summary.index, summary.to_numpy().tolist(), strict=True))

    def cell(place: tuple[str, str], value: float, bold: bool) -> Cell:
        if place[1] not in results.datasets:
            return Cell(number(value, digits), best=bool(bold))
        if place not in known:
            return Cell(ABSENT)
        _, std, count, size = known[place]
        if not count:
            return Cell(_UNDEFINED)
        notes = [] if measure.rejection or std != std else [number(std, digits)]
        notes += [f"{count:g} of {size:g} runs"] * bool(count < size)
        return Cell(number(value, digits), ", ".join(notes), bool(bold))

    rows = [
        (results.labels[key], *map(cell, [(key, str(name)) for name in means], own, marks))
        for key, own, marks in zip(means.index, means.to_numpy(), best.to_numpy(), strict=True)
    ]
    named = [f"average ({block.shape[1]})" if name == "average" else str(name) for name in means]
    return as_table(["model", *named], rows)


def best_of(values: pd.DataFrame, higher_is_better: bool | None, digits: int = DIGITS) -> pd.DataFrame:
    """True for the best values of each column, those that print alike together.

    Nowhere true where there is no direction, or only one value to choose from.
    """
    if higher_is_better is None:
        return values.notna() & False
    printed = values.map(lambda value: float(f"{value:.{digits}f}"))
    return printed.eq(printed.max() if higher_is_better else printed.min()) & values.notna().sum().gt(1)


def _undefined(results: Results) -> Section:
    """Values that are NaN, with their reasons."""
    title, rows = "Values that are not defined", results.rows[results.rows["value"].isna()]
    if rows.empty:
        return Section(title, ["None: every metric of every run has a value."])
    reasons = rows["reason"].fillna("").replace("", "no reason given")
    rows = rows.assign(reason=reasons, model=rows["key"].map(results.models["label"]))
    grouped = rows.groupby(["model", "metric", "part"], observed=True)
    columns = {"values": grouped.size(), "data sets": grouped["dataset"].agg(_names)}
    table = pd.DataFrame(columns | {"reason": grouped["reason"].agg(_commonest)})
    text = (
        f"{len(rows)} of {len(results.rows)} values are NaN. A mean is over the runs that have a value, "
        f"whose number follows where it is not all of them; “{_UNDEFINED}” is a metric without any."
    )
    lines = [[str(text) for text in line] for line in table.reset_index().itertuples(index=False)]
    return Section(title, [text, as_table(["model", "metric", "part", *table], lines)])


def _names(names: pd.Series) -> str:
    return ", ".join(sorted(map(str, set(names))))


def _commonest(reasons: pd.Series) -> str:
    """The commonest reason; the others, which often differ in a number only, are counted."""
    counts = reasons.value_counts()
    first, more = str(reasons.mode().iloc[0]), len(counts) - 1
    return f"{first} ({counts[first]} times; {more} other reason{'s' * (more > 1)})" if more else first


def _time(results: Results) -> Section:
    """Seconds of fitting and scoring by model."""
    tasks = results.tasks
    spent = pd.DataFrame(list(tasks["seconds"]), index=tasks.index)
    tasks = tasks.assign(**spent, fits=tasks["n_folds"] * tasks["n_starts"])
    sums = tasks.groupby("key").agg(
        tasks=("fit", "size"),
        fits=("fits", "sum"),
        fitting=("fit", "sum"),
        mean=("fit", "mean"),
        longest=("fit", "max"),
        scoring=("score", "sum"),
        mean_score=("score", "mean"),
    )
    sums.insert(5, "per fit", sums["fitting"] / sums["fits"])
    numbers = sums.loc[results.models.index].to_numpy().tolist()
    rows = [
        [label, f"{n:g}", f"{fits:g}", *map(seconds, times)]
        for label, (n, fits, *times) in zip(results.labels.values(), numbers, strict=True)
    ]
    header = ["model", "tasks", "fits", "fitting", "per task", "longest task", "per fit"]
    caption = (
        "Seconds. A task is a model on a data set, with all its folds and starts; a fit is one tree or "
        "model. The fits of a task may have run side by side: seconds per fit are a share of the task."
    )
    wide = tasks.pivot(index="key", columns="dataset", values="fit")
    shown = wide.reindex(index=results.models.index, columns=results.datasets).map(seconds)
    lines = list(zip(results.labels.values(), *shown.to_numpy().T, strict=True))
    by_dataset = as_table(["model", *results.datasets], lines)
    details = Section("Seconds of fitting by data set", [by_dataset], folded=True)
    return Section("Time", [as_table([*header, "scoring", "per task"], rows, caption), details])
