"""The tables of a paper: groups with their hazard ratios, and scores of held-out rows with intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sstorch._types import IntArray
from sstorch.bench.paper.methods import gap
from sstorch.bench.report.run import Run, interval_table
from sstorch.data import SurvivalData
from sstorch.document import ABSENT, Cell, Table, number
from sstorch.exceptions import DataError
from sstorch.groups.table import interval_text, table_of, usual_horizons
from sstorch.metrics.checks import half_width
from sstorch.metrics.cox import fit_cox
from sstorch.metrics.outcome import Observed
from sstorch.metrics.robust import covariance_of, events_recur
from sstorch.reading.nodes import group_of, shown_leaves
from sstorch.reading.rules import conditions


def group_table(run: Run) -> Table:
    """Rule, rows, events, survival at two horizons and hazard ratio of each group, with 95 % limits."""
    model, data = run.model, run.data
    times, rows = usual_horizons(model), data.joined()
    table = table_of(model, rows, times) if data.intervals is None else interval_table(run, times)
    tree, ways = model._tree, shown_leaves(model.node_table_)
    rules: dict[object, str] = {
        group_of(tree, leaf): conditions(way, model._gate_rules, None) for leaf, way in ways.items()
    }
    names = list(dict.fromkeys(str(name) for name in table.columns.get_level_values(0)))
    if data.time_varying:
        names.remove("median")  # of subjects who change their group there is none
    header = ["group", "rule", *(f"{name},{run.in_unit}" if name == "median" else name for name in names)]
    lines = [
        [Cell(f"{group}"), Cell(rules[group] or "all"), *(_cell(row[name]) for name in names)]
        for group, row in table.iterrows()
    ]
    ratios = hazard_ratios(rows, model.apply(rows.frame)) if len(lines) > 1 else None
    if ratios is not None:
        header.append("hazard ratio")
        for line, (_, row) in zip(lines, ratios.iterrows(), strict=True):
            known = np.isfinite(row["lower"])
            line.append(
                Cell(interval_text(*row) if known else "1 (reference)" if row["value"] == 1 else ABSENT)
            )
    estimate = "Aalen-Johansen" if data.causes is not None else "Kaplan-Meier"
    estimate = estimate if data.intervals is None else "Turnbull"
    in_unit = f", t in{run.in_unit}" if run.in_unit else ""
    caption = (
        f"Groups of the model trained on all rows, longest survival first; {estimate} estimates"
        f"{' with 95 % confidence limits' * (data.intervals is None)}{in_unit}. "
        "The rules were chosen on these rows: differences between groups are too large."
    )
    return Table(caption, header, lines, left=frozenset({1}))


def _cell(values: pd.Series) -> Cell:
    """A count, or an estimate with its limits where it has some."""
    if "" in values:
        return Cell(f"{values['']:.0f}")
    if np.isnan(values["estimate"]):
        return Cell(ABSENT)
    ends = [values[name] for name in ("lower", "upper") if name in values]
    limits = [] if np.isnan(ends).all() else [_text(end) for end in ends]
    return Cell(_text(values["estimate"]) + (f" ({' to '.join(limits)})" if limits else ""))


def _text(value: float) -> str:
    """A probability, or a time; infinite if it is not reached."""
    if np.isinf(value):
        return "not reached"
    return number(value) if value <= 1 or np.isnan(value) else f"{value:.4g}"


def hazard_ratios(data: SurvivalData, group: IntArray) -> pd.DataFrame | None:
    """Hazard ratios of groups compared with the first, by a Cox model of the groups alone, with 95 % limits.

    Limits are robust (Lin and Wei, 1989), by subject, where rows have weights or subjects several events;
    rows of a subject with one event need no allowance.

    Args:
        data: rows of one event, exact or right-censored.
        group: of each row, (n,).

    Returns:
        A row for each group with ``value``, ``lower`` and ``upper``; limits of the first are NaN. None with
        competing causes, with intervals, or if the model has no finite maximum.
    """
    if data.causes is not None or data.intervals is not None:
        return None
    numbers = np.unique(group)
    x = (group[:, None] == numbers[1:]).astype(np.float64)
    entry = data.entry if data.entry.any() else None
    try:
        rows = Observed(data.time, data.event, entry, data.uneven_weight, data.subject)
        found = fit_cox(rows, x)
    except DataError:
        return None  # a group without an event, of which the table shows the count
    covariance = found.covariance
    if rows.weight is not None or events_recur(rows):
        covariance = covariance_of(found.influence, rows.id)
    half = half_width(0.95) * np.sqrt(np.diag(covariance))
    middle = found.coefficients
    ratios = np.exp(np.column_stack([middle, middle - half, middle + half]))
    index = pd.Index(numbers, name="group")
    return pd.DataFrame(np.vstack([[1.0, np.nan, np.nan], ratios]), index, ["value", "lower", "upper"])


def checklist_table(items: list[tuple[str, str, str]], reported: dict[str, str]) -> Table:
    """The items of TRIPOD+AI, where the draft has them, and what is left to write.

    Args:
        items: number, topic, and what the authors have to report.
        reported: where the draft has an item, by number.
    """
    body = [
        [Cell(f"{item} {topic}"), Cell(reported.get(item, ABSENT)), Cell("" if item in _WHOLE else gap(left))]
        for item, topic, left in items
    ]
    header = ["item", "in this draft", "to be written or checked"]
    return Table("", header, body, left=frozenset({1, 2}))


# Items of which a run knows all, or which are of other studies.
_WHOLE = frozenset({"4", "11", "12a", "12b", "12c", "12e", "12f", "16", "20c", "21", "24"})
