"""A search on disk: its table, and the chosen tree in a folder of its own."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch

from sstorch.estimators.folder import JSON_NAME, read_folder, write_folder
from sstorch.estimators.soft_survival_tree import SoftSurvivalTree
from sstorch.exceptions import FormatError

if TYPE_CHECKING:
    from sstorch.estimators.soft_survival_tree_cv import SoftSurvivalTreeCV

FORMAT = "sstorch.soft_survival_tree_cv"
FORMAT_VERSION = 1
TREE_FOLDER = "tree"


def save_search(estimator: SoftSurvivalTreeCV, folder: Path) -> None:
    """Write a fitted search into ``folder``, which is made if missing.

    Raises:
        ConfigError: if the folder cannot be written, or the leaf could not be loaded again.
    """
    table = estimator.cv_results_
    numbers = [name for name in table if pd.api.types.is_numeric_dtype(table[name])]
    estimator.best_estimator_.save(folder / TREE_FOLDER)
    state = {
        "scoring": estimator.scoring if isinstance(estimator.scoring, str) else None,
        "columns": [[str(name), str(table[name].dtype)] for name in table],
        "texts": {str(name): list(table[name]) for name in table if name not in numbers},
        "best_params": {name: value for name, value in estimator.best_params_.items() if name != "leaf"},
        "best_score": estimator.best_score_,
        "best_index": estimator.best_index_,
        "tree_sha256": _checksum(folder),
    }
    # Scores can be infinite, which JSON is not made for.
    tensors = {str(name): torch.as_tensor(table[name].to_numpy()) for name in numbers}
    tensors["folds_"] = torch.as_tensor(estimator.folds_)
    write_folder(folder, FORMAT, FORMAT_VERSION, state, tensors)


def load_search(kind: type[SoftSurvivalTreeCV], folder: Path, device: str) -> SoftSurvivalTreeCV:
    """Read a search of class ``kind`` written by :func:`save_search`.

    Raises:
        FormatError: files are missing, altered, of two searches or of an unknown format version.
        ConfigError: the device does not exist.
    """
    state, tensors = read_folder(folder, FORMAT, FORMAT_VERSION)
    tree = SoftSurvivalTree.load(folder / TREE_FOLDER, device)
    try:
        if _checksum(folder) != state["tree_sha256"]:
            raise FormatError(f"{folder / TREE_FOLDER} is the tree of another search")
        columns: dict[str, Any] = {
            name: pd.Series(state["texts"].get(name, tensors.get(name)), dtype=dtype)
            for name, dtype in state["columns"]
        }
        parameters = {"leaf": tree.leaf, **state["best_params"]}
        estimator = kind(**parameters)
        if state["scoring"] is not None:
            estimator.scoring = state["scoring"]
        estimator.score_name_ = state["scoring"] or "score"
        estimator.best_params_ = {name: parameters[name] for name in columns if name in parameters}
        estimator.best_score_ = float(state["best_score"])
        estimator.best_index_ = int(state["best_index"])
        estimator.folds_ = tensors["folds_"].numpy()
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{folder} is incomplete or altered: {error}") from error
    estimator.cv_results_ = pd.DataFrame(columns)
    estimator.best_estimator_ = tree
    return estimator


def _checksum(folder: Path) -> str:
    """Of the tree's JSON, which names the checksum of its tensors."""
    return hashlib.sha256((folder / TREE_FOLDER / JSON_NAME).read_bytes()).hexdigest()
