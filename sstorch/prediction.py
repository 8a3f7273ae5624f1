"""The ``sstorch-predict`` command: what a saved tree predicts for the rows of a file."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sstorch import (
    OptimalSurvivalTree,
    PrognosticTree,
    PrognosticTreeCV,
    SoftSurvivalTree,
    SurvivalRegression,
)
from sstorch.base import check_times
from sstorch.checks import check_columns_exist, rows_text
from sstorch.data.file_arguments import OF_OUTCOME, CommandParser, given_options
from sstorch.data.file_options import FileOptions, in_file
from sstorch.exceptions import DataWarning, FormatError, SstorchError, exit_codes, show_warnings_as_notes
from sstorch.files import JSON_NAME, write_whole
from sstorch.soft import tree_cv
from sstorch.soft.estimator import SoftEstimator

SurvivalTree = SoftEstimator | OptimalSurvivalTree
# By the format of their files.
KINDS: dict[str, Any] = {
    kind._format: kind
    for kind in (
        SurvivalRegression,
        PrognosticTree,
        SoftSurvivalTree,
        OptimalSurvivalTree,
    )
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``sstorch-predict`` command: exit code 0, or 2 if refused with one line."""
    parser = CommandParser(
        prog="sstorch-predict",
        description="Group, survival probabilities and median time of the rows of a file, as CSV.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder of a saved tree, or of a run")
    parser.add_argument("file", type=Path, metavar="FILE", help="rows, in a file of any kind")
    parser.add_argument("--times", nargs="+", type=float, metavar="TIME", help="a column S(TIME) for each")
    parser.add_argument(
        "--after",
        type=float,
        metavar="TIME",
        help="rows are at risk then, stay as they are, and times count from there; "
        "needed by a model with time-varying covariates (0: time zero)",
    )
    parser.add_argument("--id", metavar="COLUMN", help="column that names the rows; else they are numbered")
    parser.add_argument("--out", type=Path, metavar="CSV", help="file that is written, else the terminal")
    parser.add_file_options(*OF_OUTCOME)
    show_warnings_as_notes("sstorch-predict")
    with exit_codes("sstorch-predict", (SstorchError, OSError)):
        asked = parser.parse_words(sys.argv[1:] if arguments is None else arguments)
        model, file = load_tree(asked.model.expanduser()), asked.file
        naming, times = vars(asked).pop("id"), asked.times or []
        if times:
            check_times(times)
        options = given_options(asked, options_beside(asked.model.expanduser()))
        with in_file(file):
            read = options.read(file, {naming} - {None, *model.feature_names_in_})
            with read.wording("--"):
                table = predictions(model, read.frame, times, naming, asked.after)
        text = table.to_csv(index=False, lineterminator="\n")
        if asked.out is None:
            print(text, end="", flush=True)
        else:
            write_whole(asked.out.expanduser(), text.encode())
            print(f"done: {len(table)} rows in {asked.out}")


def model_folder(folder: Path) -> Path:
    """Folder of the tree itself, where that of a run is given."""
    within = folder / "model"
    return within if not (folder / JSON_NAME).is_file() and (within / JSON_NAME).is_file() else folder


def options_beside(folder: Path) -> FileOptions:
    """Options with which the training rows of a saved tree or run were read; defaults if not saved."""
    return FileOptions.saved_with(model_folder(folder))


def load_tree(folder: Path) -> SurvivalTree:
    """Read a saved tree of any kind that predicts survival.

    `folder` is that of a tree or regression, of a search for one (whose chosen tree is taken), or of a run,
    which holds one in ``model``.
    """
    folder = model_folder(folder)
    try:
        state = json.loads((folder / JSON_NAME).read_bytes())
        written = state["format"]
    except OSError as error:
        raise FormatError(f"{folder} holds no saved tree: {error.strerror} ({error.filename})") from error
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{folder / JSON_NAME} is incomplete or altered: {error}") from error
    if written == tree_cv.FORMAT:
        return PrognosticTreeCV.load(folder).best_estimator_
    if written in KINDS:
        tree: SurvivalTree = KINDS[written].load(folder)
        return tree
    raise FormatError(f"{folder} holds a {written}, which predicts no survival")


def predictions(
    model: SurvivalTree,
    frame: pd.DataFrame,
    times: Sequence[float],
    name: str | None = None,
    after: float | None = None,
) -> pd.DataFrame:
    """Predictions of a tree, one row per row.

    Args:
        model: fitted tree.
        frame: raw columns, (n, ...), those of training among them.
        times: where curves are wanted, in the unit of the training times.
        name: column that names the rows; they are numbered from 1 if None.
        after: time at which the rows are at risk, from which times and the median count; None for time zero.

    Returns:
        ``name`` or ``row``, ``group``, ``S(t)`` for each time, with competing causes ``F(t) CAUSE``, the
        cumulative incidence, for each time and cause; and ``median``, the time at which S is 1/2 (inf if that
        is not so up to the last training event), with one event.
    """
    if name is not None:
        check_columns_exist((name,), list(frame.columns))
    label = pd.Series(np.arange(1, len(frame) + 1), name="row") if name is None else frame[name]
    columns = {str(label.name): label.to_numpy(), "group": model.apply(frame)}
    if (empty := frame[[*model.feature_names_in_]].isna().all(axis=1).to_numpy()).any():
        text = f"{rows_text(empty)} without any value of a feature: predictions are those of imputed values"
        warnings.warn(text, DataWarning, stacklevel=2)
    if len(times):
        grid, last = check_times(times), float(model.event_times_[-1])
        if late := [f"{time:g}" for time in grid if time + (after or 0.0) > last]:
            text = (
                f"the last training event is at {last:g}: predictions at {', '.join(late)} are extrapolated"
            )
            warnings.warn(text, DataWarning, stacklevel=2)
        curves = model.predict_survival_function(frame, grid, after=after)
        columns |= {f"S({time:g})": curves[:, k] for k, time in enumerate(grid)}
        if model.causes_:
            incidence = model.predict_cumulative_incidence(frame, grid, after=after)
            for number, cause in enumerate(model.causes_):
                columns |= {f"F({time:g}) {cause}": incidence[:, number, k] for k, time in enumerate(grid)}
    if model.causes_:
        return pd.DataFrame(columns)
    return pd.DataFrame(columns | {"median": model.predict_quantile(frame, 0.5, after)})
