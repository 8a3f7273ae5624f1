"""Reports of single runs, for the ``sstorch-report`` command: a run's folder and the data of its settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf

from sstorch.bench.config import DatasetConfig
from sstorch.bench.report.run import Run, run_report
from sstorch.bench.report.sweep import runs_of_sweep, sweep_report
from sstorch.bench.run_folder import RunFolder
from sstorch.bench.study import data_checksum
from sstorch.data import SurvivalData
from sstorch.document import Document
from sstorch.exceptions import ConfigError, FormatError, show_warnings_as_notes
from sstorch.files import JSON_NAME
from sstorch.soft import PrognosticTree, SoftSurvivalTree, SurvivalRegression
from sstorch.soft.estimator import SoftEstimator

# Models of runs, by the format of their files.
_KINDS: dict[str, type[SoftEstimator]] = {
    kind._format: kind for kind in (SurvivalRegression, PrognosticTree, SoftSurvivalTree)
}


def load_model(folder: Path) -> SoftEstimator:
    """The model of a run, of the class that its settings determined."""
    try:
        kind = _KINDS[json.loads((folder / JSON_NAME).read_bytes())["format"]]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{folder / JSON_NAME} is incomplete or altered: {error}") from error
    return kind.load(folder)


def report_of_run(path: Path) -> Callable[[], Document] | None:
    """Return a function that makes the report of a completed run or of a sweep; None for other folders.

    Raises ConfigError if the run is not completed, its data have changed, or a file is missing.
    """
    folder = RunFolder(path)
    if not folder.is_taken:
        return (lambda: sweep_report(path)) if runs_of_sweep(path) else None
    if folder.status != "completed":
        raise ConfigError(f"{path} holds a run that is {folder.status}, not completed: continue it first")
    if not (path / "held_out.csv").is_file():
        raise ConfigError(f"{path} has no held_out.csv: run it again")
    show_warnings_as_notes("sstorch-report")
    config = OmegaConf.to_container(OmegaConf.load(path / "config.yaml"))
    if not isinstance(config, dict):
        raise ConfigError(f"{path / 'config.yaml'} is not a configuration")
    status = json.loads((path / "status.json").read_text())
    data, name = _data(config)
    if data_checksum(data) != status["data"]:
        raise ConfigError(f"the data of {path} have changed since it ran: run it again for a report")
    return lambda: run_report(_run(path, data, name, config, status))


def _data(config: dict[Any, Any]) -> tuple[SurvivalData, str]:
    """The rows of a run, and their name."""
    dataset, fairness = DatasetConfig(**config["dataset"]), config["fairness"]
    data = dataset.load(fairness["sensitive"])
    if fairness["sensitive"] is not None:
        data = data.with_sensitive(fairness["sensitive"], fairness["feature"])
    return data, dataset.label


def _run(path: Path, data: SurvivalData, name: str, config: dict[Any, Any], status: dict[str, Any]) -> Run:
    model = load_model(path / "model")
    held_out = pd.read_csv(path / "held_out.csv")
    peers = None
    if (path / "peers.csv").is_file():  # scores that are not defined for the data have no values
        peers = pd.read_csv(path / "peers.csv").dropna(axis=1, how="all")
    return Run(name, data.counted(), model, held_out, peers, config, status)
