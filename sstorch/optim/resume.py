"""A run as arrays, and back: what a checkpoint holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import torch
from torch import Tensor

from sstorch._version import __version__
from sstorch.monitoring.history import History
from sstorch.optim.checkpoint import Arrays

if TYPE_CHECKING:
    from sstorch.optim.run import TrainingRun


def environment(device: torch.device) -> dict[str, str]:
    """What the last bits of a result depend on, beside settings and data."""
    return {"sstorch": __version__, "torch": torch.__version__, "device": device.type}


def to_arrays(run: TrainingRun, notes: Mapping[str, Tensor]) -> Arrays:
    """The state of a run between two passes.

    Args:
        run: in training, or finished.
        notes: of the trainer.
    """
    parts: dict[str, Mapping[str, Tensor]] = {
        "tree": run.tree.state_dict(),
        "best_tree": run.best_tree.state_dict(),
        "notes": notes,
        "run": {
            "best": run.best,
            "active": run.active,
            "n_passes": torch.tensor(run.n_passes),
            "finished": torch.tensor(run.finished),
        },
    }
    arrays = {
        f"{part}/{name}": value.detach().cpu().numpy()
        for part, values in parts.items()
        for name, value in values.items()
    }
    return arrays | {f"history/{name}": values for name, values in run.history.to_arrays().items()}


def restore(run: TrainingRun, arrays: Arrays) -> None:
    """Bring a run with the same initial solutions to the state of :func:`to_arrays`."""
    parts: dict[str, dict[str, npt.NDArray[Any]]] = defaultdict(dict)
    for key, array in arrays.items():
        part, name = key.split("/", 1)
        parts[part][name] = array
    tensors = {
        part: {name: torch.from_numpy(array).to(run.best.device) for name, array in parts[part].items()}
        for part in ("tree", "best_tree", "notes", "run")
    }
    run.tree.load_state_dict(tensors["tree"])
    run.best_tree.load_state_dict(tensors["best_tree"])
    run.notes = tensors["notes"]
    run.best, run.active = tensors["run"]["best"], tensors["run"]["active"]
    run.n_passes, run.finished = int(tensors["run"]["n_passes"]), bool(tensors["run"]["finished"])
    run.history = History.from_arrays(parts["history"])
