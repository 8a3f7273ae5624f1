"""Groups and effects in sentences, as a paper reports them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from sstorch.data.time_unit import duration
from sstorch.fitted.tree import FittedTree
from sstorch.reading.digits import number_text
from sstorch.reading.nodes import KM_MEDIAN, group_of, in_order, shown_leaves
from sstorch.reading.rules import GateRule, conditions
from sstorch.reading.texts import events_text, rows_text

# Contrasts of a hazard that a summary has.
_MOST_CONTRASTS = 8


def group_sentences(
    tree: FittedTree, nodes: pd.DataFrame, rules: Mapping[int, GateRule], n_terms: int | None
) -> list[str]:
    """A sentence on each group that has rows, longest survival first: see :meth:`SoftEstimator.describe`."""
    root, sentences = nodes.iloc[0], []
    ordered, named = in_order(tree, shown_leaves(nodes)), group_rules(tree, nodes, rules, n_terms)
    for leaf, (_, row) in zip(ordered, nodes.loc[ordered].iterrows(), strict=True):
        rule = named.get(group_of(tree, leaf))
        who = f"{rule}: {_share(row, root)}" if rule else f"all {rows_text(root)}"
        facts = [who, events_text(tree, row), *_outcome(tree, row)]
        sentences.append(f"Group {group_of(tree, leaf)}: {', '.join(facts)}")
    return sentences


def _share(row: pd.Series, root: pd.Series) -> str:
    """Rows of a group, and subjects where these have several rows, of all."""
    rows, *subjects = (
        f"{int(row[name])} of {int(root[name])} {name}" for name in ("rows", "subjects") if name in row
    )
    return rows + "".join(f" ({text})" for text in subjects)


def group_rules(
    tree: FittedTree, nodes: pd.DataFrame, rules: Mapping[int, GateRule], n_terms: int | None
) -> dict[int, str]:
    """Rule of each group with rows, by number."""
    ways = shown_leaves(nodes)
    return {group_of(tree, leaf): conditions(path, rules, n_terms) for leaf, path in ways.items() if path}


def _outcome(tree: FittedTree, row: pd.Series) -> list[str]:
    """Nonparametric estimates of the rows of a node."""
    if tree.competing:
        found = [
            (cause, _at_times(row, rf"AJ F\(([^)]*)\) {re.escape(cause)}", tree)) for cause in tree.causes
        ]
        return [f"cumulative incidence of {cause} {text}" for cause, text in found if text]
    survival = _at_times(row, r"KM S\(([^)]*)\)", tree)
    facts = [f"Kaplan-Meier survival {survival}"] if survival else []
    if tree.time_varying or KM_MEDIAN[0] not in row:  # times are intervals
        return facts
    value, lower, upper = row[list(KM_MEDIAN)]
    if math.isnan(value):
        return [*facts, "median not reached"]
    limits = "" if math.isnan(lower) else f" ({lower:.4g} to {_reached(upper)})"
    return [*facts, f"median {duration(value, tree.time_unit)}{limits}"]


def _at_times(row: pd.Series, pattern: str, tree: FittedTree) -> str:
    """Estimates of a quantity with their limits at the times that a node table has."""
    parts: list[str] = []
    for name in map(str, row.index):
        time = re.fullmatch(pattern, name)
        if time is None or math.isnan(row[name]):
            continue
        estimate, quantity = name.split(" ", 1)
        of_cause = estimate == "AJ"  # whose name is last
        limits = [
            row.get(f"AJ {side} {quantity}" if of_cause else f"{name} {side}", math.nan)
            for side in ("lower", "upper")
        ]
        level = "" if "(" in "".join(parts) else "95 % CI "
        within = f" ({level}{limits[0]:.3f} to {limits[1]:.3f})" if limits[0] < limits[1] else ""
        at = f"at {duration(float(time[1]), tree.time_unit)}" if tree.time_unit else f"at time {time[1]}"
        parts.append(f"{row[name]:.3f}{within} {at}")
    return " and ".join(parts)


def _reached(value: float) -> str:
    return "not reached" if math.isnan(value) else f"{value:.4g}"


def contrast_lines(tree: FittedTree, nodes: pd.DataFrame, table: pd.DataFrame) -> list[str]:
    """Contrasts of covariates with confidence intervals, the largest first, hazard by hazard."""
    lines, beyond = list[str](), False
    places = np.array(list(shown_leaves(nodes))) - len(tree.group_numbers)
    shown = set(tree.group_numbers[places].tolist())
    ratios = {cause: own.family.constant_ratio for cause, own in tree.hazards.items()}
    for cause in tree.causes:
        of_cause = table.xs(cause, level="cause") if tree.competing else table
        on = f" on the hazard of {cause}" if tree.competing else ""
        name = ratios[cause] or "difference of the linear predictor"
        name += " of the event" * (name == "odds ratio" and not tree.competing)
        several = "groups" in of_cause.index.names
        labels = of_cause.index.unique("groups") if several else [", ".join(map(str, sorted(shown)))]
        for label in labels:
            own = [number for number in map(int, label.split(", ")) if number in shown]
            if not own:
                continue
            part = of_cause.xs(label, level="groups") if several else of_cause
            where = f" in group{'s' * (len(own) > 1)} {' and '.join(map(str, own))}"
            where = where if len(own) < len(shown) else " within every group" * (len(own) > 1)
            known = part[part["lower"].notna() & part["change"].gt(0)][:_MOST_CONTRASTS]
            lines.append(f"Effects{on}{where}: {name} (95 % confidence interval)")
            for term, row in known.iterrows():
                value, *ends = (
                    number_text(row[name], 3) for name in (ratios[cause] or "estimate", "lower", "upper")
                )
                found = f"{value} ({' to '.join(ends)})"
                lines.append(f"  {term} {row['contrast']}: {found}")
            if hidden := len(part) - len(known):
                lines.append(f"  ({hidden} smaller or not estimable)")
        if several and np.ptp(of_cause["change"].unstack("groups").to_numpy(), axis=1).max() == 0:
            lines.append(
                f"  No difference of effects{on} between groups was found; the intervals allow for one"
            )
        beyond |= several
    if beyond:
        lines.append(
            "Contrasts are of values of all rows; where a group lacks a value, they are extrapolated"
        )
    return lines
