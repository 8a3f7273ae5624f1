"""Exact trees whose leaves are rows of arrays, on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from sstorch.estimators.folder import read_folder
from sstorch.estimators.tree_persistence import parameters_of, read_tree, write_tree
from sstorch.exceptions import FormatError

if TYPE_CHECKING:
    from sstorch.estimators.exact_base import ExactTree

VERSION = 1


def save_leaves(
    estimator: ExactTree, folder: Path, name: str, arrays: tuple[str, ...], labels: str | None = None
) -> None:
    """Write a fitted tree into ``folder``, which is made if missing.

    Args:
        estimator: fitted.
        folder: where to write.
        name: of the format.
        arrays: attributes to keep, arrays with one row for each leaf.
        labels: attribute that names classes or treatments, an array.

    Raises:
        ConfigError: if the folder cannot be written.
    """
    tensors = {key: torch.from_numpy(np.ascontiguousarray(getattr(estimator, key))) for key in arrays}
    state = {} if labels is None else {labels: _labels_state(getattr(estimator, labels))}
    write_tree(estimator, folder, name, VERSION, state, tensors)


def load_leaves(
    kind: type[Any], folder: Path, name: str, arrays: tuple[str, ...], device: str, labels: str | None = None
) -> Any:
    """Read a tree of class ``kind`` written by :func:`save_leaves`; arguments as there.

    Raises:
        FormatError: files are missing, altered or of an unknown format version.
        ConfigError: the device does not exist.
    """
    state, tensors = read_folder(folder, name, VERSION)
    try:
        estimator = kind(**parameters_of(state, device))
        read_tree(estimator, estimator._check(), state, tensors)
        for key in arrays:
            array = tensors[key].numpy()
            if len(array) != estimator.tree_.n_leaves:
                raise ValueError(f"{key} has {len(array)} rows for {estimator.tree_.n_leaves} leaves")
            setattr(estimator, key, array)
        if labels is not None:
            setattr(estimator, labels, _labels(state[labels]))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{folder} is incomplete or altered: {error}") from error
    return estimator


def _labels_state(labels: npt.NDArray[Any]) -> dict[str, Any]:
    return {"dtype": labels.dtype.str if labels.dtype.kind != "O" else "object", "values": labels.tolist()}


def _labels(state: dict[str, Any]) -> npt.NDArray[Any]:
    return np.array(state["values"], dtype=state["dtype"])
