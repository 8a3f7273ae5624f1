"""The model card of a tree: what it is, of whom, how good it is, and what it is not for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import pandas as pd

from sstorch._version import __version__
from sstorch.checks import check_tree
from sstorch.data.subjects import CONSTANT_COVARIATES
from sstorch.data.time_unit import round_horizons
from sstorch.document import (
    Block,
    Bullets,
    Cell,
    Code,
    Document,
    Paragraph,
    Section,
    Table,
    number,
    to_html,
    to_markdown,
)
from sstorch.exceptions import ConfigError
from sstorch.groups.hooks import RESULTS, GroupedTree
from sstorch.groups.recalibration import recalibration_texts, recalibrations
from sstorch.groups.table import WEIGHTED

LIMITS = (
    "It describes these rows: for others, such as of another place or time, it has to be validated anew.",
    "Nothing in it is causal: a gate on a treatment shows who survives longer, not what the treatment does.",
    "Curves take censoring to be independent of what happens later, given the columns.",
)
_TIME_VARYING = (
    "Covariates are time-varying: one row does not determine survival from time zero. Survival is predicted "
    f"for a subject at risk at a given time, {CONSTANT_COVARIATES}."
)


def model_card(
    tree: GroupedTree,
    format: Literal["markdown", "html"] = "markdown",
    validation: pd.DataFrame | None = None,
) -> str:
    """Write the model card of a tree: description, training rows, performance and limitations.

    Args:
        tree: fitted soft or exact tree, for one event or competing causes.
        format: ``"markdown"``, or ``"html"``, a page that needs no network.
        validation: scores on held-out rows: one row per score, with intervals in columns.

    Raises:
        ConfigError: unknown format.
    """
    check_tree(tree, "_card")
    if format not in ("markdown", "html"):
        raise ConfigError(f"format must be 'markdown' or 'html', got {format!r}")
    card = _document(tree, validation)
    return to_markdown(card) if format == "markdown" else to_html(card)


def _document(tree: GroupedTree, validation: pd.DataFrame | None) -> Document:
    facts, chosen = tree._card(), vars(tree._chosen)
    results = [str(chosen[name]) for name in RESULTS if name in chosen]
    results += recalibration_texts(tree._chosen)
    quality = [*_scores(chosen.get("metrics_", {}), validation), *map(Code, results)]
    return Document(
        "Model card",
        f"{facts.title} of {facts.rows} rows",
        [
            Section("Facts", [facts_table(tree)]),
            Section("Groups", [Bullets(facts.groups), Code(facts.rules)]),
            Section("How good it is", quality),
            Section("Limits", [Bullets(limits_of(tree))]),
            Section("Use", [use_of(tree)]),
        ],
    )


def facts_table(tree: GroupedTree, more: Sequence[tuple[str, str]] = ()) -> Table:
    """Description of the tree, its training rows, and further facts."""
    facts, schema = tree._card(), tree._schema
    unit = f" {tree._unit_of_time}" if tree._unit_of_time else ""
    causes = tree.outcome_type_.causes
    predicts = (
        "survival at any time, median and restricted mean time, risk, group"
        if causes is None
        else f"cumulative incidences of {' and '.join(causes)}, survival without any event, group"
    )
    columns = [
        f"{name} ({', '.join(schema.categories[name])})" if name in schema.categories else name
        for name in schema.inputs
    ]
    made = "recalibrated" if recalibrations(tree._chosen) else "trained"
    rows = [
        ("model", facts.kind),
        ("predicts", predicts),
        (f"{made} on", f"{facts.rows} rows, {facts.events}"),
        ("columns", "; ".join(columns)),
        ("times", f"up to {tree.event_times_[-1]:g}{unit}, the last event{facts.beyond}"),
        *facts.more,
        *more,
        ("made with", f"sstorch {__version__}"),
    ]
    return Table("", ["", "this model"], [[Cell(a), Cell(b)] for a, b in rows], left=frozenset({1}))


def limits_of(tree: GroupedTree) -> list[str]:
    """Limitations, one sentence each."""
    facts = tree._card()
    weighted = tree.outcome_type_.weighted and WEIGHTED not in facts.groups
    limits = [*LIMITS, *facts.limits, *([WEIGHTED] if weighted else [])]
    return [*limits, *([_TIME_VARYING] if tree.time_varying_ else [])]


def use_of(tree: GroupedTree) -> Code:
    """Lines of Python that predict by a saved tree."""
    horizons = ", ".join(f"{time:g}" for time in round_horizons(tree.event_times_, tree._unit_of_time))
    after = ", after=0" if tree.time_varying_ else ""
    method = "predict_cumulative_incidence" if tree.causes_ else "predict_survival_function"
    lines = [
        f'tree = sstorch.{type(tree).__name__}.load("MODEL")',
        'rows = pandas.read_csv("rows.csv")',
        f"tree.{method}(rows, [{horizons}]{after})",
    ]
    return Code("\n".join(lines))


def _scores(scores: Mapping[str, float], validation: pd.DataFrame | None) -> list[Block]:
    blocks: list[Block] = []
    if scores:
        rows = [[Cell(name), Cell(number(value))] for name, value in scores.items()]
        blocks.append(Table("As they were kept with the tree.", ["score", "value"], rows))
    if validation is not None:
        texts = [
            [Cell(str(name)), *(Cell(number(float(value))) for value in row)]
            for name, row in zip(validation.index, validation.to_numpy(), strict=True)
        ]
        header = ["score", *map(str, validation.columns)]
        blocks.append(Table("On rows it was not trained on.", header, texts))
    if not blocks:
        blocks.append(
            Paragraph("Not known: no scores of rows that it was not trained on; see sstorch.validate.")
        )
    return blocks
