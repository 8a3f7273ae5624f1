"""Model card of a fitted tree: facts, summary, scores, limits, use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pandas as pd

from sstorch._version import __version__
from sstorch.checks import check_choice, check_tree
from sstorch.data.subjects import CONSTANT_COVARIATES
from sstorch.data.time_unit import round_horizons
from sstorch.deploy.calculator import PAGE_TEXTS
from sstorch.document import Block, Code, Document, Section, as_table, number, to_html, to_markdown
from sstorch.groups.recalibration import SurvivalTree
from sstorch.groups.table import WEIGHTED

_LIMITS = (
    "It describes these rows: for others, such as of another place or time, it has to be validated anew.",
    "Nothing in it is causal: a gate on a treatment shows who survives longer, not what the treatment does.",
    "Curves take censoring to be independent of what happens later, given the columns.",
)


def model_card(
    tree: SurvivalTree,
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
    check_tree(tree, "_deployed")
    check_choice(format, "format", ("markdown", "html"))
    scores: list[Block] = []
    if kept := vars(tree._chosen).get("metrics_"):
        texts = [[name, number(value)] for name, value in kept.items()]
        scores.append(as_table(["score", "value"], texts, "As they were kept with the tree."))
    if validation is not None:
        texts = [[str(name), *map(number, row)] for name, row in validation.astype(float).T.items()]
        header = ["score", *map(str, validation.columns)]
        scores.append(as_table(header, texts, "On rows it was not trained on."))
    if not scores:
        scores.append("Not known: no scores of rows that it was not trained on; see sstorch.validate.")
    facts, limits, use = card_sections(tree)
    middle = [Section("Groups", [Code(tree.summary())]), Section("How good it is", scores)]
    subtitle = tree._deployed(medians=False).subtitle(PAGE_TEXTS)
    card = Document("Model card", subtitle, [facts, *middle, limits, use])
    return to_markdown(card) if format == "markdown" else to_html(card)


def card_sections(
    tree: SurvivalTree, more: Sequence[tuple[str, str]] = (), limits: Sequence[str] = ()
) -> list[Section]:
    """Facts of the tree and its training rows, limitations, and code that predicts by the saved tree."""
    facts, unit = tree._deployed(medians=False), f" {tree.time_unit_}" if tree.time_unit_ else ""
    columns = [
        f"{field.name} ({', '.join(field.categories)})" if field.categories else field.name
        for field in facts.fields
    ]
    predicts, method = (
        "survival at any time, median and restricted mean time, risk, group",
        "survival_function",
    )
    if causes := " and ".join(tree.causes_):
        predicts = f"cumulative incidences of {causes}, survival without any event, group"
        method = "cumulative_incidence"
    rows = [
        ("model", facts.kind),
        ("predicts", predicts),
        (f"{'recalibrated' if facts.recalibrated else 'trained'} on", facts.counts.text(PAGE_TEXTS)),
        ("columns", "; ".join(columns)),
        ("times", f"up to {tree.event_times_[-1]:g}{unit}, the last event; {facts.beyond}"),
        ("missing values", facts.missing),
        *more,
        ("made with", f"sstorch {__version__}"),
    ]
    shrunk = "Coefficients are shrunk; their confidence intervals take the gates as given."
    known = [*_LIMITS, *([shrunk] if hasattr(tree, "covariance_") else [])]
    known += [WEIGHTED] if tree.outcome_type_.weighted else []
    if tree.time_varying_:
        known.append(
            "Covariates are time-varying: one row does not determine survival from time zero. Survival is "
            f"predicted for a subject at risk at a given time, {CONSTANT_COVARIATES}."
        )
    horizons = ", ".join(f"{time:g}" for time in round_horizons(tree.event_times_, tree.time_unit_))
    lines = [
        f'tree = sstorch.{type(tree).__name__}.load("MODEL")',
        'rows = pandas.read_csv("rows.csv")',
        f"tree.predict_{method}(rows, [{horizons}]{', after=0' if tree.time_varying_ else ''})",
    ]
    table = as_table(["", "this model"], rows)
    return [
        Section("Facts", [table]),
        Section("Limits", [[*known, *limits]]),
        Section("Use", [Code("\n".join(lines))]),
    ]
