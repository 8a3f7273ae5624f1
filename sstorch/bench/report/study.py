"""The report of a study: what was run, averages, comparisons, scores, times and undefined values."""

from __future__ import annotations

import pandas as pd

from sstorch.bench.report.comparisons import fold_section, paper_section
from sstorch.bench.report.results import Results, arrow_of, common, measure_of
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
    text = (
        "Mean, and standard deviation in small print, over all folds and starts, or the runs named; the best "
        f"of a column in bold, ties at the printed precision together. {ABSENT} is no result. Averages are "
        "over the data sets that models have in common, without models that have fewer than half; "
        f"“{_UNDEFINED}” is a metric without a value, for reasons in column reason of the table of the store."
    )
    sections = [
        _what_was_run(results),
        _averages(results),
        *(section for make in (paper_section, fold_section) if (section := make(results)) is not None),
        Section("Scores", [text, *(_scores(results, name) for name in results.metrics)]),
        _time(results),
    ]
    n, k = len(results.datasets), results.models["name"].nunique()
    subtitle = f"{k} model{'s' * (k != 1)} on {n} data set{'s' * (n != 1)}"
    return Document("Study of survival models", subtitle, sections)


def _what_was_run(results: Results) -> Section:
    """Data sets, models, folds, starts, dates and versions of the study; the tasks that are missing."""
    tasks, held = results.tasks, results.tasks.groupby("key")["dataset"].agg(set)
    starts = tasks["n_folds"].astype(str) + " x " + tasks["n_starts"].astype(str)
    versions = pd.DataFrame(list(tasks["versions"]))
    rows = [
        ("data sets", f"{len(results.datasets)}: {', '.join(results.datasets)}"),
        ("models", ", ".join(results.labels.values())),
        ("folds x starts", _counted(starts)),
        ("seed of the folds", _counted(tasks["seed"])),
        ("device", _counted(tasks["device"])),
        ("finished, UTC", " to ".join(tasks["finished"].agg(["min", "max"]).str[:16].drop_duplicates())),
        *((str(name), _counted(versions[name].dropna())) for name in sorted(versions, key=str)),
    ]
    missing = list(results.notes)
    for key, label in results.labels.items():
        if absent := [name for name in results.datasets if name not in held[key]]:
            missing.append(f"{label} has no results on {listed(absent)}.")
    text = missing or "Every model has results on every data set."
    return Section("What was run", [as_table(["", "this study"], rows), text])


def _counted(values: pd.Series) -> str:
    """The value that all tasks share, or all values."""
    return ", ".join(sorted(set(values.map(str))))


def average_table(results: Results, *, chosen: bool = False) -> pd.DataFrame:
    """Test means over the data sets in common, a row per model; a metric has its own number of data sets."""
    columns = {}
    for measure in filter(lambda measure: measure.averaged, map(measure_of, results.metrics)):
        means = results.means(measure.name, chosen=chosen)
        block = common(means)
        average = block.mean(axis=1).reindex(means.index)
        best = best_of(average.to_frame(), measure.higher_is_better)[0]
        cells = [Cell(number(value), best=bold) for value, bold in zip(average, best, strict=True)]
        columns[f"{measure.short}{arrow_of(measure)} ({block.shape[1]})"] = cells
    over = "the chosen start of each fold" if chosen else "all folds and starts"
    caption = (
        f"Test means over {over}, averaged over the data sets that the models have in common "
        "(their number in brackets). ↑ higher is better, ↓ lower is better; the best in bold."
    )
    rows = list(zip(results.labels.values(), *columns.values(), strict=True))
    return as_table(["model", *columns], rows, caption)


def as_text(table: pd.DataFrame) -> str:
    """An :func:`average_table` for the terminal."""
    shown = table.map(lambda cell: cell.text + "*" * cell.best)
    shown.columns = table.columns.get_level_values(-1)
    text = shown.rename_axis("model", axis=1).to_string()
    return f"{text}\n* best; test means over the data sets in common (their number in brackets)"


def _averages(results: Results) -> Section:
    blocks: list[Block] = [average_table(results)]
    if not results.rows["chosen"].all():
        table = average_table(results, chosen=True)
        blocks.append(Section("Averages over the chosen start of each fold", [table], folded=True))
    return Section("Averages", blocks)


def _scores(results: Results, metric: str) -> Section:
    """The tables of a metric, test and train."""
    measure, blocks = measure_of(metric), list[Block]()
    if measure.rejection:
        blocks.append("A model that is calibrated is rejected in 5 % of the fits; no value is in bold.")
    for part in ("test", "train"):
        if not (table := score_table(results, metric, part)).empty:
            blocks.append(Section(f"{part.capitalize()} rows", [table], folded=part == "train"))
    return Section(f"{measure.title} ({metric}; {measure.direction})", blocks)


def score_table(results: Results, metric: str, part: str = "test") -> pd.DataFrame:
    """Means and standard deviations, a row per model, a column per data set; averages, the best in bold."""
    measure, summary, means = measure_of(metric), results.summary(metric, part), results.means(metric, part)
    means = means[means.index.isin(summary.index.get_level_values("key"))]
    digits, block = digits_of(means.to_numpy()), common(means)
    notes = dict.fromkeys(means.stack(future_stack=True).index, ABSENT)
    for place, (_, std, count, size) in zip(summary.index, summary.to_numpy(), strict=True):
        texts = [] if measure.rejection or std != std else [number(std, digits)]
        texts += [f"{count:g} of {size:g} runs"] * bool(count < size)
        notes[place] = ", ".join(texts) if count else _UNDEFINED
    if measure.averaged:
        means[f"average ({block.shape[1]})"] = block.mean(axis=1)
    best = best_of(means, measure.higher_is_better, digits).to_numpy()

    def cell(place: tuple[str, str], value: float, bold: bool) -> Cell:
        note = notes.get(place, "")
        return Cell(note) if note in (ABSENT, _UNDEFINED) else Cell(number(value, digits), note, bool(bold))

    names = [str(name) for name in means]
    rows = [
        (results.labels[key], *map(cell, [(key, name) for name in names], values, marks))
        for key, values, marks in zip(means.index, means.to_numpy(), best, strict=True)
    ]
    return as_table(["model", *names], rows)


def best_of(values: pd.DataFrame, higher_is_better: bool | None, digits: int = DIGITS) -> pd.DataFrame:
    """True for the best values of each column, those that print alike together."""
    # Nowhere true where there is no direction, or only one value to choose from.
    if higher_is_better is None:
        return values.notna() & False
    printed = values.map(lambda value: float(f"{value:.{digits}f}"))
    return printed.eq(printed.max() if higher_is_better else printed.min()) & values.notna().sum().gt(1)


def _time(results: Results) -> Section:
    """Seconds of fitting and scoring by model."""
    tasks = results.tasks
    spent = pd.DataFrame(list(tasks["seconds"]), index=tasks.index)
    tasks = tasks.assign(**spent, fits=tasks["n_folds"] * tasks["n_starts"])
    sums = tasks.groupby("key")[["fits", "fit", "score"]].sum().loc[results.models.index]
    rows = [
        [label, f"{fits:g}", *map(seconds, (fitting, fitting / fits, scoring))]
        for label, (fits, fitting, scoring) in zip(results.labels.values(), sums.to_numpy(), strict=True)
    ]
    caption = (
        "Seconds of all data sets; a fit is one tree or model of one fold, and those of a data set may have "
        "run side by side."
    )
    return Section("Time", [as_table(["model", "fits", "fitting", "per fit", "scoring"], rows, caption)])
