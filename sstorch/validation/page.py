"""The page of a validation."""

from __future__ import annotations

from collections.abc import Callable

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
from sstorch.plots import plot_calibration, plot_decision_curve
from sstorch.validation.facts import Facts
from sstorch.validation.measures import MEASURES, Predictions, name_of_net_benefit


def document(
    facts: Facts,
    table: pd.DataFrame,
    rows: Predictions,
    calibration: Callable[[], pd.DataFrame],
    decisions: pd.DataFrame,
    tripod: pd.DataFrame,
) -> Document:
    """Tables, figures and the checklist."""
    n = facts.n_rows
    sections = [
        _performance(facts, table),
        _calibration(facts, table, rows, calibration),
        _decisions(facts, table, decisions),
        _rows(facts),
    ]
    if facts.summary:
        sections.append(Section("The model", [Code(facts.summary)], folded=True))
    subtitle = f"{facts.model} on {n} row{'s' * (n != 1)}, predictions at {facts.at_horizon}"
    return Document("Validation", subtitle, [*sections, _checklist(tripod)])


def _performance(facts: Facts, table: pd.DataFrame) -> Section:
    body = [
        [
            Cell(measure.title),
            Cell(number(table["value"][name])),
            Cell(_limits(table, name)),
            Cell(f"{measure.ideal:g}"),
            Cell(measure.method),
        ]
        for name, measure in MEASURES.items()
    ]
    header = ["", "value", f"{100 * facts.confidence:g} %", "ideal", "limits by"]
    undefined = [
        f"{MEASURES[name].title if name in MEASURES else name}: {row['reason']}"
        for name, row in table.iterrows()
        if row["reason"]
    ]
    blocks: list[Block] = [Table("", header, body, left=frozenset({4}))]
    if undefined:
        blocks.append(Bullets(undefined))
    text = (
        "Concordance, AUC: order of the predictions, .5 without any. Observed over expected above 1, and an "
        "intercept above 0: too few events were predicted. Slope below 1: predictions are too extreme. ICI "
        "and the errors below it: distances from the calibration curve. Scaled Brier score: gain over one "
        "prediction for all."
    )
    return Section("Performance", [*blocks, Paragraph(text)])


def _limits(table: pd.DataFrame, name: str) -> str:
    lower, upper = table["lower"][name], table["upper"][name]
    return f"{number(lower)} to {number(upper)}" if np.isfinite(lower) else ABSENT


def _calibration(
    facts: Facts, table: pd.DataFrame, rows: Predictions, calibration: Callable[[], pd.DataFrame]
) -> Section:
    title = f"Calibration at {facts.at_horizon}"
    try:
        curve = calibration()
    except DataError as error:
        return Section(title, [Paragraph(f"There is no curve. {error}")])
    figure = Figure(figsize=(4.8, 4.8), layout="constrained")
    plot_calibration(curve, rows.survival, figure.subplots())
    caption = (
        f"Observed survival, smoothed by a Cox model, against predicted survival, with a pointwise band of "
        f"{100 * facts.confidence:g} %; on the diagonal both agree. Ticks are rows."
    )
    words = f"Calibration curve. Mean distance from the diagonal {number(table['value']['ici'])}."
    return Section(title, [Picture("calibration", figure, caption, words)])


def _decisions(facts: Facts, table: pd.DataFrame, decisions: pd.DataFrame) -> Section:
    figure = Figure(figsize=(4.9, 4.0), layout="constrained")
    plot_decision_curve(decisions, figure.subplots())
    caption = (
        f"Net benefit of acting on those whose predicted risk by {facts.at_horizon} is at least the "
        "threshold, beside acting on all and on none; in events found at no cost, per person."
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
    limits = f"{100 * facts.confidence:g} %"
    picture = Picture("decisions", figure, caption, words)
    return Section("Clinical use", [picture, Table("", ["threshold", "net benefit", limits], body)])


def _rows(facts: Facts) -> Section:
    follow_up = facts.with_unit(facts.follow_up) if np.isfinite(facts.follow_up) else "not reached"
    entries = [
        ("rows", str(facts.n_rows)),
        ("events", str(facts.n_events)),
        (f"events up to {facts.at_horizon}", str(facts.n_by_horizon)),
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
        [Cell(f"{number_} {row['topic']}"), Cell(row["told"] or ABSENT), Cell(row["left"])]
        for number_, row in tripod.iterrows()
    ]
    text = (
        "The items of TRIPOD+AI (Collins et al. 2024, BMJ 385, e078378) in other words: what rows and model "
        "tell, and what the authors have to add or to check. What counts is the wording of the statement."
    )
    header = ["item", "told by this validation", "to be written"]
    return Section("TRIPOD+AI", [Paragraph(text), Table("", header, body, left=frozenset({1, 2}))])
