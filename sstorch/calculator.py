"""The ``sstorch-calculator`` command: a saved tree as a page in which one enters a patient."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from sstorch.checks import wording
from sstorch.data import Surv
from sstorch.data.file_arguments import CommandParser, given_options
from sstorch.data.file_options import FileOptions, in_file
from sstorch.deploy import export_calculator
from sstorch.exceptions import ConfigError, SstorchError, exit_codes, show_warnings_as_notes
from sstorch.prediction import load_tree, options_beside


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``sstorch-calculator`` command: exit code 0, or 2 if refused with one line."""
    parser = CommandParser(
        prog="sstorch-calculator",
        description="One HTML file in which a patient is entered; it needs no network and sends nothing.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder of a saved tree, or of a run")
    parser.add_argument("page", type=Path, metavar="PAGE", help="file that is written, such as page.html")
    parser.add_argument("--data", type=Path, metavar="FILE", help="rows for ranges and typical values")
    parser.add_file_options("strict", "drop")
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
    parser.add_argument(
        "--language",
        default="en",
        metavar="CODE",
        help="of the page: en, de, fr, es, or a JSON file with the texts of another one",
    )
    show_warnings_as_notes("sstorch-calculator")
    with exit_codes("sstorch-calculator", (SstorchError, OSError)):
        asked = parser.parse_words(sys.argv[1:] if arguments is None else arguments)
        model, known = load_tree(asked.model.expanduser()), options_beside(asked.model.expanduser())
        options = given_options(asked, known)
        typed = {"time", "event", "cause", "entry", "id", "weight"} & set(vars(asked))
        alone = not known.to_dict()
        if alone and typed and not {"time", "event", "cause"} & typed:
            raise ConfigError("--entry, --id and --weight go with --time and --event")
        if (alone and ("time" in typed) != bool({"event", "cause"} & typed)) or (typed and not asked.data):
            raise ConfigError("--time and --event belong together (or --cause), and name columns of --data")
        wanted, other = ("cause", "event") if model.causes_ else ("event", "cause")
        if other in typed:
            why = "its causes compete" if model.causes_ else "it has one event"
            raise ConfigError(f"{asked.model} takes --{wanted}, not --{other}: {why}")
        X, y, table = None, None, None
        if asked.data is not None:
            with in_file(asked.data):
                table = options.read(asked.data)
                X = table.frame
                if typed or known.to_dict():
                    with table.wording("--"):
                        y = _outcome(X, options, model.causes_)
        with wording(options="--") if table is None else table.wording("--"):
            export_calculator(
                model,
                asked.page,
                X,
                y,
                title=asked.title,
                horizons=asked.horizons,
                labels=_texts(asked.label, "--label"),
                units={**options.units, **_texts(asked.unit, "--unit")},
                outcome=asked.outcome,
                after=asked.after,
                language=_language(asked.language),
            )
        print(f"done: {asked.page}")


def _outcome(X: pd.DataFrame, options: FileOptions, causes: Sequence[str] | None) -> Surv:
    """Outcome of the rows, in the columns that the options name."""
    roles = options.roles
    if causes and options.causes == "auto" and options.cause in X:
        roles["causes"] = _named(X[options.cause], causes)
    return Surv.of(X, **roles)


def _named(column: pd.Series, causes: Sequence[str]) -> Sequence[str] | dict[str, str]:
    """Names of the causes of a tree by value of a column: by number, or the values themselves."""
    return causes if pd.api.types.is_numeric_dtype(column) else {cause: cause for cause in causes}


def _language(given: str) -> str | dict[str, str]:
    """A code, or the texts of a JSON file."""
    if not given.endswith(".json"):
        return given
    try:
        texts = json.loads(Path(given).expanduser().read_text("utf-8"))
    except ValueError as error:
        raise ConfigError(f"--language: {given} is no JSON in UTF-8: {error}") from error
    if not isinstance(texts, dict):
        raise ConfigError(f"--language: {given} must have one text for each key")
    return texts


def _texts(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Texts by column."""
    for pair in pairs:
        if "=" not in pair:
            raise ConfigError(f"{option} takes COLUMN=TEXT, got {pair!r}")
    return dict(pair.split("=", 1) for pair in pairs)
