"""The page of a drift report."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from sstorch._version import __version__
from sstorch.document import (
    ABSENT,
    Block,
    Bullets,
    Cell,
    Document,
    Paragraph,
    Picture,
    Section,
    Table,
    number,
)
from sstorch.plots.drift import plot_drift

_COLUMNS_SHOWN = 40


def document(
    columns: pd.DataFrame,
    periods: pd.DataFrame,
    findings: Sequence[str],
    subtitle: str,
    horizon: str,
    level: float,
) -> Document:
    """Findings, figure and tables; arguments as attributes of `DriftReport`."""
    names = list(dict.fromkeys(columns.index.get_level_values("period")))
    span = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}, {len(names)} periods"
    sections = [
        Section("Findings", [Bullets(findings) if findings else Paragraph("No drift was found.")]),
        _figure(columns, periods, findings, horizon, level),
        _predictions(periods, horizon, level),
        _columns(columns),
        *([_all_periods(columns, names)] if len(names) > 1 else []),
        Section("How to read this page", [Bullets(_notes(horizon, level))]),
    ]
    return Document("Drift", f"{subtitle}; {span}", sections)


def _figure(
    columns: pd.DataFrame, periods: pd.DataFrame, findings: Sequence[str], horizon: str, level: float
) -> Section:
    caption = (
        f"Population stability index of each column by period, and predictions at {horizon} with "
        f"{100 * level:g} % confidence intervals. Observed over expected above 1: too few events were "
        "predicted."
    )
    words = f"Drift by period. {'; '.join(findings) or 'No drift was found'}."
    return Section("By period", [Picture("drift", plot_drift(columns, periods, horizon), caption, words)])


def _predictions(periods: pd.DataFrame, horizon: str, level: float) -> Section:
    competing = isinstance(periods.index, pd.MultiIndex)
    measures = [("risk", "mean risk")]
    if "events" in periods:
        if not competing:
            measures.append(("oe_hazard", "O/E events"))
        measures += [("oe_ratio", f"O/E at {horizon}"), ("concordance", "concordance")]
    counts = [
        name
        for name in ("n", "events", "expected")
        if name in periods and not (competing and name == "expected")
    ]
    limits = f"{100 * level:g} %"
    header = ["", *counts, *(text for _, title in measures for text in (title, limits))]
    body = []
    for key, row in periods.iterrows():
        cells = [Cell(", ".join(key) if isinstance(key, tuple) else str(key))]
        cells += [Cell(number(row[name], 1) if name == "expected" else f"{row[name]:.0f}") for name in counts]
        for name, _ in measures:
            cells += [Cell(number(row[name])), Cell(_limits(row[f"{name}_lower"], row[f"{name}_upper"]))]
        body.append(cells)
    blocks: list[Block] = [Table("", header, body)]
    if "reason" in periods:
        reasons = periods["reason"][periods["reason"] != ""]
        texts = [
            f"{', '.join(key) if isinstance(key, tuple) else key}: {text}" for key, text in reasons.items()
        ]
        blocks += [Bullets(texts)] if texts else []
    return Section("Predictions", blocks)


def _limits(lower: float, upper: float) -> str:
    return ABSENT if pd.isna(lower) else f"{number(lower)} to {number(upper)}"


def _columns(columns: pd.DataFrame) -> Section:
    """A row for each column: its period with the largest stability index."""
    order = columns["psi"].fillna(np.inf)  # of rows that all have new categories
    worst = columns.loc[order.groupby(level="column", sort=False).idxmax()]
    worst = worst.sort_values("psi", ascending=False, kind="stable", na_position="first")
    shown = worst.iloc[:_COLUMNS_SHOWN]
    several = len(columns.index.get_level_values("period").unique()) > 1
    table = _period(shown.droplevel("period"), shown.index.get_level_values("period") if several else None)
    blocks: list[Block] = [table]
    if several:
        blocks.insert(0, Paragraph("Each column in the period with its largest stability index."))
    if len(worst) > len(shown):
        blocks.append(Paragraph(f"And {len(worst) - len(shown)} columns with a smaller stability index."))
    return Section("Columns", blocks)


def _all_periods(columns: pd.DataFrame, names: Sequence[str]) -> Section:
    """The tables of all periods."""
    tables = {name: pd.DataFrame(columns.xs(name, level="period")) for name in names}
    parts: list[Block] = [Section(name, [_period(_largest(table))]) for name, table in tables.items()]
    return Section("Columns by period", parts, folded=True)


def _largest(table: pd.DataFrame) -> pd.DataFrame:
    """The rows with the largest stability index, largest first."""
    return table.sort_values("psi", ascending=False, kind="stable").iloc[:_COLUMNS_SHOWN]


def _period(table: pd.DataFrame, periods: pd.Index | None = None) -> Table:
    header = [
        "",
        "stability index",
        "limit",
        "missing",
        "in training",
        "outside range",
        "unseen category",
        "finding",
    ]
    body = [
        [
            Cell(str(name)),
            Cell(number(row["psi"], 2)),
            Cell(number(row["limit"], 2)),
            *(Cell(_percent(row[part])) for part in ("missing", "training_missing", "outside", "unseen")),
            Cell(row["finding"] or ABSENT),
        ]
        for name, row in table.iterrows()
    ]
    if periods is not None:
        header.insert(1, "period")
        body = [[first, Cell(str(name)), *cells] for (first, *cells), name in zip(body, periods, strict=True)]
    return Table("", header, body, left=frozenset({len(header) - 1}))


def _percent(share: float) -> str:
    return ABSENT if pd.isna(share) else f"{100 * share:.1f} %"


def _notes(horizon: str, level: float) -> list[str]:
    chance = f"{100 * (1 - level):g} %"
    return [
        "Population stability index: sum over the bins of a column of (q - p) ln(q / p), with the shares p "
        "of the training rows and q of the period. Bins are tenths of the training rows or single values, "
        "categories, and missing cells.",
        "Limit: without drift the index exceeds it, of any column in any period, with a probability of at "
        f"most {chance}. Up to .1 is no finding, however many rows there are.",
        f"O/E events: events up to {horizon} over the sum of predicted cumulative hazards while rows were "
        f"observed, with exact Poisson limits. O/E at {horizon}: observed over mean predicted risk, of a "
        "period that was followed so long.",
        f"Version: sstorch {__version__}.",
    ]
