"""A trained soft tree as JSON and safetensors hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from sstorch.data import Preprocessor
from sstorch.data.time_unit import check_time_unit
from sstorch.exceptions import ConfigError, FormatError
from sstorch.fitted.model import EVENT
from sstorch.fitted.tree import FittedTree
from sstorch.nn import FAMILIES, HazardFamily, SoftTree, make_family


def tree_state(tree: FittedTree) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The state of a tree as JSON and safetensors can hold it; :func:`tree_of_state` takes it back.

    Raises:
        ConfigError: the leaf is a family that is not in the registry, which no file could rebuild.
    """
    families = {name: module.family for name, module in tree.hazards.items()}
    for family in families.values():
        if family.name not in FAMILIES or type(FAMILIES[family.name]()) is not type(family):
            raise ConfigError(
                f"leaf family {type(family).__name__} is not registered and could not be loaded again; "
                "put @register_family above its class"
            )
    state = {
        "leaves": [
            {"cause": name, "name": family.name, "options": family.options()}
            for name, family in families.items()
        ],
        "depth": tree.module.topology.depth,
        "prediction": tree.prediction,
        "preprocessing": tree.preprocessor,
        "time_unit": tree.time_unit,
        "time_varying": tree.time_varying,
        "event_times": tree.event_times.tolist(),
        "groups": tree.group_numbers.tolist(),
    }
    tensors = {
        f"{number}.{name}": tensor
        for number, module in enumerate(tree.hazards.values(), 1)
        for name, tensor in module.state_dict().items()
    }
    return state, tensors


def tree_of_state(state: Mapping[str, Any], tensors: Mapping[str, Tensor], device: str) -> FittedTree:
    """The tree of a state, on a device.

    What an altered state raises is of any kind: see :func:`sstorch.files.reading`.
    """
    preprocessor: Preprocessor = state["preprocessing"]
    hazards = {}
    for number, leaf in enumerate(state["leaves"], 1):
        own = {
            name.removeprefix(f"{number}."): tensor
            for name, tensor in tensors.items()
            if name.startswith(f"{number}.")
        }
        module = hazards[str(leaf["cause"])] = SoftTree(
            len(preprocessor.leaf_features),
            state["depth"],
            _family_of(leaf),
            device=device,
            dtype=own["log_time_scale"].dtype,
            n_gate_features=len(preprocessor.gate_features),
            start="zeros",
        )
        module.load_state_dict(own)
    if not hazards:
        raise ValueError("there is no hazard")
    tree = FittedTree(
        hazards,
        preprocessor,
        state["prediction"],
        check_time_unit(state["time_unit"]),
        bool(state["time_varying"]),
        np.array(state["event_times"], dtype=np.float64),
        np.array(state["groups"], dtype=np.int64),
    )
    if sorted(tree.group_numbers) != list(range(1, len(tree.module.topology.leaves) + 1)):
        raise ValueError("groups are not the numbers of the leaves")
    return tree


def leaves_of_state(state: Mapping[str, Any]) -> HazardFamily | dict[str, HazardFamily]:
    """The families of a state as they were requested, by cause with competing causes."""
    families = {str(leaf["cause"]): _family_of(leaf) for leaf in state["leaves"]}
    return families[EVENT] if tuple(families) == (EVENT,) else families


def _family_of(leaf: Mapping[str, Any]) -> HazardFamily:
    if leaf["name"] not in FAMILIES:
        raise FormatError(
            f"unknown leaf {leaf['name']!r}: first import the module that defines it under @register_family; "
            "if there is none, the file is incomplete or altered"
        )
    return make_family(leaf["name"], **leaf["options"])
