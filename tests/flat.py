"""Soft estimators from flat settings, for tests that vary them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
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
from sstorch.optim import Leaves
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.settings import TRAINERS


def _names(kind: type) -> set[str]:
    return {item.name for item in fields(kind)}


# A flat `offset` is the penalty: a column of that name is given to an estimator itself.
_COLUMNS = _names(Columns) - {"offset"}
_SHARED = {"leaf", "device", "dtype", "random_state", "verbose", "time_unit"}
_OF_GATES = {"depth", "init", "n_starts", "prediction", "min_leaf"}
_PENALTIES = _names(Penalties) | _names(GroupPenalties) | _names(GatePenalties)
_KNOWN = {"trainer"} | _OF_GATES | _SHARED | _PENALTIES | _COLUMNS


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
    leaves = stays and (trainer is not None or init in (None, "distilled"))  # as those of groups
    kind, penalties, own = SoftSurvivalTree, GatePenalties, _OF_GATES
    if groups and given.get("depth", 2) == 0:
        kind, penalties, own = SurvivalRegression, Penalties, set()
    elif groups:
        kind, penalties, own = PrognosticTree, GroupPenalties, {"depth", "min_leaf"}
    else:
        numeric, init = ("auto", "distilled") if leaves else ("linear", "random")
        given = {"numeric": numeric, "init": init} | given
    trainer = trainer or ("leaves" if leaves else "nodec")
    return kind(
        penalties=penalties(**_some(given, _names(penalties))),
        columns=Columns(**_some(given, _COLUMNS)),
        trainer=TRAINERS[trainer]() if isinstance(trainer, str) and trainer in TRAINERS else trainer,
        **_some(given, own | _SHARED),
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


def _some(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}
