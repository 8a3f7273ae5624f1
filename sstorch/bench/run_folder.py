"""The folder of a run: its configuration, status, scores, model and figures."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from sstorch._version import __version__
from sstorch.bench.cross_validation import CrossValidation
from sstorch.checks import has_method
from sstorch.data import SurvivalData
from sstorch.exceptions import ConfigError
from sstorch.files import write_whole
from sstorch.optim.run import Plain, is_open, plain_values
from sstorch.plots import plot_groups
from sstorch.plots.figures import detached
from sstorch.soft.estimator import SoftEstimator

# Settings that change no tree and no score of one: two runs that differ in them alone are the same run.
_LOGGED = ("logger.", "callbacks.", "peers.", "cv.peers.", "cv.score.", "dataset.time_unit.")


class RunFolder:
    """Files of a run, which docs/command_line.md lists; an interrupted run continues from `checkpoint`."""

    def __init__(self, path: Path) -> None:
        self.path, self.tensorboard = path, path / "tensorboard"
        self.checkpoint = path / "checkpoint.safetensors"
        self._runs = False

    @property
    def is_taken(self) -> bool:
        """True if a run has been written here already."""
        return (self.path / "status.json").exists()

    def is_completed(self, config_text: str, checksum: str) -> bool:
        """True if the run of a configuration is here, completed; a ConfigError if another one is here."""
        if not self.is_taken:
            return False
        there, here = map(same_run, ((self.path / "config.yaml").read_text("utf-8"), config_text))
        changes = [
            f"config.{name} is {there.get(name, 'missing')} there and {here.get(name, 'missing')} here"
            for name in dict.fromkeys((*there, *here))
            if (name in there, there.get(name)) != (name in here, here.get(name))
        ]
        status = self.read_status()
        if not changes and status["status"] == "completed" and status["data"] != checksum:
            changes = ["its data have changed"]
        if changes:
            raise ConfigError(
                f"{self.path} holds a run already, of another configuration or other data: "
                f"{'; '.join(changes)}. Repeat that one, delete it, or set hydra.run.dir, of a sweep "
                "hydra.sweep.dir, to another folder"
            )
        return bool(status["status"] == "completed")

    def begin(self, config_text: str) -> bool:
        """Write the configuration (resolved YAML) and the status; True if a checkpoint is there."""
        if self.tensorboard.exists():
            shutil.rmtree(self.tensorboard)  # written anew from the records in the checkpoint
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.path / "config.yaml", config_text.encode())
        self.write_status("running")
        return self.checkpoint.exists()

    @property
    def status(self) -> str:
        """Running, completed, interrupted or failed; stopped if begun, and no process has its checkpoint."""
        status = str(self.read_status()["status"])
        return "stopped" if status == "running" and not is_open(self.checkpoint) else status

    def read_status(self) -> dict[str, Any]:
        """Content of ``status.json``."""
        status: dict[str, Any] = json.loads((self.path / "status.json").read_bytes())
        return status

    def write_status(self, status: str, **facts: object) -> None:
        """Replace ``status.json``: running, completed, interrupted or failed, and what else is known."""
        text = json.dumps({"status": status, **facts}, indent=1) + "\n"
        self._runs = status == "running"
        write_whole(self.path / "status.json", text.encode())

    def end_early(self, status: str, **facts: object) -> bool:
        """Write why a run ends before it is completed, True if one runs here; remove an empty folder."""
        if self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()
        if runs := self._runs:
            self.write_status(status, **facts)
        return runs

    def write_results(
        self, result: CrossValidation, data: SurvivalData, peers: pd.DataFrame | None = None
    ) -> Figure | None:
        """Write scores, folds, predictions, the tree, the model, and the figure of groups of a soft one."""
        held_out, data, model = result.held_out(data), data.counted(), result.model
        result.scores.to_csv(self.path / "scores.csv", index=False)
        held_out[["row", "fold"]].to_csv(self.path / "folds.csv", index=False)
        held_out.to_csv(self.path / "held_out.csv", index=False, float_format="%.6g")
        result.table().to_csv(self.path / "summary.csv")
        if peers is not None:
            peers.to_csv(self.path / "peers.csv", index=False)
        if result.choices:
            result.evidence().to_csv(self.path / "evidence.csv", float_format="%.6g")
        (self.path / "tree.txt").write_text(model.summary(details=True) + "\n", "utf-8")
        if has_method(model, "save"):
            model.save(self.path / "model")
        if not isinstance(model, SoftEstimator):
            return None
        (self.path / "figures").mkdir(exist_ok=True)
        figure = detached(plot_groups(model, data.frame, data.y, sample_weight=data.sample_weight))
        figure.savefig(self.path / "figures" / "groups.png", dpi=120)
        return figure


def versions() -> dict[str, str]:
    """Versions of the software that a run is carried out with."""
    packages = {"torch": torch.__version__, "numpy": np.__version__}
    return {"sstorch": __version__, **packages, "Python": platform.python_version()}


def same_run(config_text: str) -> dict[str, Plain]:
    """The settings that runs of the same trees have in common, by dotted names."""
    config = OmegaConf.to_container(OmegaConf.create(config_text))
    if not isinstance(config, dict):
        raise ConfigError("config.yaml is not a configuration; delete the folder or choose another")
    values = dict(plain_values(config, ""))
    return {name: value for name, value in values.items() if not f"{name}.".startswith(_LOGGED)}
