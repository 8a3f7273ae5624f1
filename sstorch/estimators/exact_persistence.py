"""Fitted exact survival trees on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from sstorch.estimators.exact_search import ExactSettings
from sstorch.estimators.folder import read_folder
from sstorch.estimators.tree_persistence import parameters_of, read_tree, write_tree
from sstorch.exceptions import FormatError
from sstorch.optimal.leaf_curves import LeafCurves

if TYPE_CHECKING:
    from sstorch.estimators.exact_tree import ExactSurvivalTree

FORMAT = "sstorch.optimal_survival_tree"
FORMAT_VERSION = 1

_CURVES = ("times", "survival", "cumulative_hazard")


def save_exact_tree(estimator: ExactSurvivalTree, folder: Path) -> None:
    """Write a fitted tree into ``folder``, which is made if missing.

    Raises:
        ConfigError: if the folder cannot be written.
    """
    curves = estimator.curves_
    tensors = {f"curves.{name}": torch.from_numpy(getattr(curves, name).copy()) for name in _CURVES}
    state = {"zero_time_": float(estimator.zero_time_)}
    write_tree(estimator, folder, FORMAT, FORMAT_VERSION, state, tensors, ["leaf_table_"])


def load_exact_tree(kind: type[Any], folder: Path, device: str) -> Any:
    """Read a tree of class ``kind`` written by :func:`save_exact_tree`.

    Raises:
        FormatError: files are missing, altered or of an unknown format version.
        ConfigError: the device does not exist.
    """
    state, tensors = read_folder(folder, FORMAT, FORMAT_VERSION)
    try:
        parameters = parameters_of(state, device)
        estimator = kind(**parameters)
        read_tree(estimator, ExactSettings.check(**parameters), state, tensors, ["leaf_table_"])
        estimator.zero_time_ = float(state["zero_time_"])
        estimator.curves_ = _curves(tensors, estimator.tree_.n_leaves)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{folder} is incomplete or altered: {error}") from error
    estimator.leaf_table_.index = pd.RangeIndex(len(estimator.leaf_table_), name="leaf")
    estimator.event_times_ = estimator.curves_.times
    return estimator


def _curves(tensors: dict[str, Tensor], n_leaves: int) -> LeafCurves:
    times, survival, hazard = (_array(tensors[f"curves.{name}"]) for name in _CURVES)
    shape = (n_leaves, len(times))
    if survival.shape != shape or hazard.shape != shape:
        raise ValueError(f"curves of shape {survival.shape} and {hazard.shape}, expected {shape}")
    return LeafCurves(times, survival, hazard)


def _array(tensor: Tensor) -> npt.NDArray[np.float64]:
    values: npt.NDArray[np.float64] = tensor.numpy()
    return values
