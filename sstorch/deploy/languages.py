"""Formulas as source code."""

from __future__ import annotations

from typing import Literal, get_args

from sstorch.deploy.expression import Formula
from sstorch.deploy.javascript import JavaScript
from sstorch.deploy.python import Python
from sstorch.deploy.script import Missing
from sstorch.deploy.sql import SQL
from sstorch.exceptions import ConfigError

Language = Literal["python", "javascript", "sql"]


def source_code(
    formula: Formula, language: Language, title: str, horizon: float | None = None, missing: Missing = "raise"
) -> str:
    """A formula as source code that needs nothing but the language.

    Args:
        formula: of the model.
        language: ``"python"`` and ``"javascript"`` give functions ``group(patient)`` and ``survival(patient,
            time)`` of a dictionary of columns; ``"sql"`` a query with a row for each of a table ``patients``.
        title: what the model is, for the comment above.
        horizon: original units; the time of the query, or of functions that are called without one.
        missing: whether an absent column or an unknown category of a dictionary raises, or is missing.

    Raises:
        ConfigError: there is no such language, no such way with what is absent, or a query without a horizon.
    """
    if language not in get_args(Language):
        raise ConfigError(f"language must be one of {', '.join(get_args(Language))}, got {language!r}")
    if missing not in get_args(Missing):
        raise ConfigError(f"missing must be one of {', '.join(get_args(Missing))}, got {missing!r}")
    if language == "sql":
        if horizon is None:
            raise ConfigError("a query is for one time: give horizon, in the time unit of the training rows")
        return SQL().source(formula.at(horizon), title)
    if horizon is not None:
        formula.at(horizon)  # checks it
    printer = Python() if language == "python" else JavaScript()
    return printer.source(formula, title, horizon, missing)
