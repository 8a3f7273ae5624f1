"""A tree as text: rules, sentences on groups and effects, tables, graphs, HTML."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from html import escape

import numpy as np
import pandas as pd

from sstorch.checks import counted
from sstorch.data.subjects import CONSTANT_COVARIATES, rows_of_subjects
from sstorch.data.time_unit import duration
from sstorch.fitted.tree import FittedTree
from sstorch.groups.table import interval_text, short_number, survival_texts
from sstorch.nn import SoftTree
from sstorch.reading.nodes import (
    KM_MEDIAN,
    group_of,
    in_order,
    longer_sides,
    shown_leaves,
    shown_node,
)
from sstorch.reading.rules import GateRule, conditions
from sstorch.reading.scores import Score, against_modes, leaf_rows, leaf_slopes, to_numbers
from sstorch.reading.wording import number_text

# Terms of a rule, and slopes, that a summary writes out, the others are counted; groups up to which it has
# slopes that differ.
_SUMMARY_TERMS, _SUMMARY_SLOPES, _SUMMARY_GROUPS = 4, 8, 4
# Contrasts of a hazard that a summary has.
_MOST_CONTRASTS = 8


def describe_tree(
    tree: FittedTree,
    nodes: pd.DataFrame,
    rules: Mapping[int, GateRule],
    slopes: bool,
) -> str:
    """The rules of a tree, the slopes of its groups, and a table of the groups, as text.

    A gate sends a row left where its rule holds. Sums are in original units, largest terms first (by the
    effect of the feature's whole training range); a category counts 1 if it applies. Gates that send all
    training rows one way, and leaves without rows, are excluded. Of competing causes the table of the groups
    is :func:`sstorch.validation.group_table`. Without ``slopes`` those of the groups are excluded.
    """
    module, families = tree.module, [own.family.name for own in tree.hazards.values()]
    leaves = families[0] if len(set(families)) == 1 else " and ".join(families)
    depth = f"depth {module.topology.depth}, " * (module.topology.depth > 0)
    root = nodes.iloc[0]
    lines = [f"Details: {depth}{leaves} leaves, {rows_text(root)}, {events_text(tree, root)}"]
    lines.append(as_text(tree, nodes, rules, _SUMMARY_TERMS))
    shown = in_order(tree, shown_leaves(nodes))
    if len(shown) == 1 and module.topology.depth:
        lines.append("No gate divides the training rows: one group has them all")
    share = tree.shares_slopes(shown)
    if tree.preprocessor.strata is not None:
        lines += ["", *(text for own in tree.hazards.values() for text in _baselines(tree, own))]
    lines += effect_lines(tree, nodes) if slopes else []
    if tree.competing:
        return "\n".join(lines)
    text = group_rows(tree, nodes).to_string(
        index=False, float_format=lambda value: f"{value:.3f}", na_rep="-"
    )
    constants = module.family.describe(float(module.log_time_scale.exp()))
    where = "; shapes are those at x = 0" if module.family.ancillary == "linear" else ""
    where += "; level is the intercept minus that of the first" if share and len(shown) > 1 else ""
    order = ", longest survival first" if len(shown) > 1 else ""
    in_unit = f", t in {tree.time_unit}" if tree.time_unit else ""
    lines += ["", f"Groups{order}; S(t) is the mean predicted survival of their rows{in_unit}{where}"]
    if tree.time_varying:
        lines.append(f"S(t) and median are from time zero {CONSTANT_COVARIATES}")
    has_gates = module.topology.depth > 0
    placed = ", which have placed the gates" * has_gates
    given = ", given the gates" * has_gates
    if KM_MEDIAN[0] in nodes:
        lines.append(f"KM is Kaplan-Meier of these rows{placed}; limits are those of 95 %{given}")
    lines.append(text)
    return "\n".join([*lines, constants] if constants else lines)


def effect_lines(tree: FittedTree, nodes: pd.DataFrame) -> list[str]:
    """Slopes of each hazard, without standard errors; none where groups are many and theirs differ."""
    shown, lines = in_order(tree, shown_leaves(nodes)), []
    share = tree.shares_slopes(shown)
    for cause in tree.causes if share or len(shown) <= _SUMMARY_GROUPS else ():
        own = tree.of_cause(cause) if tree.competing else tree
        hazard = f"Hazard of {cause} " * tree.competing
        where = ("Within every group" if len(shown) > 1 else "In the group") if share else "Group by group"
        lines += [
            "",
            f"{hazard}{where.lower() if hazard else where}, what changes most over the training range first",
        ]
        lines += slope_lines(own, shown[0]) if share else own_slope_lines(own, shown)
    return lines


def rows_text(row: pd.Series) -> str:
    """Rows of a row of the node table, and their subjects where these have several."""
    return rows_of_subjects(row["rows"], row.get("subjects"))


def events_text(tree: FittedTree, row: pd.Series) -> str:
    """Events of a row of the node table, of each cause where they compete."""
    if tree.competing:
        return ", ".join(f"{counted(row[f'events {cause}'], 'event')} of {cause}" for cause in tree.causes)
    return counted(row["events"], "event")


def group_rows(tree: FittedTree, nodes: pd.DataFrame) -> pd.DataFrame:
    """Values of a summary for each group with rows, longest survival first; with shared slopes also levels.

    All columns of the node table are in it, in their order, Kaplan-Meier's median and its limits as one text.
    """
    shown = in_order(tree, shown_leaves(nodes))
    table = leaf_rows(tree, nodes).loc[[group_of(tree, leaf) for leaf in shown]].reset_index()
    events = [f"events {cause}" for cause in tree.causes] if tree.competing else ["events"]
    first = ["group", "rows", *(["subjects"] if "subjects" in table else []), *events]
    if tree.preprocessor.strata is not None:  # shapes are those of strata
        table = table.drop(columns=list(tree.module.family.shape_names), errors="ignore")
    elif not tree.competing:
        first += tree.module.family.shape_names
    if tree.shares_slopes(shown) and len(shown) > 1 and not tree.competing:
        intercepts = to_numbers(tree.module.leaf_parameters(shown).intercept)
        table["level"] = intercepts - intercepts[0]
        first.insert(3, "level")
    ends = [name for name in table if re.match(r"KM S\(.*(lower|upper)$|AJ (lower|upper) ", str(name))]
    table = table.drop(columns=ends)
    if KM_MEDIAN[0] in table:  # of interval-censored rows there is none
        limits = table[list(KM_MEDIAN)].itertuples(index=False)
        table = table.drop(columns=list(KM_MEDIAN[1:])).assign(
            **{KM_MEDIAN[0]: [interval_text(*each) for each in limits]}
        )
    return table[[*first, *table.columns.difference(first, sort=False)]]


def _baselines(tree: FittedTree, module: SoftTree) -> list[str]:
    """Level and shapes of each stratum, as lines of text; levels are relative to the first stratum."""
    preprocessor = tree.preprocessor
    name, leaf = preprocessor.strata, module.leaf(1)
    columns = [feature.columns for feature in preprocessor.leaf_features]
    places = [j for j, own in enumerate(columns) if own == (name,)]
    origins = zip(preprocessor.schema.origins, preprocessor.scale_, strict=True)
    words = {word: bool(scale) for (column, word), scale in origins if column == name}
    level = to_numbers(leaf.slope)[places]
    table = {"level": level - level[list(words.values()).index(True)]}
    if leaf.shape_slope is not None:
        shapes = to_numbers(leaf.shape)[:, None] + to_numbers(leaf.shape_slope)[:, places]
        table |= dict(zip(module.family.shape_names, shapes, strict=True))
    known = pd.DataFrame(table, index=pd.Index(list(words), name=name))[list(words.values())]
    text = known.to_string(float_format=lambda value: f"{value:.3f}")
    return [f"Baseline of each stratum of {name}", *text.splitlines()]


def slope_lines(tree: FittedTree, leaf: int) -> list[str]:
    """The slopes of a leaf, the largest effects first, as lines of text.

    The most frequent category of a column in the training rows is its reference.
    """
    family = tree.module.family
    table = against_modes(tree, Score.of_leaf(tree.preprocessor, to_numbers(tree.module.leaf(leaf).slope)))
    table = table[table["effect"] != 0].drop(columns="column")
    if family.constant_ratio is not None:
        table[family.constant_ratio] = np.exp(table["coefficient"])
        table["over its range"] = np.exp(table.pop("effect"))
    if table.empty:
        return ["nothing"]
    text = table[:_SUMMARY_SLOPES].to_string(float_format=lambda value: f"{value:.4g}")
    # pandas gives the name of the index a line of its own.
    names, _, *rows = text.splitlines()
    hidden = len(table) - _SUMMARY_SLOPES
    return [names, *rows, *([f"({hidden} smaller)"] if hidden > 0 else [])]


def own_slope_lines(tree: FittedTree, leaves: list[int]) -> list[str]:
    """Lines of text with the change by each column in each group over its training range, largest first."""
    table, ratio = leaf_slopes(tree), tree.module.family.ratio
    ratio = ratio if ratio in table else None
    effects = table["effect"].unstack("group")[[group_of(tree, leaf) for leaf in leaves]].add_prefix("group ")
    largest = effects.abs().max(axis=1).sort_values(ascending=False, kind="stable")
    effects = effects.loc[largest.index].rename_axis(index=None, columns=None)
    shown = effects[effects.ne(0).any(axis=1)][:_SUMMARY_SLOPES]
    if shown.empty:
        return ["nothing"]
    about = f"{ratio} over its range" if ratio else "change of the linear predictor over its range"
    text = (shown.map(np.exp) if ratio else shown).to_string(float_format=lambda value: f"{value:.4g}")
    hidden = int(effects.ne(0).any(axis=1).sum()) - len(shown)
    return [about, *text.splitlines(), *([f"({hidden} smaller)"] if hidden else [])]


def as_text(tree: FittedTree, nodes: pd.DataFrame, rules: Mapping[int, GateRule], n_terms: int | None) -> str:
    """Rules, indented by level, above a text for each leaf that has rows."""
    leaves, longer = leaf_texts(tree, nodes), longer_sides(nodes)

    def lines(node: int, lead: str, indent: str) -> list[str]:
        node = shown_node(nodes, node)
        if node in leaves:
            return [lead + leaves[node]]
        head = f"{lead}[{node}] {nodes['rows'][node]} rows: {rules[node].text(n_terms)}"
        if node in longer:
            head += f"; longer survival if {longer[node]}"
        yes = lines(2 * node, f"{indent}|- yes: ", f"{indent}|  ")
        return [head, *yes, *lines(2 * node + 1, f"{indent}`- no:  ", f"{indent}   ")]

    return "\n".join(lines(1, "", ""))


def as_graphviz(
    tree: FittedTree, nodes: pd.DataFrame, rules: Mapping[int, GateRule], n_terms: int | None
) -> str:
    """A directed graph; the first child is where the rule holds."""
    leaves, longer = shown_leaves(nodes), longer_sides(nodes)
    gates = sorted({node for path in leaves.values() for node, _ in path})
    lines = ["digraph tree {", '  node [shape=box, style=rounded, fontname="Helvetica"];']
    for node in gates:
        size = f"{nodes['rows'][node]} rows"
        lines.append(f"  {node} [label={_quoted(rules[node].text(n_terms), size)}];")
    for node, text in leaf_texts(tree, nodes).items():
        lines.append(f"  {node} [label={_quoted(*text.replace(': ', ', ', 1).split(', '))}];")
    for node in gates:
        for child, answer in ((2 * node, "yes"), (2 * node + 1, "no")):
            label = f"{answer}, longer survival" if longer.get(node) == answer else answer
            lines.append(f'  {node} -> {shown_node(nodes, child)} [label="{label}"];')
    return "\n".join([*lines, "}"]) + "\n"


def leaf_texts(tree: FittedTree, nodes: pd.DataFrame) -> dict[int, str]:
    """By node, a line on each group that has rows: its number, rows, events and predicted median.

    The median is of the time free of any event; there is none where covariates are time-varying.
    """
    lines, leaves = {}, list(shown_leaves(nodes))
    shown = nodes.loc[leaves]
    texts = survival_texts(shown, tree.time_unit)
    for leaf, (_, row), text in zip(leaves, shown.iterrows(), texts, strict=True):
        reached = "" if tree.time_varying else f", predicted {'event-free ' * tree.competing}{text}"
        counts = f"{rows_text(row)}, {events_text(tree, row)}"
        lines[leaf] = f"group {group_of(tree, leaf)}: {counts}{reached}"
    return lines


def _quoted(*lines: str) -> str:
    """Text of some lines as DOT takes it; names of columns may hold quotes and backslashes."""
    escaped = [line.replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    return '"' + "\\n".join(escaped) + '"'


def tree_html(tree: FittedTree, nodes: pd.DataFrame, rules: Mapping[int, GateRule], title: str) -> str:
    """HTML of a tree, in the colours of the page around it, from its table of nodes and its rules."""
    leaves, longer = leaf_texts(tree, nodes), longer_sides(nodes)

    def item(node: int, lead: str) -> str:
        node = shown_node(nodes, node)
        if node in leaves:
            name, facts = leaves[node].split(": ", 1)
            return f"<li>{lead}<b>{escape(name)}</b>: {escape(facts)}</li>"
        parts = []
        for child, right in ((2 * node, False), (2 * node + 1, True)):
            answer = "no" if right else "yes"
            longest = ", longer survival" if longer.get(node) == answer else ""
            rule = escape(rules[node].text(_SUMMARY_TERMS, right=right))
            parts.append(item(child, f"<code>{rule}</code> <small>({answer}{longest})</small> "))
        return f"<li>{lead}{nodes['rows'][node]} rows<ul>{''.join(parts)}</ul></li>"

    module = tree.module
    families = dict.fromkeys(own.family.name for own in tree.hazards.values())
    depth = f"depth {module.topology.depth}, " * (module.topology.depth > 0)
    root = nodes.iloc[0]
    counts = f"{rows_text(root)}, {escape(events_text(tree, root))}"
    head = f"{title}: {depth}{escape(' and '.join(families))} leaves, {counts}"
    table = group_rows(tree, nodes).to_html(index=False, border=0, float_format=short_number, na_rep="-")
    unit = f", t in {escape(tree.time_unit)}" if tree.time_unit else ""
    note = f"S(t): mean predicted survival of the rows of a group{unit}; KM: Kaplan-Meier of the same rows"
    if tree.competing:
        note += "; both are of any event; F(t): mean predicted incidence of a cause; AJ: Aalen-Johansen"
    if tree.time_varying:
        note += f"; S(t) and median are from time zero {CONSTANT_COVARIATES}"
    return f"<p><b>{head}</b></p><ul>{item(1, '')}</ul>{table}<p><small>{note}</small></p>"


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
