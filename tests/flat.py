"""Soft estimators from flat settings, for tests that vary them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from sstorch import (
    Columns,
    GatePenalties,
    GroupPenalties,
    Penalties,
    PrognosticTree,
    SoftSurvivalTree,
    SurvivalRegression,
)
from sstorch.bench.models import SoftTreeModel, _grid
from sstorch.optim import Leaves, Trainer
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.settings import TRAINERS

# A flat `offset` is the penalty: a column of that name is given to an estimator itself.
_COLUMNS = tuple(item.name for item in fields(Columns) if item.name != "offset")
_PENALTIES: dict[type[Penalties], tuple[str, ...]] = {
    kind: tuple(item.name for item in fields(kind)) for kind in (Penalties, GroupPenalties, GatePenalties)
}
_TRAINING = ("engine",)
_SHARED = ("leaf", "device", "dtype", "random_state", "verbose", "time_unit")
_OF_GATES = ("init", "n_starts", "prediction", "min_leaf")
_ALL_PENALTIES = tuple(dict.fromkeys(name for names in _PENALTIES.values() for name in names))
_KNOWN = {"depth", "trainer", "only_if_needed", *_OF_GATES, *_SHARED, *_ALL_PENALTIES, *_COLUMNS, *_TRAINING}


def soft_tree(**values: Any) -> SoftEstimator:
    """The estimator that flat settings describe, which its class need not have; None is the default.

    A depth of 0 is a regression; gates that are distilled and stay, the default, make a prognostic tree;
    another ``init`` or ``trainer``, or ``prediction="mixture"``, a soft tree.
    """
    assert values.keys() <= _KNOWN, values.keys() - _KNOWN
    given = {name: value for name, value in values.items() if value is not None}
    trainer, init = given.get("trainer"), given.get("init")
    stays = trainer is None or trainer == "leaves" or isinstance(trainer, Leaves)
    groups = stays and init in (None, "distilled") and given.get("prediction", "hbp") == "hbp"
    shared = {name: given[name] for name in _SHARED if name in given}
    if given.get("depth", 2) == 0 and groups:
        return SurvivalRegression(
            penalties=Penalties(**_some(given, _PENALTIES[Penalties])),
            columns=Columns(**_some(given, _COLUMNS)),
            **_trainer(given, trainer or "leaves"),
            **shared,
        )
    if groups:
        return PrognosticTree(
            penalties=GroupPenalties(**_some(given, _PENALTIES[GroupPenalties])),
            columns=Columns(**_some(given, _COLUMNS)),
            **_trainer(given, trainer or "leaves"),
            **_some(given, ("depth", "only_if_needed", "min_leaf")),
            **shared,
        )
    penalties, columns = _some(given, _PENALTIES[GatePenalties]), _some(given, _COLUMNS)
    if stays and (trainer is not None or init in (None, "distilled")):  # leaves as those of groups
        trainer, columns = trainer or "leaves", {"numeric": "auto"} | columns
        init = init or "distilled"
    init = init or "random"
    return SoftSurvivalTree(
        penalties=GatePenalties(**penalties),
        columns=Columns(**{"numeric": "linear"} | columns),
        **_trainer(given, trainer or "nodec"),
        **_some(given | {"init": init}, ("depth", *_OF_GATES)),
        **shared,
    )


def soft_tree_models(
    shared: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]]
) -> list[SoftTreeModel]:
    """Models of a study by name; a list is a model for each of its values."""
    return [
        SoftTreeModel(name + suffix, soft_tree(**{**shared, **chosen}))
        for name, entry in entries.items()
        for suffix, chosen in _grid(entry)
    ]


def _some(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


def _trainer(values: Mapping[str, Any], trainer: str | Trainer) -> dict[str, Any]:
    """The trainer with the settings of training that are named."""
    options = _some(values, _TRAINING)
    if isinstance(trainer, str) and trainer in TRAINERS:
        trainer = TRAINERS[trainer]()
    return {"trainer": replace(trainer, **options) if isinstance(trainer, Trainer) and options else trainer}
