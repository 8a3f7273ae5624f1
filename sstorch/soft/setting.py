"""Declaration of a setting, and rules that check its values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from sstorch.checks import check_choice, check_device, check_integer, is_number_of
from sstorch.exceptions import ConfigError
from sstorch.objective import GatePenalty, L2Parity, LeafPenalty, Penalty, RowPenalty
from sstorch.objective.parity import FAIRNESS
from sstorch.optim import Joint, Leaves, Nodec, NodecJoint, Trainer

TRAINERS: dict[str, Callable[[], Trainer]] = {
    "nodec": Nodec,
    "joint": Joint,
    "nodec+joint": NodecJoint,
    "leaves": Leaves,
}

# Takes the name of a setting and a value for it, and returns the value as its plain type, or refuses it.
Rule = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Setting:
    """Declaration of a setting.

    Attributes:
        default: of a tree.
        rule: checks a value.
    """

    default: Any
    rule: Rule


def setting(default: object, rule: Rule) -> Any:
    """Declare a field of :class:`BatchSettings`; see :class:`Setting`."""
    return field(metadata={"setting": Setting(default, rule)})


def integer_from(least: int) -> Rule:
    """An integer that is at least ``least``."""
    return lambda name, value: check_integer(name, value, least)


def value_rule(check: Callable[[Any], Any]) -> Rule:
    """What a function makes of the value, whose messages have the name already."""
    return lambda name, value: check(value)


def device_rule(name: str, value: Any) -> str:
    """A device that torch sees."""
    check_device(value)
    return str(value)


def checked_elsewhere(name: str, value: Any) -> Any:
    """A value that is checked where it is used."""
    return value


def coefficient(name: str, value: Any) -> float:
    """The coefficient of a penalty: a finite number >= 0."""
    if not is_number_of(value, Real) or not math.isfinite(value) or value < 0:
        raise ConfigError(f"{name} must be a finite number >= 0, got {value!r}")
    return float(value)


def small_share(name: str, value: Any) -> float:
    """A number in [0, .5), which two sides of a gate can have."""
    if not is_number_of(value, Real) or not 0 <= float(value) < 0.5:
        raise ConfigError(f"{name} must be a share in [0, .5), got {value!r}")
    return float(value)


def one_of(choices: Sequence[str]) -> Rule:
    """One of a few names."""

    def rule(name: str, value: Any) -> Any:
        check_choice(value, name, choices)
        return value

    return rule


def trainer_rule(name: str, value: Any) -> Trainer:
    """The name of a trainer, or its settings."""
    if isinstance(value, str) and value in TRAINERS:
        return TRAINERS[value]()
    if isinstance(value, Trainer):
        return value
    raise ConfigError(
        f"trainer must be one of {', '.join(TRAINERS)}, or settings such as Nodec(), got {value!r}"
    )


def fairness_rule(name: str, value: Any) -> L2Parity | None:
    """The name of a fairness penalty, its settings, or None."""
    if value is None or isinstance(value, L2Parity):
        return value
    if isinstance(value, str) and value in FAIRNESS:
        return FAIRNESS[value]
    raise ConfigError(
        f"fairness must be None, one of {', '.join(FAIRNESS)}, or settings such as L2Parity(), got {value!r}"
    )


def column_rule(name: str, value: Any) -> str | None:
    """The name of a column, or None."""
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{name} must be the name of a column, or None, got {value!r}")
    return value


def columns_rule(name: str, value: Any) -> tuple[str, ...]:
    """Names of columns."""
    if isinstance(value, str) or not all(isinstance(each, str) for each in value):
        raise ConfigError(f"{name} must be a list of names of columns, got {value!r}")
    return tuple(dict.fromkeys(value))


def own_penalties_rule(name: str, value: Any) -> tuple[Penalty, ...]:
    """Penalties that are no part of this package."""
    if not isinstance(value, Sequence):
        raise ConfigError(f"penalties.own must be a list of penalties, got {value!r}")
    for each in value:
        if not isinstance(each, LeafPenalty | GatePenalty | RowPenalty):
            raise ConfigError(
                f"penalties.own must hold LeafPenalty, GatePenalty or RowPenalty objects, got {each!r}"
            )
    return tuple(value)
