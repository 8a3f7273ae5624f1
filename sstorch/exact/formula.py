"""Exports of an exact survival tree: a formula of a patient's columns, and the facts of a page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from sstorch._types import FloatArray
from sstorch.deploy.calculator import Field, PageNode
from sstorch.deploy.exports import Counts, Deployed
from sstorch.deploy.expression import (
    TIME,
    Expression,
    Formula,
    as_expression,
    is_category,
    known,
    let,
    number,
    pick,
    rank,
    where,
)
from sstorch.exact.binarize import Rule
from sstorch.exact.tree import BinaryTree


def tree_formula(model: Any) -> Formula:
    """The group, S(t) and the incidences of a patient by a survival tree; a missing value answers no."""
    tree, rules, curves = model.tree_, model.rules_, model.curves_
    schema, causes = model.schema_, model.causes_
    numbers = tree.leaf_number

    def below(node: int) -> Expression:
        if tree.feature[node] < 0:
            return as_expression(int(numbers[node]))
        rule = rules[int(tree.feature[node])]
        return where(_answer(rule), below(int(tree.present[node])), below(int(tree.absent[node])))

    leaf = let("leaf", below(0))
    passed = let("events_passed", rank(TIME, curves.times.tolist()))
    place = leaf * (len(curves.times) + 1.0) + passed

    def step(start: float, steps: FloatArray) -> Expression:
        """From one table of all curves: for each leaf its start, then its values from each event time on."""
        return pick(place, [value for curve in steps.tolist() for value in (start, *curve)])

    survival = let("survival", step(1.0, curves.survival))
    incidences: Mapping[str, Expression] = {
        name: let(f"incidence_{name}", step(0.0, curves.incidences[:, k])) for k, name in enumerate(causes)
    }
    columns = {name: schema.categories.get(name) for name in schema.columns}
    gates = {k: _answer(rules[int(j)]) for k, j in enumerate(tree.feature) if j >= 0}
    return Formula(columns, let("group_number", leaf + 1.0), survival, incidences, gates=gates)


def _answer(rule: Rule) -> Expression:
    """Whether a question is answered with yes."""
    if rule.kind == "missing":
        return ~known(rule.column)
    if rule.kind in ("above", "between"):
        value = number(rule.column, math.nan)
        parts = [value > rule.low] if rule.low > -math.inf else []
        parts += [value <= rule.high] if rule.high < math.inf else []
        return parts[0] if len(parts) == 1 else parts[0] & parts[1]
    among = is_category(rule.column, rule.values[0])
    for label in rule.values[1:]:
        among = among | is_category(rule.column, label)
    return among if rule.kind == "is" else known(rule.column) & ~among


def page_nodes(tree: BinaryTree) -> list[PageNode]:
    """The nodes of a tree as a page shows them."""
    texts = {0: ""}
    for node, feature in enumerate(tree.feature):
        if feature >= 0:
            rule = tree.names[int(feature)]
            texts[int(tree.present[node])] = rule
            texts[int(tree.absent[node])] = f"not ({rule})"
    return [
        PageNode(texts[node], (int(tree.present[node]), int(tree.absent[node])))
        if leaf < 0
        else PageNode(texts[node], (), leaf + 1)
        for node, leaf in enumerate(tree.leaf_number.tolist())
    ]


def deployed(tree: Any, medians: bool) -> Deployed:
    """Facts of a fitted survival tree for calculators and code."""
    table, names = tree.leaf_table_, tree.causes_ or ("",)

    def counts(row: pd.Series, median: float | None) -> Counts:
        events = {name: int(row[f"events{end}"]) for name, end in zip(names, tree._endings, strict=True)}
        return Counts(int(row["rows"]), events, median)

    with_median = medians and not tree.causes_
    return Deployed(
        f"Optimal survival tree with {tree.tree_.n_leaves} leaves",
        counts(table.sum(), None),
        [Field(name, name, None, tree.schema_.categories.get(name)) for name in tree.schema_.columns],
        page_nodes(tree.tree_),
        {n: counts(row, float(row["median"]) if with_median else None) for n, row in table.iterrows()},
        tree.time_unit_,
        hasattr(tree, "recalibration_"),
        "beyond it curves keep their value",
        "the side 'no' of every split except 'is missing'",
    )
