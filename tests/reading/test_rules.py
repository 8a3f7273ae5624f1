"""Rules send every row where the gates do, in few words and digits."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sstorch import Columns, PrognosticTree, SoftSurvivalTree, SurvivalData
from sstorch.reading import export_text, gate_table
from tests.flat import soft_tree
from tests.reading.trees import (
    QUICK,
    THRESHOLDS,
    at_gates,
    in_original_units,
    leaf_of,
    satisfies,
    sum_holds,
    with_gates,
)


@pytest.fixture(scope="module")
def fitted(gbsg2: SurvivalData) -> SoftSurvivalTree:
    tree = soft_tree(depth=2, leaf="weibull", **QUICK)
    return tree.fit(gbsg2.frame, (gbsg2.time, gbsg2.event))


KINDS = {"kind=a": 1.0, "kind=b": 1.0, "kind=c": -1.0}
RULES: list[tuple[str, dict[str, float], float, str, str]] = [
    ("gbsg2", {"tgrade=I": 1.0}, -0.5, "tgrade is I", "tgrade in {II, III}"),
    ("gbsg2", {"tgrade=I": -1.0}, 0.5, "tgrade in {II, III}", "tgrade is I"),
    ("gbsg2", {"horTh=yes": 2.0, "horTh=no": -2.0}, 0.0, "horTh is yes", "horTh is no"),
    ("gbsg2", {}, -1.0, "never", "always"),
    ("missing", KINDS, 0.5, "kind in {a, b, missing}", "kind is c"),
    ("missing", KINDS, -0.5, "kind in {a, b}", "kind in {c, missing}"),
    ("switch", {"aaa": -1.0}, 0.4, "aaa is 0", "aaa is 1"),
    ("switch", {"bbb": 1.0}, -0.5, "bbb in {1, missing}", "bbb is 0"),
]


@pytest.fixture(scope="module")
def gated(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> dict[str, tuple[SoftSurvivalTree, SurvivalData]]:
    """Trees whose gates are set, with their rows: also of missing categories, and of columns of 0 and 1."""
    n = np.arange(120)
    frames = {
        "missing": pd.DataFrame({"size": n + 1.25, "kind": ["a", "b", "c", None] * 30}),
        "years": pd.DataFrame({"year": 1995.0 + n % 21, "age": 40.25 + 37 * n % 120 / 3}),
        "switch": pd.DataFrame({"age": 20.5 + n % 80, "aaa": n % 2, "bbb": [0.0, 1, 1, 1, np.nan] * 24}),
    }
    found, y = {"gbsg2": (fitted, gbsg2)}, (np.random.default_rng(0).exponential(size=120) + 0.1, n >= 0)
    for name, frame in frames.items():
        found[name] = soft_tree(depth=1, **QUICK).fit(frame, y), SurvivalData(frame, y)
    return found


@pytest.mark.parametrize("case", RULES)
def test_rule_of_a_gate(case: Any, gated: dict[str, tuple[SoftSurvivalTree, SurvivalData]]) -> None:
    """It is written in few words, and sends every row where the gate does."""
    rows, weights, constant, left, right = case
    tree, data = gated[rows]
    tree = with_gates(tree, {1: (weights, constant)}, data)
    rule, goes_left = tree._reading.rules[1], leaf_of(tree, data.frame) < tree.tree_.group_numbers.size // 2
    assert (rule.text(), rule.text(right=True)) == (left, right)
    np.testing.assert_array_equal(satisfies(left, data.frame), goes_left)
    np.testing.assert_array_equal(satisfies(right, data.frame), ~goes_left)


SUMS: list[tuple[str, dict[str, float], float]] = [
    ("gbsg2", {"menostat=Pre": 2.0, "tgrade=II": 2.0, "tgrade=I": 4.0}, -3.0),  # categories that are no block
    ("gbsg2", {"pnodes": -0.123456, "progrec": 0.00456789}, 0.7),
    ("gbsg2", {"horTh=yes": 2.0, "tgrade=III": -9.0}, -1.0),
    ("gbsg2", {"pnodes": -1.0, "horTh=yes": 4.0}, 3.4),
    ("years", {"year": -0.0312345, "age": 0.0123456}, 61.87),  # far from zero: the constant keeps its digits
]


@pytest.mark.parametrize("case", SUMS)
def test_other_gates_are_sums_of_few_digits(
    case: Any, gated: dict[str, tuple[SoftSurvivalTree, SurvivalData]]
) -> None:
    rows, *gate = case
    tree, data = gated[rows]
    tree = with_gates(tree, {1: gate}, data)
    rule, goes_left = (
        tree._reading.rules[1].text(),
        leaf_of(tree, data.frame) < tree._tree.group_numbers.size // 2,
    )
    assert 0 < goes_left.sum() < len(data)
    np.testing.assert_array_equal(sum_holds(rule, in_original_units(tree, data.frame)), goes_left)
    assert max(len(word.strip("+-.0").replace(".", "")) for word in rule.split()[:-3:2]) < 6


def test_logarithm_reads_as_threshold_of_the_column(gbsg2: SurvivalData) -> None:
    tree = PrognosticTree(columns=Columns(gate_numeric="log")).fit(gbsg2.frame, gbsg2.y)
    for node, here, left in at_gates(tree, gbsg2.frame):
        name, sign, threshold = tree._reading.rules[node].text().split()
        assert sign == "<="
        held = gbsg2.frame[name].to_numpy() <= float(threshold)
        np.testing.assert_array_equal(held[here], left[here])


def test_long_lists_name_eight_categories(tmp_path: Path) -> None:
    words = [f"site {k:02d}" for k in range(40)]
    frame = pd.DataFrame({"site": words * 4})
    y = np.random.default_rng(5).exponential(size=160) + 0.1, np.ones(160, dtype=bool)
    tree = soft_tree(depth=1, **QUICK).fit(frame, y)
    gate = {1: ({f"site={word}": 1.0 for word in words[:18]}, -0.5)}
    tree = with_gates(tree, gate, SurvivalData(frame, y))
    brief = f"site in {{{', '.join(words[:8])} and 10 more}}"
    tree.save(tmp_path / "tree")
    for each in (tree, SoftSurvivalTree.load(tmp_path / "tree")):
        assert gate_table(each).loc[1, "rule"] == brief
        assert export_text(each).startswith(f"[1] 160 rows: {brief}; longer survival if ")
        assert gate_table(each, n_terms=None).loc[1, "rule"] == f"site in {{{', '.join(words[:18])}}}"
    tree = with_gates(tree, {1: ({f"site={word}": 1.0 for word in words[:30]}, -0.5)}, SurvivalData(frame, y))
    rule = tree._reading.rules[1]
    assert rule.text(4) == f"site not in {{{', '.join(words[30:38])} and 2 more}}"
    assert rule.text(None, right=True) == f"site in {{{', '.join(words[30:])}}}"


PATHS = [
    # Of two bounds on a number the tighter one is written.
    (
        {1: ({"age": -1.0}, 50.5), 2: ({"age": -1.0}, 40.5), 3: ({"age": -1.0}, 60.5)},
        ["age <= 40", "age <= 50 and age > 40", "age > 50 and age <= 60", "age > 60"],
    ),
    (
        THRESHOLDS,
        [
            "pnodes <= 5.5 and progrec > 68",
            "pnodes <= 5.5 and progrec <= 68",
            "pnodes > 5.5 and tgrade in {II, III}",
            "pnodes > 5.5 and tgrade is I",
        ],
    ),
]


@pytest.mark.parametrize(("gates", "expected"), PATHS)
def test_rule_of_a_path(
    gates: Any, expected: list[str], fitted: SoftSurvivalTree, gbsg2: SurvivalData
) -> None:
    tree = with_gates(fitted, gates, gbsg2)
    rules, group = tree._group_rules(None), tree.apply(gbsg2.frame)
    assert set(expected) <= set(rules.values())
    counts = {number: f"{(group == number).sum()} of 686 rows" for number in rules}
    events = {number: f"{gbsg2.event[group == number].sum()} events" for number in rules}
    for number, rule in rules.items():
        assert f"Group {number}: {rule}: {counts[number]}, {events[number]}, " in tree.describe(None)


def test_gates_that_all_rows_pass_alike_are_not_shown(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    tree = with_gates(fitted, THRESHOLDS | {3: ({}, 9.0)}, gbsg2)
    text, lines = export_text(tree), sorted(tree.describe().splitlines())
    assert [line.split(":")[0] for line in lines] == ["Group 1", "Group 2", "Group 3"]
    numbers = tree._tree.group_numbers
    assert numbers[3] == 4  # a group without rows comes last
    assert lines[numbers[2] - 1].startswith(f"Group {numbers[2]}: pnodes > 5.5: 212 of 686 rows, ")
    assert "[3]" not in text
    assert text.splitlines()[-1].startswith(f"`- no:  group {numbers[2]}: 212 rows, ")
    assert "group 4" not in text
    # Tables stay whole.
    assert list(gate_table(tree).index) == [1, 2, 3]
    assert list(tree._reading.groups["rows", ""] > 0) == [True, True, True, False]
    alone = with_gates(fitted, {1: ({}, -9.0), 3: ({}, 9.0)}, gbsg2)
    assert alone.describe().startswith("Group 1: all 686 rows, 299 events, Kaplan-Meier survival ")
    assert export_text(alone).startswith("group 1: 686 rows, 299 events, ")
    assert "\nNo gate divides the training rows: one group has them all\n" in alone.summary(details=True)
    assert "over the training range, largest first\n" in alone.summary(details=True)
    assert "level" not in alone.summary(details=True)
