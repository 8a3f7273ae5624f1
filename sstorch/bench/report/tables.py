"""Tables of a study: what was run and what is missing, scores with their averages, and times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

import pandas as pd

from sstorch.bench.report.results import (
    PARTS,
    Cells,
    Model,
    Results,
    by_family,
    common_block,
    measure_of,
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
    facts = list(results.facts.values())
    families = by_family(results.models).items()
    finished = sorted(str(each["finished"]) for each in facts)
    rows = [
        ("data sets", f"{len(results.datasets)}: {', '.join(results.datasets)}"),
        *((family, ", ".join(model.label for model in members)) for family, members in families),
        ("metrics", ", ".join(results.metrics)),
        ("folds x starts", _counted(f"{each['n_folds']} x {each['n_starts']}" for each in facts)),
        ("seed of the folds", _counted(each["seed"] for each in facts)),
        ("device", _counted(each["device"] for each in facts)),
        ("tasks", str(len(facts))),
        ("finished", " to ".join(dict.fromkeys([finished[0], finished[-1]]))),
    ]
    packages = sorted({package for each in facts for package in each["versions"]})
    versions = [
        (name, _counted(each["versions"][name] for each in facts if name in each["versions"]))
        for name in packages
    ]
    more = Section("Versions", [as_table(["package", "version"], versions)], folded=True)
    return Section("What was run", [as_table(["", "this study"], rows), more])


def _counted(values: Iterable[object]) -> str:
    """The value that all tasks share; where they differ, each value with its number of tasks."""
    counts = Counter(map(str, values))
    if len(counts) == 1:
        return next(iter(counts))
    texts = [f"{value} ({count} task{'s' * (count > 1)})" for value, count in sorted(counts.items())]
    return f"tasks differ: {', '.join(texts)}"


def completeness_section(results: Results) -> Section:
    """The cells that are missing, and how rows were chosen."""
    items = list(results.notes)
    for model in results.models:
        absent = [name for name in results.datasets if (name, model.key) not in results.facts]
        if absent:
            items.append(f"{model.label} has no results on {listed(absent)}.")
    of_paper, names = published_tables(), {model.name for model in results.models}
    without = [name for name in sorted(set(of_paper["dataset"])) if name not in results.datasets]
    models = [name for name in dict.fromkeys(of_paper["model"]) if name not in names]
    if set(of_paper["dataset"]) & set(results.datasets):  # the paper has no value for a user's data
        for what, missing in (("data sets", without), ("models", models)):
            if missing:
                items.append(f"Of the paper's {what} not among these results: {listed(missing)}.")
    n = len(results.datasets) * len(results.models)
    text = "Every model has results on every data set."
    if len(results.facts) < n:
        text = (
            f"{len(results.facts)} of {n} cells (data set and model) have results. An absent one is shown as "
            f"“{ABSENT}”; averages and ranks are compared over data sets in common only."
        )
    return Section("Completeness", [text, items] if items else [text])


def undefined_section(results: Results) -> Section:
    """Values that are NaN, with their reasons."""
    title, rows = "Values that are not defined", results.rows[results.rows["value"].isna()]
    if rows.empty:
        return Section(title, ["None: every metric of every run has a value."])
    reasons = rows["reason"].fillna("").replace("", "no reason given")
    rows = rows.assign(reason=reasons, model=rows["key"].map({m.key: m.label for m in results.models}))
    grouped = rows.groupby(["model", "metric", "part"], observed=True)
    columns = {"values": grouped.size(), "data sets": grouped["dataset"].agg(_names)}
    table = pd.DataFrame(columns | {"reason": grouped["reason"].agg(_commonest)})
    text = (
        f"{len(rows)} of {len(results.rows)} values are NaN. A mean is over the runs that have a value, "
        "whose number follows where it is not all of them; “n. d.” is a metric without any."
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


def average_table(results: Results, *, chosen: bool = False) -> pd.DataFrame:
    """Test means over the data sets in common, a row per model; a metric has its own number of data sets."""
    columns, header = [], ["model"]
    for measure in (measure_of(name) for name in results.metrics):
        if not measure.averaged:
            continue
        mean = results.cells(measure.name, chosen=chosen).mean
        block = common_block(mean)
        column = mean.loc[block.datasets, block.models].mean().reindex(mean.columns)
        best = best_of_rows(column.to_frame().T, measure.higher_is_better).iloc[0]
        columns.append([Cell(number(column[key]), "", bool(best[key])) for key in mean.columns])
        arrow = {True: " ↑", False: " ↓", None: ""}[measure.higher_is_better]
        header.append(f"{measure.short}{arrow} ({len(block.datasets)})")
    rows = [[model.label, *(column[k] for column in columns)] for k, model in enumerate(results.models)]
    over = "the chosen start of each fold" if chosen else "all folds and starts"
    caption = (
        f"Test means over {over}, averaged over the data sets that the models have in common "
        "(their number in brackets). ↑ higher is better, ↓ lower is better; the best in bold."
    )
    return as_table(header, rows, caption)


def as_text(table: pd.DataFrame) -> str:
    """An :func:`average_table` for the terminal."""
    shown = table.map(lambda cell: cell.text + "*" * cell.best).set_axis(
        table.columns.get_level_values(-1), axis=1
    )
    text = shown.rename_axis("model", axis=1).to_string()
    return f"{text}\n* best; test means over the data sets in common (their number in brackets)"


def average_section(results: Results) -> Section:
    """The averages at a glance, and the models that they leave out."""
    left_out = set[str]()
    for mean in (results.cells(name).mean for name in results.metrics):
        left_out |= {results.model(k).label for k in common_block(mean).left_out if mean[k].notna().any()}
    blocks: list[Block] = [average_table(results)]
    if left_out:
        few = "Excluded from the averages, with values on fewer than half of the data sets: "
        blocks.append(f"{few}{listed(sorted(left_out))}.")
    if not results.rows["chosen"].all():
        table = average_table(results, chosen=True)
        blocks.append(Section("Averages over the chosen start of each fold", [table], folded=True))
    return Section("Averages", blocks)


def score_section(results: Results, metric: str) -> Section:
    """All tables of a metric: over all runs and over the chosen starts, test and train."""
    measure = measure_of(metric)
    blocks: list[Block] = []
    if measure.rejection:
        blocks.append(
            "A model that is calibrated is rejected in 5 % of the fits; no value is marked as best."
        )
    for part in PARTS:
        for chosen in (False, True):
            tables = score_tables(results, measure, results.cells(metric, part, chosen=chosen))
            over = "chosen start of each fold" if chosen else "all folds and starts"
            if tables:
                folded = part == "train" or chosen
                blocks.append(Section(f"{part.capitalize()}, {over}", tables, folded))
    return Section(f"{measure.title} ({metric}; {measure.direction})", blocks)


def score_tables(results: Results, measure: Metric, cells: Cells) -> list[pd.DataFrame]:
    """Means and standard deviations, the best of a row marked, with rows of averages below."""
    shown = [model for model in results.models if cells.runs[model.key].any()]
    families = by_family(shown) if len(shown) > _WIDE else {"": shown}
    values = cells.mean[[model.key for model in shown]]
    digits = digits_of(values.to_numpy(dtype=float))
    averages = averages_of(values) if measure.averaged else values.iloc[:0]
    whole = pd.concat([values, averages])
    compared = measure.higher_is_better
    counts = values.notna().sum()
    # Averages over data sets of their own are not compared.
    comparable = whole.drop(index=OWN, errors="ignore").reindex(whole.index)
    best = best_of_rows(comparable, compared, digits)

    def cell(row: str, key: str, in_family: pd.DataFrame) -> Cell:
        marks = bool(best.at[row, key]), bool(in_family.at[row, key])
        if row in values.index:
            return Cell(*_texts(cells, row, key, digits, measure), *marks)
        note = f"of {counts[key]}" if row == OWN and counts[key] else ""
        return Cell(number(float(whole[key][row]), digits), note, *marks)

    tables = []
    for family, members in families.items():
        keys = [model.key for model in members]
        in_family = best_of_rows(comparable[keys], compared, digits)
        groups, header = heading(members)
        rows = [[row, *(cell(row, key, in_family) for key in keys)] for row in whole.index]
        table = as_table(header, rows, family.capitalize(), groups=groups, n_averages=len(averages))
        tables.append(table)
    return tables if shown else []


def heading(models: Sequence[Model]) -> tuple[list[tuple[str, int]], list[str]]:
    """Two rows of headings, names and depths; a single row where no model has a depth."""
    if all(model.depth is None for model in models):
        return [], ["data set", *(model.title for model in models)]
    groups = [(title, len(list(same))) for title, same in groupby(models, key=lambda model: model.title)]
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


# Name of a row of averages of each model over the data sets that it has, which are not comparable.
OWN = "average, own data sets"


def averages_of(values: pd.DataFrame) -> pd.DataFrame:
    """Rows of averages over data sets.

    One row where all models with values have them on every data set. Otherwise one over the data sets that
    each model has, and one over the data sets in common (`Block`).
    """
    block = common_block(values)
    n, counts = len(block.datasets), values.notna().sum()
    common = values.loc[block.datasets, block.models].mean().reindex(values.columns)
    if counts[counts > 0].eq(len(values)).all():
        return common.to_frame(f"average of {n} data set{'s' * (n != 1)}").T
    return pd.DataFrame({OWN: values.mean(), f"average, {n} in common": common}).T


def _texts(cells: Cells, dataset: str, key: str, digits: int, measure: Metric) -> tuple[str, str]:
    mean, std, defined, runs = (float(frame[key][dataset]) for frame in cells)
    if not runs:
        return ABSENT, ""
    if not defined:
        return UNDEFINED, ""
    notes = [] if measure.rejection or std != std else [number(std, digits)]
    if defined < runs:
        notes.append(f"{defined:g} of {runs:g} runs")
    return number(mean, digits), ", ".join(notes)


def time_section(results: Results) -> Section:
    """Seconds of fitting and scoring by model."""
    facts = pd.DataFrame(
        [
            {"dataset": dataset, "key": key, **each["seconds"], "fits": each["n_folds"] * each["n_starts"]}
            for (dataset, key), each in results.facts.items()
        ]
    )
    sums = facts.groupby("key")[["fit", "score", "fits"]].agg(["sum", "mean", "max", "count"])
    rows = []
    for model in results.models:
        own = sums.loc[model.key]
        fit, score, n_fits = own["fit"], own["score"], own["fits"]["sum"]
        times = (fit["sum"], fit["mean"], fit["max"], fit["sum"] / n_fits, score["sum"], score["mean"])
        rows.append([model.label, f"{fit['count']:g}", f"{n_fits:g}", *map(seconds, times)])
    groups = [("", 1), ("number of", 2), ("seconds of fitting", 4), ("seconds of scoring", 2)]
    header = ["model", "tasks", "fits", "all", "per task", "longest task", "per fit", "all", "per task"]
    caption = (
        "A task is a model on a data set, with all its folds and starts; a fit is one tree or model. The "
        "fits of a task may have run side by side, so that seconds per fit are a share of the task."
    )
    wide = facts.pivot(index="dataset", columns="key", values="fit").reindex(index=list(results.datasets))
    shown = wide[[model.key for model in results.models]].map(seconds)
    above, depths = heading(results.models)
    by_dataset = as_table(depths, list(shown.itertuples(name=None)), groups=above)
    details = Section("Seconds of fitting by data set", [by_dataset], folded=True)
    return Section("Time", [as_table(header, rows, caption, groups=groups), details])
