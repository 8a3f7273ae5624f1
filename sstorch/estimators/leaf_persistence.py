"""Exact trees whose leaves are rows of arrays: how they are kept on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted

from sstorch.estimators.exact_base import ExactTree
from sstorch.estimators.folder import read_folder
from sstorch.estimators.settings import check_device
from sstorch.estimators.tree_persistence import parameters_of, read_tree, write_tree
from sstorch.estimators.tree_search import SearchSettings
from sstorch.exceptions import FormatError

VERSION = 1


class ArrayLeaves(ExactTree):
    """Base class of exact trees that hold a row of each of some arrays per leaf; not for use by itself.

    A subclass names its file format, the attributes that are such arrays, and the one, if any, that names
    classes or treatments; further frames of numbers and numbers are kept where the fit has made them.
    """

    _format: ClassVar[str]
    _arrays: ClassVar[tuple[str, ...]]
    _labels: ClassVar[str | None] = None
    _tables: ClassVar[tuple[str, ...]] = ()
    _numbers: ClassVar[tuple[str, ...]] = ()

    def _check(self) -> SearchSettings:
        return SearchSettings(**SearchSettings.common(**self.get_params(deep=False)))

    def save(self, path: str | Path) -> None:
        """Write the fitted tree into a folder: ``model.json`` and ``tensors.safetensors``, no pickle.

        Raises:
            ConfigError: the folder cannot be written.
        """
        check_is_fitted(self, "tree_")
        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in self._arrays}
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        label = self._labels
        state: dict[str, Any] = {} if label is None else {label: _labels_state(getattr(self, label))}
        tables = [name for name in self._tables if hasattr(self, name)]
        state["tables"] = tables
        state["numbers"] = {name: float(getattr(self, name)) for name in self._numbers if hasattr(self, name)}
        write_tree(self, Path(path), self._format, VERSION, state, tensors, tuple(tables))

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> Self:
        """Read a tree written by :meth:`save`; ``device`` is where it would be fitted anew.

        Raises:
            FormatError: files are missing, altered or of an unknown format version.
            ConfigError: torch does not see the device.
        """
        check_device(device)
        folder = Path(path)
        state, tensors = read_folder(folder, cls._format, VERSION)
        try:
            tree = cls(**parameters_of(state, device))
            read_tree(tree, tree._check(), state, tensors, state["tables"])
            for name, number in state["numbers"].items():
                setattr(tree, name, float(number))
            for name in cls._arrays:
                array = tensors[name].numpy()
                if len(array) != tree.tree_.n_leaves:
                    raise ValueError(f"{name} has {len(array)} rows for {tree.tree_.n_leaves} leaves")
                setattr(tree, name, array)
            if cls._labels is not None:
                setattr(tree, cls._labels, _labels(state[cls._labels]))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"{folder} is incomplete or altered: {error}") from error
        return tree


def _labels_state(labels: npt.NDArray[Any]) -> dict[str, Any]:
    return {"dtype": labels.dtype.str if labels.dtype.kind != "O" else "object", "values": labels.tolist()}


def _labels(state: dict[str, Any]) -> npt.NDArray[Any]:
    return np.array(state["values"], dtype=state["dtype"])
