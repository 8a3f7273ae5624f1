"""Formulas as source code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from sstorch.deploy.dialects import DIALECTS, DialectName
from sstorch.deploy.expression import Formula
from sstorch.deploy.javascript import JavaScript
from sstorch.deploy.python import Python
from sstorch.deploy.r import R
from sstorch.deploy.script import Missing, Script
from sstorch.deploy.sql import SQL
from sstorch.exceptions import ConfigError

Language = Literal["python", "javascript", "r", "sql"]
_SCRIPTS: Mapping[Language, type[Script]] = {"python": Python, "javascript": JavaScript, "r": R}


def functions(
    formula: Formula,
    language: Language,
    title: str,
    horizon: float | Sequence[float] | None = None,
    missing: Missing = "raise",
) -> str:
    """Functions of a patient, which need nothing but the language, any but ``"sql"``.

    `horizon` is the time, in original units, of functions that are called without one; `missing` decides
    whether an absent column or an unknown category of a patient raises, or counts as missing.
    """
    check_choice(missing, Missing, "missing")
    if horizon is not None:
        if not isinstance(horizon, int | float):
            raise ConfigError(f"horizon must be one time for language={language!r}, got {horizon!r}")
        formula.at(horizon)  # checks it
    return _SCRIPTS[language]().source(formula, title, horizon, missing)


def query(
    formula: Formula,
    title: str,
    dialect: DialectName | None,
    horizon: float | Sequence[float] | None,
    table: str = "patients",
    key: str | Sequence[str] = (),
) -> str:
    """A query with the predictions for each row of a table.

    Of several horizons, in original units, the names of the columns end with the time. The table is named as
    the database stores it, with a schema before a point; the columns of `key` identify a row and are returned
    in place of those of the model.
    """
    check_choice(dialect, DialectName, "dialect")
    assert dialect is not None
    if horizon is None:
        raise ConfigError("a query needs times: give horizon, in the time unit of the training rows")
    key = [key] if isinstance(key, str) else [*key]
    if not table.strip(" .") or not all(isinstance(name, str) and name for name in key):
        raise ConfigError(f"table and key must be names, got table={table!r} and key={key!r}")
    if isinstance(horizon, int | float):
        times = {"": float(horizon)}
    else:
        times = {f"_{time:g}": float(time) for time in horizon}
        if not times or len(times) < len(horizon):
            raise ConfigError(f"horizon must be one time or several distinct times, got {horizon!r}")
    return SQL(DIALECTS[dialect]).source(formula, f"{title} Query for {dialect}.", times, table, key)


def check_language(language: object) -> None:
    """Raise ConfigError for anything but a language."""
    check_choice(language, Language, "language")


def check_choice(value: object, choices: object, name: str) -> None:
    """Raise ConfigError for a value that is none of the choices, a ``Literal``."""
    if value not in get_args(choices):
        raise ConfigError(f"{name} must be one of {', '.join(get_args(choices))}, got {value!r}")
