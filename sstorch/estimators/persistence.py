"""Fitted trees on disk: safetensors for the numbers, JSON for the rest, no pickle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sstorch.data import Preprocessor
from sstorch.estimators.folder import read_folder, write_folder
from sstorch.estimators.settings import check_device
from sstorch.exceptions import ConfigError, FormatError
from sstorch.monitoring import History
from sstorch.nn import FAMILIES, SoftTree, make_family

if TYPE_CHECKING:
    from sstorch.estimators.soft_survival_tree import SoftSurvivalTree

FORMAT = "sstorch.soft_survival_tree"
FORMAT_VERSION = 3

# Parameters that only training reads and that need not be plain values are not kept.
_KEPT = {
    "n_starts": int,
    "init": str,
    "ridge": float,
    "gate_ridge": float,
    "fused": float,
    "holdout": float,
    "gate_sparsity": float,
    "prediction": str,
    "missing_numbers": str,
    "missing_categories": str,
}


def save_tree(estimator: SoftSurvivalTree, folder: Path) -> None:
    """Write a fitted tree into ``folder``, which is made if missing.

    Raises:
        ConfigError: if the folder cannot be written, or the leaf is a family that is not in the registry,
            which no file could rebuild.
    """
    module = estimator.module_
    family = module.family
    if family.name not in FAMILIES or type(FAMILIES[family.name]()) is not type(family):
        raise ConfigError(
            f"leaf family {type(family).__name__} is not registered and could not be loaded again; "
            "put @register_family above its class"
        )
    state = {
        "leaf": {"name": family.name, "options": family.options()},
        "parameters": {
            # Of the fitted tree itself: parameters may have been set anew since.
            "depth": module.topology.depth,
            "dtype": str(module.log_time_scale.dtype).removeprefix("torch."),
            **{name: kind(getattr(estimator, name)) for name, kind in _KEPT.items()},
        },
        "preprocessing": estimator.preprocessor_.to_dict(),
        "feature_names": [str(name) for name in estimator.feature_names_in_],
        "event_times": estimator.event_times_.tolist(),
        "zero_time": estimator.zero_time_,
        "objective": estimator.objective_,
        "node_table": _split_table(estimator.node_table_),
        "metrics": {str(name): float(value) for name, value in estimator.metrics_.items()},
    }
    write_folder(folder, FORMAT, FORMAT_VERSION, state, module.state_dict())


def load_tree(kind: type[SoftSurvivalTree], folder: Path, device: str) -> SoftSurvivalTree:
    """Read a tree of class ``kind`` written by :func:`save_tree`; its ``history_`` is empty.

    ``trainer``, ``random_state`` and ``verbose`` are those of a new estimator: they are not kept.

    Raises:
        FormatError: files are missing, altered or of an unknown format version.
        ConfigError: the device does not exist.
    """
    check_device(device)
    state, tensors = read_folder(folder, FORMAT, FORMAT_VERSION)
    try:
        leaf = make_family(state["leaf"]["name"], **state["leaf"]["options"])
        estimator = kind(leaf=leaf, device=device, **state["parameters"])
        preprocessor = Preprocessor.from_dict(state["preprocessing"])
        constants = {name.removeprefix("family."): tensor for name, tensor in tensors.items()}
        module = SoftTree(
            len(preprocessor.feature_names_out),
            estimator.depth,
            leaf.like(constants),
            device=device,
            dtype=tensors["log_time_scale"].dtype,
        )
        module.load_state_dict(tensors)
        estimator.event_times_ = np.array(state["event_times"], dtype=np.float64)
        estimator.zero_time_ = float(state["zero_time"])
        estimator.objective_ = float(state["objective"])
        estimator.node_table_ = _join_table(state["node_table"])
        estimator.metrics_ = {str(name): float(value) for name, value in state.get("metrics", {}).items()}
        names = [str(name) for name in state["feature_names"]]
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{folder} is incomplete or altered: {error}") from error
    estimator.module_ = module
    estimator.preprocessor_ = preprocessor
    estimator.history_ = History()
    estimator.feature_names_in_ = np.asarray(names, dtype=object)
    estimator.n_features_in_ = len(names)
    return estimator


def _split_table(table: pd.DataFrame) -> dict[str, Any]:
    values = table.astype(object).where(table.notna(), None)
    return {"node": [int(node) for node in table.index], **{str(name): list(values[name]) for name in values}}


def _join_table(columns: dict[str, list[Any]]) -> pd.DataFrame:
    table = pd.DataFrame(columns).set_index("node")
    return table.astype({name: np.float64 for name in table.columns if name not in ("rows", "events")})
