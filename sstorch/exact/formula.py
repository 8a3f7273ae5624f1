"""An exact survival tree as a formula of a patient's columns, from which code is printed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sstorch._types import FloatArray
from sstorch.data import Schema
from sstorch.deploy.calculator import PageNode
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
from sstorch.exact.tree import BinaryTree, LeafCurves


def tree_formula(
    tree: BinaryTree,
    rules: Sequence[Rule],
    curves: LeafCurves,
    schema: Schema,
    incidence: Mapping[str, FloatArray] | None = None,
) -> Formula:
    """The group, S(t) and the incidences of a patient; a missing value answers no.

    `curves` are of any event, `incidence` (L, T) by cause at the same times.
    """
    numbers = tree.leaf_number

    def below(node: int) -> Expression:
        if tree.feature[node] < 0:
            return as_expression(int(numbers[node]))
        rule = rules[int(tree.feature[node])]
        return where(answer(rule), below(int(tree.present[node])), below(int(tree.absent[node])))

    leaf = let("leaf", below(0))
    n_times = len(curves.times)
    passed = let("events_passed", rank(TIME, curves.times.tolist()))
    place = leaf * (n_times + 1.0) + passed

    def step(start: float, steps: FloatArray) -> Expression:
        """From one table of all curves: for each leaf its start, then its values from each event time on."""
        return pick(place, [value for curve in steps.tolist() for value in (start, *curve)])

    survival = let("survival", step(1.0, curves.survival))
    of_causes = {name: let(f"incidence_{name}", step(0.0, each)) for name, each in (incidence or {}).items()}
    columns = {name: schema.categories.get(name) for name in schema.columns}
    gates = {k: answer(rules[int(j)]) for k, j in enumerate(tree.feature) if j >= 0}
    return Formula(columns, let("group_number", leaf + 1.0), survival, of_causes, gates=gates)


def answer(rule: Rule) -> Expression:
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


def page_nodes(tree: BinaryTree, rules: Sequence[Rule]) -> list[PageNode]:
    """The nodes of a tree as a page shows them."""
    texts = {0: ""}
    for node, feature in enumerate(tree.feature):
        if feature >= 0:
            rule = rules[int(feature)].name
            texts[int(tree.present[node])] = rule
            texts[int(tree.absent[node])] = f"not ({rule})"
    return [
        PageNode(texts[node], (int(tree.present[node]), int(tree.absent[node])))
        if leaf < 0
        else PageNode(texts[node], (), leaf + 1)
        for node, leaf in enumerate(tree.leaf_number.tolist())
    ]
