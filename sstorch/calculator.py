"""The ``sstorch-calculator`` command: a saved tree as a page in which one enters a patient."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pandas as pd

from sstorch.checks import wording
from sstorch.data import Surv
from sstorch.data.tables import read_table
from sstorch.deploy import export_calculator
from sstorch.exceptions import ConfigError, DataError, SstorchError, exit_codes, show_warnings_as_notes
from sstorch.prediction import load_tree


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see sstorch-calculator --help")


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``sstorch-calculator`` command: exit code 0, or 2 if refused with one line."""
    parser = _Parser(
        prog="sstorch-calculator",
        description="One HTML file in which a patient is entered; it needs no network and sends nothing.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder of a saved tree, or of a run")
    parser.add_argument("page", type=Path, metavar="PAGE", help="file that is written, such as page.html")
    parser.add_argument("--data", type=Path, metavar="FILE", help="rows for ranges and typical values")
    parser.add_argument(
        "--time", metavar="COLUMN", help="of FILE: with --event or --cause draws curves of groups"
    )
    parser.add_argument("--event", metavar="COLUMN", help="of FILE")
    parser.add_argument(
        "--cause", metavar="COLUMN", help="of FILE, in place of --event: 0 and 1 .. K, or names of the causes"
    )
    parser.add_argument("--entry", metavar="COLUMN", help="of FILE: entry times of the rows")
    parser.add_argument("--id", metavar="COLUMN", help="of FILE: subjects of the rows")
    parser.add_argument("--weight", metavar="COLUMN", help="of FILE: weights of the rows")
    parser.add_argument(
        "--after",
        type=float,
        metavar="TIME",
        help="patients are at risk then, their values stay as entered, and times count from there; "
        "needed by a model with time-varying covariates (0: time zero)",
    )
    parser.add_argument("--horizons", nargs="+", type=float, metavar="TIME", help="times in the result")
    parser.add_argument("--title", help="of the page; else it names the outcome")
    parser.add_argument("--outcome", help="what the probability of no event is called")
    parser.add_argument("--label", nargs="+", default=[], metavar="COLUMN=TEXT", help="names of columns")
    parser.add_argument("--unit", nargs="+", default=[], metavar="COLUMN=TEXT", help="units of columns")
    parser.add_argument("--missing", nargs="+", default=[], metavar="VALUE", help="stand for missing values")
    parser.add_argument("--sep", help="separator of the cells; else found in the header")
    parser.add_argument("--decimal", help="decimal sign of FILE")
    show_warnings_as_notes("sstorch-calculator")
    with exit_codes("sstorch-calculator", (SstorchError, OSError)):
        asked = parser.parse_args(arguments)
        given = asked.event is not None or asked.cause is not None
        if (asked.time is None) == given or (asked.time and not asked.data):
            raise ConfigError("--time and --event belong together (or --cause), and name columns of --data")
        if asked.time is None and (asked.entry or asked.id or asked.weight):
            raise ConfigError("--entry, --id and --weight go with --time and --event")
        model = load_tree(asked.model.expanduser())
        wanted, other = ("cause", "event") if model.causes_ else ("event", "cause")
        if vars(asked)[other] is not None:
            why = "its causes compete" if model.causes_ else "it has one event"
            raise ConfigError(f"{asked.model} takes --{wanted}, not --{other}: {why}")
        events = vars(asked)[wanted]
        X, y = None, None
        if asked.data is not None:
            file = asked.data.expanduser()
            try:
                table = read_table(file, sep=asked.sep, missing=asked.missing, decimal=asked.decimal)
                X, lines = table.frame, table.lines
                if asked.time is not None:
                    roles = {"entry": asked.entry, "id": asked.id, "weight": asked.weight}
                    causes = _named(X[events], model.causes_) if model.causes_ and events in X else None
                    y = Surv.of(X, asked.time, events, causes=causes, **roles)
            except DataError as error:
                raise DataError(f"{file}: {error}") from error
        else:
            lines = None
        with wording(lines=lines, options="--"):
            export_calculator(
                model,
                asked.page,
                X,
                y,
                title=asked.title,
                horizons=asked.horizons,
                labels=_texts(asked.label, "--label"),
                units=_texts(asked.unit, "--unit"),
                outcome=asked.outcome,
                after=asked.after,
            )
        print(f"done: {asked.page}")


def _named(column: pd.Series, causes: Sequence[str]) -> Sequence[str] | dict[str, str]:
    """How the values of a column name the causes of a tree: by number, or as themselves."""
    return causes if pd.api.types.is_numeric_dtype(column) else {cause: cause for cause in causes}


def _texts(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Texts by column."""
    for pair in pairs:
        if "=" not in pair:
            raise ConfigError(f"{option} takes COLUMN=TEXT, got {pair!r}")
    return dict(pair.split("=", 1) for pair in pairs)
