"""A tree as text: rules, sentences on groups and effects, tables, graphs, HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

import numpy as np
import pandas as pd

from sstorch.checks import counted, sentence_case
from sstorch.data.time_unit import CONSTANT_COVARIATES, duration, median_text, rows_of_subjects
from sstorch.fitted.tree import FittedTree
from sstorch.groups.table import groups_text, shown_table, survival_texts
from sstorch.inference.contrasts import known_categories
from sstorch.nn import SoftTree
from sstorch.reading.nodes import Reading, group_of
from sstorch.reading.rules import number_text
from sstorch.reading.scores import leaf_slopes, to_numbers

# Of a summary: terms of a rule, slopes, groups up to which it has slopes that differ, contrasts of a hazard.
_SUMMARY_TERMS, _SUMMARY_SLOPES, _SUMMARY_GROUPS, _MOST_CONTRASTS = 4, 8, 4, 8


def describe_tree(tree: FittedTree, reading: Reading, slopes: bool) -> str:
    """The rules of a tree, with `slopes` those of its groups, and a table of the groups, as text."""
    module, root, shown = tree.module, reading.root, reading.in_order(tree)
    lines = [f"Details: {_kind(tree)}, {rows_text(root)}, {events_text(tree, root)}"]
    lines.append(as_text(tree, reading, _SUMMARY_TERMS))
    has_gates = module.topology.depth > 0
    if len(shown) == 1 and has_gates:
        lines.append("No gate divides the training rows: one group has them all")
    if tree.preprocessor.strata is not None:
        lines += ["", *(text for own in tree.hazards.values() for text in _baselines(tree, own))]
    lines += effect_lines(tree, reading) if slopes else []
    order = ", longest survival first" if len(shown) > 1 else ""
    placed, given = (", which placed the gates" * has_gates, ", given the gates" * has_gates)
    where = "; shapes are those at x = 0" if module.family.ancillary == "linear" else ""
    if len(shown) > 1 and tree.shares_slopes(shown):
        where += "; level is the intercept minus that of the first"
    if tree.time_varying:
        where += f"; predictions are from time zero {CONSTANT_COVARIATES}"
    unit = f", t in {tree.time_unit}" if tree.time_unit else ""
    limits = f"; limits are those of 95 %{given}" if "estimate" in reading.groups.columns.unique(1) else ""
    lines += ["", f"From the training rows{placed}{order}{unit}{limits}{where}"]
    lines.append(groups_text(tree_groups(tree, reading)))
    constants = {own.family.describe(float(own.log_time_scale.exp())) for own in tree.hazards.values()}
    return "\n".join([*lines, *sorted(filter(None, constants))])


def _kind(tree: FittedTree) -> str:
    """Depth and families of a tree."""
    families = dict.fromkeys(own.family.name for own in tree.hazards.values())
    depth = tree.module.topology.depth
    return f"depth {depth}, " * (depth > 0) + f"{' and '.join(families)} leaves"


def effect_lines(tree: FittedTree, reading: Reading) -> list[str]:
    """Change of each hazard over the training range, largest first; none where many groups differ."""
    shown, lines = reading.in_order(tree), list[str]()
    share = tree.shares_slopes(shown)
    if not share and len(shown) > _SUMMARY_GROUPS:
        return []
    groups, table = [group_of(tree, leaf) for leaf in shown[: 1 if share else None]], leaf_slopes(tree)
    names = ["every group"] if share else [f"group {group}" for group in groups]
    for cause, own in tree.hazards.items():
        ratio, of = own.family.constant_ratio, f" of the hazard of {cause}" * tree.competing
        what = sentence_case(ratio or "change of the linear predictor")
        lines += ["", f"{what}{of} over the training range, largest first"]
        effects = (table.loc[cause] if tree.competing else table)["effect"].unstack("group")[groups]
        largest = effects.abs().max(axis=1)
        order = largest[largest > 0].sort_values(ascending=False, kind="stable").index
        if order.empty:
            lines.append("nothing")
            continue
        numbers = (effects.map(np.exp) if ratio else effects).set_axis(names, axis=1)
        numbers = numbers.loc[order[:_SUMMARY_SLOPES]].rename_axis(index=None)
        lines += numbers.to_string(float_format=lambda value: f"{value:.4g}").splitlines()
        hidden = len(order) - len(numbers)
        lines += [f"({hidden} smaller)"] if hidden else []
    return lines


def rows_text(row: pd.Series) -> str:
    """Rows of a row of the node table, and their subjects where these have several."""
    return rows_of_subjects(row["rows"], row.get("subjects"))


def events_text(tree: FittedTree, row: pd.Series) -> str:
    """Events of a row of the node table, of each cause where they compete."""
    if tree.competing:
        return ", ".join(f"{counted(row[f'events {cause}'], 'event')} of {cause}" for cause in tree.causes)
    return counted(row["events"], "event")


def tree_groups(tree: FittedTree, reading: Reading) -> pd.DataFrame:
    """The table of groups with rows, with shared slopes also their levels; without shapes of strata."""
    shown = reading.in_order(tree)
    table = reading.groups.loc[[group_of(tree, leaf) for leaf in shown]]
    if tree.competing:
        table = table[[name for name in table.columns.to_list() if not name[0].startswith(("median", "S("))]]
    if tree.preprocessor.strata is not None:
        shapes = [name for own in tree.hazards.values() for name in own.family.shape_names]
        table = table.drop(columns=shapes, level="quantity", errors="ignore")
    if tree.shares_slopes(shown) and len(shown) > 1:
        hazards = tree.hazards.values()
        levels = np.stack([to_numbers(own.leaf_parameters(shown).intercept) for own in hazards], axis=1)
        table = table.copy()
        table["level", ""] = (levels - levels[0]).ravel()
    return table


def _baselines(tree: FittedTree, module: SoftTree) -> list[str]:
    """Level and shapes of each stratum, as lines of text; levels are relative to the first stratum."""
    preprocessor, leaf = tree.preprocessor, module.leaf(1)
    name, features = str(preprocessor.strata), preprocessor.leaf_features
    places = [j for j, feature in enumerate(features) if feature.columns == (name,)]
    table = {"level": to_numbers(leaf.slope)[places]}
    if leaf.shape_slope is not None:
        shapes = to_numbers(leaf.shape)[:, None] + to_numbers(leaf.shape_slope)[:, places]
        table |= dict(zip(module.family.shape_names, shapes, strict=True))
    known = pd.DataFrame(table, index=pd.Index(preprocessor.schema.categories[name], name=name))
    known = known.loc[known_categories(preprocessor, name)]
    known["level"] -= known["level"].iloc[0]
    text = known.to_string(float_format=lambda value: f"{value:.3f}")
    return [f"Baseline of each stratum of {name}", *text.splitlines()]


def as_text(tree: FittedTree, reading: Reading, n_terms: int | None) -> str:
    """Rules, indented by level, above a text for each leaf that has rows."""
    leaves = leaf_texts(tree, reading)

    def lines(node: int, lead: str, indent: str) -> list[str]:
        node = reading.shown(node)
        if node in leaves:
            return [lead + leaves[node]]
        head = f"{lead}[{node}] {reading.nodes['rows'][node]} rows: {reading.rules[node].text(n_terms)}"
        if node in reading.longer:
            head += f"; longer survival if {reading.longer[node]}"
        yes = lines(2 * node, f"{indent}|- yes: ", f"{indent}|  ")
        return [head, *yes, *lines(2 * node + 1, f"{indent}`- no:  ", f"{indent}   ")]

    return "\n".join(lines(1, "", ""))


def leaf_texts(tree: FittedTree, reading: Reading) -> dict[int, str]:
    """By node, a line on each group with rows: number, rows, events, predicted (event-free) median."""
    numbers = {leaf: group_of(tree, leaf) for leaf in reading.leaves}
    predicted = reading.groups.loc[:, (slice(None), "model")].droplevel("statistic", axis=1)
    predicted = predicted.groupby(level="group").first().loc[list(numbers.values())]
    lines = {}
    for (leaf, number), text in zip(numbers.items(), survival_texts(predicted, tree.time_unit), strict=True):
        row = reading.nodes.loc[[leaf]].iloc[0]
        reached = "" if tree.time_varying else f", predicted {'event-free ' * tree.competing}{text}"
        lines[leaf] = f"group {number}: {rows_text(row)}, {events_text(tree, row)}{reached}"
    return lines


def tree_html(tree: FittedTree, reading: Reading, title: str) -> str:
    """HTML of a tree, in the colours of the page around it."""
    root = reading.root
    head = f"{title}: {_kind(tree)}, {rows_text(root)}, {events_text(tree, root)}"
    table = shown_table(tree_groups(tree, reading)).reset_index().to_html(index=False, border=0)
    name = "Aalen-Johansen incidences F(t)" if tree.competing else "Kaplan-Meier estimates"
    note = f"{name} of the rows of each group with 95 % confidence limits, and mean predictions (model)"
    note += f", t in {tree.time_unit}" if tree.time_unit else ""
    note += f"; predictions are from time zero {CONSTANT_COVARIATES}" if tree.time_varying else ""
    rules = escape(as_text(tree, reading, _SUMMARY_TERMS))
    note = f"<p><small>{escape(note)}</small></p>"
    return f"<p><b>{escape(head)}</b></p><pre>{rules}</pre>{table}{note}"


def group_sentences(
    table: pd.DataFrame,
    rules: Mapping[int, str],
    root: pd.Series,
    time_unit: str | None,
    time_varying: bool = False,
) -> list[str]:
    """A sentence on each group with rows of a table of groups: rule, rows of those of `root`, estimates."""
    sentences, competing = [], table.index.nlevels > 1
    for group in table.index.unique("group"):
        own = table.xs(group, level="group") if competing else table.loc[[group]]
        row = own.iloc[0]
        counts = {name: int(row[name, ""]) for name in ("rows", "subjects") if (name, "") in own}
        if not counts["rows"]:
            continue
        share, *subjects = (f"{count} of {int(root[name])} {name}" for name, count in counts.items())
        share += "".join(f" ({text})" for text in subjects)
        facts = [f"{rules[group]}: {share}" if group in rules else f"all {rows_text(root)}"]
        for cause, count in own["events", ""].items():
            facts.append(counted(int(count), "event") + (f" of {cause}" if competing else ""))
        for cause, each in own.iterrows():
            if text := _at_times(each, time_unit):
                name = f"cumulative incidence of {cause}" if competing else "Kaplan-Meier survival"
                facts.append(f"{name} {text}")
        if not competing and not time_varying and ("median", "estimate") in own:
            limits = (float(row["median", part]) for part in ("estimate", "lower", "upper"))
            facts.append(_median_text(*limits, time_unit=time_unit))
        sentences.append(f"Group {group}: {', '.join(facts)}")
    return sentences


def _median_text(value: float, lower: float, upper: float, *, time_unit: str | None) -> str:
    text = median_text(value, time_unit)
    reached = f"{upper:.4g}" if math.isfinite(upper) else "not reached"
    return f"{text} ({lower:.4g} to {reached})" if math.isfinite(value) and math.isfinite(lower) else text


def _at_times(row: pd.Series, time_unit: str | None) -> str:
    """Estimates with their limits at the first and the last time of a row of a table of groups."""
    known = [name for name, part in row.index if part == "estimate" and name.startswith(("S(", "F("))]
    parts: list[str] = []
    for name in dict.fromkeys([*known[:1], *known[-1:]]):
        value, lower, upper = row[name][["estimate", "lower", "upper"]]
        if math.isnan(value):
            continue
        level = "" if "(" in "".join(parts) else "95 % CI "
        within = f" ({level}{lower:.3f} to {upper:.3f})" if lower < upper else ""
        time = name[2:-1]
        at = f"at {duration(float(time), time_unit)}" if time_unit else f"at time {time}"
        parts.append(f"{value:.3f}{within} {at}")
    return " and ".join(parts)


def contrast_lines(tree: FittedTree, reading: Reading, table: pd.DataFrame) -> list[str]:
    """Contrasts of covariates with confidence intervals, the largest first, hazard by hazard."""
    lines, beyond = list[str](), False
    shown = {group_of(tree, leaf) for leaf in reading.leaves}
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
