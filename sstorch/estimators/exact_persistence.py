"""Fitted exact trees on disk."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from sstorch.data import Schema
from sstorch.estimators.exact_search import ExactSettings
from sstorch.estimators.folder import read_folder, write_folder
from sstorch.exceptions import FormatError
from sstorch.optimal import Binarizer, BinaryTree, Rule
from sstorch.optimal.leaf_curves import LeafCurves

if TYPE_CHECKING:
    from sstorch.estimators.exact_tree import ExactSurvivalTree

FORMAT = "sstorch.optimal_survival_tree"
FORMAT_VERSION = 1

_NUMBERS = ("loss_", "objective_", "gap_", "zero_time_")
_CURVES = ("times", "survival", "cumulative_hazard")


def save_exact_tree(estimator: ExactSurvivalTree, settings: ExactSettings, folder: Path) -> None:
    """Write a fitted tree into ``folder``, which is made if missing.

    Raises:
        ConfigError: if the folder cannot be written.
    """
    tree, curves = estimator.tree_, estimator.curves_
    state = {
        "parameters": _plain(settings),
        "rules": [rule.to_dict() for rule in estimator.rules_],
        "tree": {
            "feature": tree.feature.tolist(),
            "absent": tree.absent.tolist(),
            "present": tree.present.tolist(),
            "names": list(tree.names),
        },
        "schema": estimator.schema_.to_dict(),
        "n_samples_fit": estimator.n_samples_fit_,
        **{name: float(getattr(estimator, name)) for name in _NUMBERS},
    }
    tensors = {f"curves.{name}": torch.from_numpy(getattr(curves, name).copy()) for name in _CURVES}
    for key in ("leaf_table_", "optima_", "path_"):
        table: pd.DataFrame = getattr(estimator, key)
        state[key] = list(table.columns)
        tensors |= {
            f"{key}.{j}": torch.from_numpy(table.iloc[:, j].to_numpy().copy()) for j in range(table.shape[1])
        }
    write_folder(folder, FORMAT, FORMAT_VERSION, state, tensors)


def load_exact_tree(kind: type[Any], folder: Path, device: str) -> Any:
    """Read a tree of class ``kind`` written by :func:`save_exact_tree`.

    Raises:
        FormatError: files are missing, altered or of an unknown format version.
        ConfigError: the device does not exist.
    """
    state, tensors = read_folder(folder, FORMAT, FORMAT_VERSION)
    try:
        parameters = dict(state["parameters"])
        if isinstance(parameters["binarize"], dict):
            parameters["binarize"] = Binarizer(**parameters["binarize"])
        parameters["device"] = device
        settings = ExactSettings.check(**parameters)
        estimator = kind(**parameters)
        estimator.rules_ = [Rule.from_dict(rule) for rule in state["rules"]]
        estimator.tree_ = _tree(state["tree"], len(estimator.rules_))
        estimator.schema_ = Schema.from_dict(state["schema"])
        estimator.n_samples_fit_ = int(state["n_samples_fit"])
        for name in _NUMBERS:
            setattr(estimator, name, float(state[name]))
        for key in ("leaf_table_", "optima_", "path_"):
            setattr(estimator, key, _table(state[key], key, tensors))
        estimator.curves_ = _curves(tensors, estimator.tree_.n_leaves)
        names = estimator.schema_.columns
        if unknown := {rule.column for rule in estimator.rules_} - set(names):
            raise ValueError(f"rules about unknown columns {sorted(unknown)}")
    except (KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{folder} is incomplete or altered: {error}") from error
    estimator.leaf_table_.index = pd.RangeIndex(len(estimator.leaf_table_), name="leaf")
    estimator.event_times_ = estimator.curves_.times
    estimator.feature_names_in_ = np.asarray(names, dtype=object)
    estimator.n_features_in_ = len(names)
    estimator._settings = settings
    return estimator


def _plain(settings: ExactSettings) -> dict[str, Any]:
    """The settings as the constructor's arguments, in a form that JSON can hold."""
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    binarizer: Binarizer | None = settings.binarize
    if binarizer is None:
        return {**values, "binarize": False}
    own = binarizer.get_params()
    return {**values, "binarize": own["preset"] if own == Binarizer(own["preset"]).get_params() else own}


def _tree(state: dict[str, Any], n_rules: int) -> BinaryTree:
    """The tree, if its nodes are one in preorder.

    Raises:
        ValueError: they are not.
    """
    feature, absent, present = (
        np.array(state[key], dtype=np.int64) for key in ("feature", "absent", "present")
    )
    names = tuple(str(name) for name in state["names"])
    inner = np.flatnonzero(feature >= 0)
    children = np.concatenate([absent[inner], present[inner]])
    if (
        len(names) != n_rules
        or not len(feature) == len(absent) == len(present)
        or (feature < -1).any()
        or (feature >= n_rules).any()
        or not np.array_equal(np.sort(children), np.arange(1, len(feature)))
        or (children <= np.concatenate([inner, inner])).any()
    ):
        raise ValueError("the nodes do not form a tree over its rules")
    return BinaryTree(feature, absent, present, names)


def _curves(tensors: dict[str, Tensor], n_leaves: int) -> LeafCurves:
    times, survival, hazard = (_array(tensors[f"curves.{name}"]) for name in _CURVES)
    shape = (n_leaves, len(times))
    if survival.shape != shape or hazard.shape != shape:
        raise ValueError(f"curves of shape {survival.shape} and {hazard.shape}, expected {shape}")
    return LeafCurves(times, survival, hazard)


def _table(names: list[str], key: str, tensors: dict[str, Tensor]) -> pd.DataFrame:
    return pd.DataFrame({str(name): tensors[f"{key}.{j}"].numpy() for j, name in enumerate(names)})


def _array(tensor: Tensor) -> npt.NDArray[np.float64]:
    values: npt.NDArray[np.float64] = tensor.numpy()
    return values
