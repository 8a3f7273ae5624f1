"""The ``sstorch-report`` command: reports of a study, of a run with its data, and of a sweep of runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
from omegaconf import OmegaConf

from sstorch.bench.config import DatasetConfig
from sstorch.bench.cross_validation import data_checksum
from sstorch.bench.report.results import Results
from sstorch.bench.report.run import Run, run_report
from sstorch.bench.report.study import as_text, average_table, best_of, build_report
from sstorch.bench.run_folder import RunFolder
from sstorch.bench.store import ResultStore
from sstorch.document import FIGURES, Cell, Document, Section, as_table, to_html, to_markdown
from sstorch.exceptions import ConfigError, FormatError, SstorchError, exit_codes, show_warnings_as_notes
from sstorch.files import JSON_NAME, write_whole
from sstorch.metrics.registry import METRICS
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.estimators import PrognosticTree, SoftSurvivalTree, SurvivalRegression

# Models of runs, by the format of their files.
_KINDS: dict[str, type[SoftEstimator]] = {
    kind._format: kind for kind in (SurvivalRegression, PrognosticTree, SoftSurvivalTree)
}
# Scores of a sweep that are shown.
_SHOWN = 3


class _Parser(argparse.ArgumentParser):
    """Refuses in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``sstorch-report`` command: exit code 0, or 2 if refused with one line."""
    description = "Tables and figures of a run, a sweep or a study, as Markdown and as one HTML page."
    parser = _Parser(prog="sstorch-report", description=description)
    parser.add_argument("run", type=Path, metavar="FOLDER", help="folder of a run, of a sweep, or of a study")
    parser.add_argument("--out", type=Path, help="folder of the report (default: FOLDER/report)")
    with exit_codes("sstorch-report", (SstorchError, OSError)):
        asked = parser.parse_args(arguments)
        if not (folder := asked.run.expanduser()).is_dir():
            raise ConfigError(f"{folder}: there is no such folder")
        out = folder / "report" if asked.out is None else asked.out.expanduser()
        if (document := report_of_run(folder)) is None:
            store = ResultStore(folder)
            results = Results(store.table(), store.facts())
            for note in results.notes:
                print(f"sstorch-report: note: {note}", file=sys.stderr)
            print(f"{as_text(average_table(results))}\n")
            document = build_report(results)
        write_document(document, out)
        print(f"{out / 'report.md'} (with {len(list(document.pictures()))} figures)")
        print(f"done: {document.title}; open {out / 'report.html'}", flush=True)


def write_document(document: Document, folder: Path) -> None:
    """Write ``report.md`` with its figures, and ``report.html``; each file is complete or not there."""
    try:
        (folder / FIGURES).mkdir(parents=True, exist_ok=True)
        for picture in document.pictures():
            write_whole(folder / FIGURES / f"{picture.name}.png", picture.saved("png"))
        write_whole(folder / "report.md", to_markdown(document).encode())
        write_whole(folder / "report.html", to_html(document).encode())
    except OSError as error:
        raise ConfigError(
            f"the report cannot be written to {folder}: {error}; choose another with --out"
        ) from error


def load_model(folder: Path) -> SoftEstimator:
    """The model of a run, of the class that its settings determined."""
    if not (folder / JSON_NAME).is_file():
        raise ConfigError(f"{folder} holds no soft tree: reports are of soft trees; scores are in scores.csv")
    try:
        kind = _KINDS[json.loads((folder / JSON_NAME).read_bytes())["format"]]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{folder / JSON_NAME} is incomplete or altered: {error}") from error
    return kind.load(folder)


def report_of_run(path: Path) -> Document | None:
    """The report of a completed run or of a sweep; None for other folders, ConfigError for other runs."""
    folder = RunFolder(path)
    if not folder.is_taken:
        return sweep_report(path) if any(path.glob("*/status.json")) else None
    if folder.status != "completed":
        raise ConfigError(f"{path} holds a run that is {folder.status}, not completed: continue it first")
    if not (path / "held_out.csv").is_file():
        raise ConfigError(f"{path} has no held_out.csv: run it again")
    show_warnings_as_notes("sstorch-report")
    config, status = _config(path), folder.read_status()
    dataset = DatasetConfig(**config["dataset"])
    data = dataset.load()
    if data_checksum(data) != status["data"]:
        raise ConfigError(f"the data of {path} have changed since it ran: run it again for a report")
    model, held_out, peers = load_model(path / "model"), pd.read_csv(path / "held_out.csv"), None
    if (path / "peers.csv").is_file():  # scores that are not defined for the data have no values
        peers = pd.read_csv(path / "peers.csv").dropna(axis=1, how="all")
    return run_report(Run(dataset.label, data.counted(), model, held_out, peers, config, status))


def _config(run: Path) -> dict[Any, Any]:
    """The configuration of a run."""
    config = OmegaConf.to_container(OmegaConf.load(run / "config.yaml"))
    if not isinstance(config, dict):
        raise ConfigError(f"{run / 'config.yaml'} is not a configuration")
    return config


def sweep_report(folder: Path) -> Document:
    """Settings that differ between the runs, and their scores with standard errors over folds."""
    runs = [path.parent for path in folder.glob("*/status.json")]
    runs.sort(key=lambda run: (not run.name.isdigit(), run.name.zfill(9)))
    done = [run for run in runs if RunFolder(run).read_status()["status"] == "completed"]
    if not done:
        raise ConfigError(f"{folder} holds a sweep of {len(runs)} runs, none of them completed")
    settings = pd.json_normalize([_config(run) for run in done]).map(str, na_action="ignore").fillna("-")
    varied = [str(name) for name in settings if settings[name].nunique() > 1]
    scores = pd.concat([_scores(pd.read_csv(run / "scores.csv")) for run in done], ignore_index=True)
    scores = scores.dropna(axis=1, how="all").iloc[:, : 2 * _SHOWN]
    columns = {name: list(settings[name]) for name in varied}
    for name in scores.columns.unique(0):
        mean, higher = scores[name, "mean"], METRICS[name.partition(":")[0]].higher_is_better
        texts = mean.map("{:.4f} (".format) + scores[name, "sem"].map("{:.4f})".format)
        best = best_of(mean.to_frame(), higher, digits=9).iloc[:, 0]
        columns[name] = [Cell(text, best=bold) for text, bold in zip(texts, best, strict=True)]
    rows = list(zip([run.name for run in done], *columns.values(), strict=True))
    text = (
        "Means over test folds, with the standard error over folds; the best in bold. The best of many test "
        "scores is too good by selection: confirm it on other rows."
    )
    subtitle = f"{len(done)} completed runs of {len(runs)}"
    sections = [Section("Runs", [text, as_table(["run", *columns], rows)])]
    return Document("Sweep of settings", subtitle, sections)


def _scores(table: pd.DataFrame) -> pd.DataFrame:
    """Mean over test folds and its standard error, columns (score, ``mean``) and (score, ``sem``)."""
    tests: pd.DataFrame = table[(table["part"] == "test") & table["chosen"]]
    names = [str(name) for name in tests if str(name).partition(":")[0] in METRICS and name != "objective"]
    return pd.DataFrame(tests[names].agg(["mean", "sem"]).unstack()).T
