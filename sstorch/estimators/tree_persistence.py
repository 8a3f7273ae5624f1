"""What all exact trees are on disk: parameters, questions, nodes, columns, and tables of the search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sstorch.data import Schema
from sstorch.estimators.folder import write_folder
from sstorch.estimators.tree_search import SearchSettings
from sstorch.optimal import Binarizer, BinaryTree, Rule

if TYPE_CHECKING:
    from sstorch.estimators.exact_base import ExactTree

_NUMBERS = ("loss_", "objective_", "gap_")
_TABLES = ("optima_", "path_")


def write_tree(
    estimator: ExactTree,
    folder: Path,
    name: str,
    version: int,
    state: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    tables: Iterable[str] = (),
) -> None:
    """Write a fitted tree into ``folder``, which is made if missing.

    Args:
        estimator: fitted.
        folder: where to write.
        name: of the format.
        version: of the format.
        state: what the objective adds, as JSON can hold it.
        tensors: what the objective adds.
        tables: attributes that the objective adds, frames of numbers.

    Raises:
        ConfigError: if the folder cannot be written.
    """
    tree = estimator.tree_
    whole = {
        "parameters": _plain(estimator._settings),
        "rules": [rule.to_dict() for rule in estimator.rules_],
        "tree": {
            "feature": tree.feature.tolist(),
            "absent": tree.absent.tolist(),
            "present": tree.present.tolist(),
            "names": list(tree.names),
        },
        "schema": estimator.schema_.to_dict(),
        "n_samples_fit": estimator.n_samples_fit_,
        **{key: float(getattr(estimator, key)) for key in _NUMBERS},
        **state,
    }
    every = dict(tensors)
    for key in (*tables, *_TABLES):
        table: pd.DataFrame = getattr(estimator, key)
        whole[key] = list(table.columns)
        every |= {
            f"{key}.{j}": torch.from_numpy(table.iloc[:, j].to_numpy().copy()) for j in range(table.shape[1])
        }
    write_folder(folder, name, version, whole, every)


def parameters_of(state: Mapping[str, Any], device: str) -> dict[str, Any]:
    """The constructor's arguments of a saved tree.

    Raises:
        KeyError, TypeError, ValueError: they are missing or altered.
    """
    parameters = dict(state["parameters"])
    if isinstance(parameters["binarize"], dict):
        parameters["binarize"] = Binarizer(**parameters["binarize"])
    parameters["device"] = device
    return parameters


def read_tree(
    estimator: ExactTree,
    settings: SearchSettings,
    state: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    tables: Iterable[str] = (),
) -> None:
    """Give an estimator what :func:`write_tree` wrote of all trees.

    Raises:
        KeyError, TypeError, ValueError, IndexError: something is missing or altered.
    """
    estimator._settings = settings
    estimator.rules_ = [Rule.from_dict(rule) for rule in state["rules"]]
    estimator.tree_ = _tree(state["tree"], len(estimator.rules_))
    estimator.schema_ = Schema.from_dict(state["schema"])
    estimator.n_samples_fit_ = int(state["n_samples_fit"])
    for key in _NUMBERS:
        setattr(estimator, key, float(state[key]))
    for key in (*tables, *_TABLES):
        setattr(estimator, key, _table(state[key], key, tensors))
    names = estimator.schema_.columns
    if unknown := {rule.column for rule in estimator.rules_} - set(names):
        raise ValueError(f"rules about unknown columns {sorted(unknown)}")
    estimator.feature_names_in_ = np.asarray(names, dtype=object)
    estimator.n_features_in_ = len(names)


def _plain(settings: SearchSettings) -> dict[str, Any]:
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


def _table(names: list[str], key: str, tensors: Mapping[str, Tensor]) -> pd.DataFrame:
    return pd.DataFrame({str(name): tensors[f"{key}.{j}"].numpy() for j, name in enumerate(names)})
