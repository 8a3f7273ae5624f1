"""The page of a validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sstorch._version import __version__
from sstorch.document import (
    ABSENT,
    Block,
    Bullets,
    Cell,
    Code,
    Document,
    Paragraph,
    Picture,
    Section,
    Table,
    number,
)
from sstorch.exceptions import DataError
from sstorch.metrics.horizon_rows import HorizonRows
from sstorch.plots import plot_calibration, plot_decision_curve
from sstorch.validation.facts import APPARENT, Facts
from sstorch.validation.measures import MEASURES, name_of_net_benefit


def document(
    facts: Facts,
    table: pd.DataFrame,
    parts: Mapping[str, HorizonRows],
    calibration: Callable[[str | None], pd.DataFrame],
    decisions: Callable[[None, str | None], pd.DataFrame],
    tripod: pd.DataFrame,
) -> Document:
    """Tables, figures and the checklist; with competing causes those of each cause.

    `parts` are rows with their predictions by name of the cause, and the curves functions of it, None for one
    event; `decisions` is the decision curve at default thresholds.
    """
    n = facts.n_rows
    sections = []
    for cause, rows in parts.items():
        own = pd.DataFrame(table.xs(cause)) if cause else table
        asked = cause or None
        sections += [
            _performance(facts, own, rows, cause),
            _calibration(facts, own, rows, partial(calibration, asked), cause),
            _decisions(facts, own, partial(decisions, None, asked), cause),
        ]
    sections.append(_rows(facts))
    if facts.summary:
        sections.append(Section("The model", [Code(facts.summary)], folded=True))
    subtitle = f"{facts.model} on {n} row{'s' * (n != 1)}, predictions at {facts.at_horizon}"
    if facts.apparent:
        sections.insert(0, Section("Apparent validation", [Paragraph(f"{APPARENT}.")]))
    title = "Apparent validation" if facts.apparent else "Validation"
    return Document(title, subtitle, [*sections, _checklist(tripod)])


def _titled(title: str, cause: str) -> str:
    return f"{cause}: {title[0].lower()}{title[1:]}" if cause else title


def _performance(facts: Facts, table: pd.DataFrame, rows: HorizonRows, cause: str) -> Section:
    body = [
        [
            Cell(measure.title),
            Cell(number(table["value"][name])),
            *([Cell(number(table["corrected"][name]))] if "corrected" in table else []),
            Cell(_limits(table, name)),
            Cell(f"{measure.ideal:g}"),
            Cell(measure.method_for(rows)),
        ]
        for name, measure in MEASURES.items()
        if measure.defined_for(rows)
    ]
    corrected = ["corrected for optimism"] if "corrected" in table else []
    header = ["", "value", *corrected, f"{100 * facts.level:g} %", "ideal", "limits by"]
    undefined: dict[str, list[str]] = {}
    for name, row in table.iterrows():
        if row["reason"]:
            title = MEASURES[name].title if name in MEASURES else str(name)
            undefined.setdefault(row["reason"], []).append(title)
    blocks: list[Block] = [Table("", header, body, left=frozenset({len(header) - 1}))]
    if undefined:
        blocks.append(Bullets([f"{', '.join(titles)}: {reason}" for reason, titles in undefined.items()]))
    text = (
        "Concordance, AUC: order of the predictions, .5 without any. Observed over expected above 1, and an "
        "intercept above 0: too few events were predicted. Slope below 1: predictions are too extreme. ICI "
        "and the errors below it: distances from the calibration curve. Scaled Brier score: gain over one "
        "prediction for all."
    )
    return Section(_titled("Performance", cause), [*blocks, Paragraph(text)])


def _limits(table: pd.DataFrame, name: str) -> str:
    lower, upper = table["lower"][name], table["upper"][name]
    return f"{number(lower)} to {number(upper)}" if np.isfinite(lower) else ABSENT


def _calibration(
    facts: Facts,
    table: pd.DataFrame,
    rows: HorizonRows,
    calibration: Callable[[], pd.DataFrame],
    cause: str,
) -> Section:
    title = _titled(f"Calibration at {facts.at_horizon}", cause)
    try:
        curve = calibration()
    except DataError as error:
        return Section(title, [Paragraph(f"No curve. {error}")])
    figure = Figure(figsize=(4.8, 4.8), layout="constrained")
    plot_calibration(
        curve, rows.survival, figure.subplots(), incidence=rows.competing, horizon=facts.at_horizon
    )
    what = "incidence, smoothed by pseudo-values," if cause else "survival, smoothed by a Cox model,"
    caption = (
        f"Observed {what} against predicted {'incidence' if cause else 'survival'}, with a pointwise band of "
        f"{100 * facts.level:g} %; on the diagonal both agree. The histogram is of the predictions."
    )
    words = f"Calibration curve. Mean distance from the diagonal {number(table['value']['ici'])}."
    return Section(title, [Picture(f"calibration{cause}", figure, caption, words)])


def _decisions(
    facts: Facts, table: pd.DataFrame, decisions: Callable[[], pd.DataFrame], cause: str
) -> Section:
    title = _titled("Clinical use", cause)
    try:
        curve = decisions()
    except DataError as error:
        return Section(title, [Paragraph(f"No curve. {error}")])
    figure = Figure(figsize=(4.9, 4.0), layout="constrained")
    plot_decision_curve(curve, figure.subplots(), horizon=facts.at_horizon)
    caption = (
        f"Net benefit of acting on those whose predicted risk by {facts.at_horizon} is at least the "
        "threshold, compared with acting on all and on none; in events found at no cost, per subject."
    )
    named = {threshold: name_of_net_benefit(threshold) for threshold in facts.thresholds}
    words = "Decision curve. " + " ".join(
        f"At {threshold:g}: {number(table['value'][name])}." for threshold, name in named.items()
    )
    body = [
        [
            Cell(f"{100 * threshold:g} %"),
            Cell(number(table["value"][name])),
            Cell(_limits(table, name)),
        ]
        for threshold, name in named.items()
    ]
    limits = f"{100 * facts.level:g} %"
    picture = Picture(f"decisions{cause}", figure, caption, words)
    return Section(title, [picture, Table("", ["threshold", "net benefit", limits], body)])


def _rows(facts: Facts) -> Section:
    follow_up = facts.with_unit(facts.follow_up) if np.isfinite(facts.follow_up) else "not reached"
    entries = [
        ("rows", str(facts.n_rows)),
        *([("subjects", str(facts.n_subjects))] if facts.n_subjects != facts.n_rows else []),
        ("events", str(facts.n_events)),
        (f"events up to {facts.at_horizon}", str(facts.n_by_horizon)),
        *((f"{name} up to {facts.at_horizon}", str(count)) for name, count in facts.events.items()),
        *([("landmark", facts.with_unit(facts.after))] if facts.after is not None else []),
        *([("left truncation", "yes")] if facts.late else []),
        *([("weights", "uneven")] if facts.weighted else []),
        (f"followed beyond {facts.at_horizon}", str(facts.n_followed)),
        ("median follow-up (reverse Kaplan-Meier)", follow_up),
        ("longest follow-up", facts.with_unit(facts.last_time)),
        ("columns", ", ".join(facts.columns)),
        ("cells", facts.missing_text),
        ("resamples", f"{facts.n_resamples}, seed {facts.random_state}"),
        ("version", f"sstorch {__version__}"),
    ]
    table = Table("", ["", "all rows"], [[Cell(a), Cell(b)] for a, b in entries], left=frozenset({1}))
    return Section("The rows", [table])


def _checklist(tripod: pd.DataFrame) -> Section:
    body = [
        [Cell(f"{number_} {row['topic']}"), Cell(row["reported"] or ABSENT), Cell(row["left"])]
        for number_, row in tripod.iterrows()
    ]
    text = (
        "The items of TRIPOD+AI (Collins et al. 2024, BMJ 385, e078378) in other words: what rows and model "
        "show, and what the authors have to add or to check. What counts is the wording of the statement."
    )
    header = ["item", "reported by this validation", "to be written"]
    return Section("TRIPOD+AI", [Paragraph(text), Table("", header, body, left=frozenset({1, 2}))])
