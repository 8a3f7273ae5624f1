"""The model card of a soft tree: what it is, of whom, how good it is, and what it is not for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import pandas as pd

from sstorch._types import FloatArray
from sstorch._version import __version__
from sstorch.data.persons import CONSTANT_COVARIATES
from sstorch.data.time_unit import round_horizons
from sstorch.document import Block, Bullets, Cell, Code, Document, Paragraph, Section, Table, number
from sstorch.fitted.tree import FittedTree

LIMITS = (
    "It describes these rows: for others, such as of another place or time, it has to be validated anew.",
    "Nothing in it is causal: a gate on a treatment says who lives longer, not what the treatment does.",
    "Coefficients are shrunk and have no standard errors.",
    "Curves take censoring to be independent of what happens later, given the columns.",
)
_TIME_VARYING = (
    "Covariates are time-varying: one row does not determine survival from time zero. Survival is predicted "
    f"for a subject at risk at a given time, {CONSTANT_COVARIATES}, or along a path of rows."
)


def model_card(
    tree: FittedTree,
    groups: Sequence[str],
    rules: str,
    rows: tuple[int, int],
    event_times: FloatArray,
    scores: Mapping[str, float],
    said: Sequence[str],
    made: Literal["trained", "recalibrated"],
    validation: pd.DataFrame | None,
) -> Document:
    """The card as a document.

    Args:
        tree: trained.
        groups: a sentence on each group.
        rules: the tree as text.
        rows: that the tables are of, and events among them.
        event_times: distinct, of the training rows.
        scores: by name, without intervals.
        said: what validation of the groups, stability and recalibration have said.
        made: what was done with these rows.
        validation: scores in rows with intervals in columns; None if the tree was not validated.
    """
    preprocessor, module = tree.preprocessor, tree.module
    unit = f" {tree.time_unit}" if tree.time_unit else ""
    columns = [
        f"{name} ({', '.join(preprocessor.schema.categories[name])})"
        if name in preprocessor.schema.categories
        else name
        for name in preprocessor.schema.columns
    ]
    curved = dict.fromkeys(f.columns[0] for f in preprocessor.leaf_features if f.kind == "curve")
    facts = [
        ("model", f"soft survival tree, depth {module.topology.depth}, {module.family.name} leaves"),
        ("predicts", "survival at any time, median and restricted mean time, risk, group"),
        (f"{made} on", f"{rows[0]} rows, {rows[1]} events"),
        ("columns", "; ".join(columns)),
        ("curves", ", ".join(curved) if curved else "none, effects are straight lines"),
        ("times", f"up to {event_times[-1]:g}{unit}, the last event; beyond it curves are extrapolated"),
        ("missing values", f"numbers: {preprocessor.numeric}; categories: {preprocessor.categorical}"),
        ("made with", f"sstorch {__version__}"),
    ]
    table = Table("", ["", "this model"], [[Cell(a), Cell(b)] for a, b in facts], left=frozenset({1}))
    horizons = " ".join(f"{time:g}" for time in round_horizons(event_times, tree.time_unit))
    after = " --after 0" if tree.time_varying else ""
    use = Code(f"sstorch-predict MODEL rows.csv --times {horizons}{after}")
    limits = [*LIMITS, *([_TIME_VARYING] if tree.time_varying else [])]
    return Document(
        "Model card",
        f"A soft survival tree of {rows[0]} rows",
        [
            Section("Facts", [table]),
            Section("Groups", [Bullets(groups), Code(rules)]),
            Section("How good it is", [*_scores(scores, validation), *map(Code, said)]),
            Section("Limits", [Bullets(limits)]),
            Section("Use", [use]),
        ],
    )


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
