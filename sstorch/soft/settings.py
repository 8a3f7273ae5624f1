"""Settings of a batch of trees: each is declared once, with its default and its rule."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any, Final, Literal, get_args

import torch

from sstorch.checks import check_choice, check_device, check_integer, is_number_of
from sstorch.data import Schema, SurvivalData
from sstorch.data.design_matrix import CODED_LEVELS
from sstorch.data.encodings import (
    ColumnEncodings,
    Encodings,
    Interactions,
    Linear,
    Monotone,
    Smooth,
    parse_interactions,
    parse_monotone,
)
from sstorch.exceptions import ConfigError
from sstorch.fitted.tree import PREDICTIONS, Prediction
from sstorch.nn import HazardFamily, Spline, Topology, make_family
from sstorch.objective import GatePenalty, L2Parity, LeafPenalty, Penalty, RowPenalty
from sstorch.objective.parity import FAIRNESS
from sstorch.optim import Joint, Leaves, Nodec, NodecJoint, Trainer
from sstorch.soft.teacher import Teacher

# Names of families and of trainers, or the objects.
Leaf = str | HazardFamily | Mapping[str, str | HazardFamily]
Init = Literal["random", "kmeans", "cox", "distilled", "distilled+random"]
# As users give the coefficient of a penalty; "estimated" by marginal likelihood.
Coefficient = float | Literal["estimated"]
ESTIMATED: Final = "estimated"
# Where gates stay "spline_po", of competing causes "spline_ph"; where gates are trained "spline_ph" of a
# cause of _MIN_EVENTS events or more, else "log_logistic".
AUTO: Final = "auto"
_MIN_EVENTS = 150
# With a ridge that is a smaller number.
_ROUGHNESS = 1e-2

DTYPES = {"float64": torch.float64, "float32": torch.float32}
INITS: tuple[str, ...] = get_args(Init)
TRAINERS: dict[str, Callable[[], Trainer]] = {
    "nodec": Nodec,
    "joint": Joint,
    "nodec+joint": NodecJoint,
    "leaves": Leaves,
}

# From the name of a setting and its value to the value as its plain type; raises ConfigError.
Rule = Callable[[str, Any], Any]


def setting(default: Any, rule: Rule | None = None) -> Any:
    """A field of :class:`BatchSettings`; a value without a rule is checked where it is used."""
    return field(default=default, metadata={"rule": rule})


def coefficient(name: str, value: Any) -> float:
    """A finite number >= 0."""
    if not is_number_of(value, Real) or not math.isfinite(value) or value < 0:
        raise ConfigError(f"{name} must be a finite number >= 0, got {value!r}")
    return float(value)


def _estimable(name: str, value: Any) -> Coefficient:
    if isinstance(value, str) and value != ESTIMATED:
        raise ConfigError(f"{name} must be 'estimated' or a finite number >= 0, got {value!r}")
    return ESTIMATED if isinstance(value, str) else coefficient(name, value)


def _small_share(name: str, value: Any) -> float:
    if not is_number_of(value, Real) or not 0 <= float(value) < 0.5:
        raise ConfigError(f"{name} must be a share in [0, .5), got {value!r}")
    return float(value)


def _one_of(choices: Sequence[str]) -> Rule:
    def rule(name: str, value: Any) -> Any:
        check_choice(value, name, choices)
        return value

    return rule


def _named_or_object(kind: type, named: Mapping[str, Any], example: str) -> Rule:
    """One of some names, which stand for objects or make them, or an object of a kind."""

    def rule(name: str, value: Any) -> Any:
        if isinstance(value, str) and value in named:
            return named[value]() if callable(named[value]) else named[value]
        if isinstance(value, kind):
            return value
        raise ConfigError(
            f"{name} must be one of {', '.join(named)}, or settings such as {example}, got {value!r}"
        )

    return rule


def _device(name: str, value: Any) -> str:
    check_device(value)
    return str(value)


def _column(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{name} must be the name of a column, or None, got {value!r}")
    return value


def _own_penalties(name: str, value: Any) -> tuple[Penalty, ...]:
    kinds = LeafPenalty | GatePenalty | RowPenalty
    if not isinstance(value, Sequence) or not all(isinstance(each, kinds) for each in value):
        raise ConfigError(
            f"penalties.own must be a list of LeafPenalty, GatePenalty or RowPenalty objects, got {value!r}"
        )
    return tuple(value)


def _leaf(name: str, value: Any) -> Leaf:
    for leaf in value.values() if isinstance(value, Mapping) else (value,):
        if leaf != AUTO:
            make_family(leaf)
    checked: Leaf = value
    return checked


_fairness = _named_or_object(L2Parity, FAIRNESS, "L2Parity(), or None")


@dataclass(frozen=True)
class Coefficients:
    """Settings that can differ between trees of a batch: coefficients of penalties, each >= 0."""

    ridge: float = 0.0
    gate_ridge: float = 0.0
    rho: float = 0.0
    roughness: float = 0.0


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """All settings of the trees of a batch, checked by :meth:`check`; the data are separate."""

    depth: int = setting(2, lambda name, value: Topology(value).depth)
    leaf: Leaf = setting(AUTO, _leaf)
    n_starts: int = setting(1, lambda name, value: check_integer(name, value, 1))
    trainer: Trainer = setting(Leaves(), _named_or_object(Trainer, TRAINERS, "Nodec()"))
    init: str = setting("distilled", _one_of(INITS))
    ridge: Coefficient = setting(ESTIMATED, _estimable)
    gate_ridge: float = setting(1e-3, coefficient)
    prediction: Prediction = setting("hbp", _one_of(PREDICTIONS))
    numeric: ColumnEncodings = setting("auto", lambda name, value: ColumnEncodings.of(value, name))
    gate_numeric: ColumnEncodings = setting("linear", lambda name, value: ColumnEncodings.of(value, name))
    interactions: Interactions = setting((), lambda name, value: parse_interactions(value))
    monotone: Monotone = setting(None, lambda name, value: parse_monotone(value))
    offset: str | None = setting(None, _column)
    strata: str | None = setting(None, _column)
    roughness: Coefficient = setting(ESTIMATED, _estimable)
    gate_charge: float = setting(4.0, coefficient)
    min_leaf: float = setting(0.1, _small_share)
    device: str = setting("cpu", _device)
    dtype: str = setting("float64", _one_of(tuple(DTYPES)))
    seed: int = setting(0)
    fairness: L2Parity | None = setting(
        None, lambda name, value: None if value is None else _fairness(name, value)
    )
    rho: float = setting(0.0, coefficient)
    teacher: Teacher | str | None = setting(None)
    trains_gates: bool = setting(False)
    only_if_needed: bool = setting(False)
    own: tuple[Penalty, ...] = setting((), _own_penalties)

    @classmethod
    def check(cls, **values: Any) -> BatchSettings:
        """Validate every value and convert it to its plain type."""
        given = cls(**values)
        rules = {item.name: item.metadata["rule"] for item in fields(cls) if item.metadata["rule"]}
        checked = replace(given, **{name: rule(name, getattr(given, name)) for name, rule in rules.items()})
        leaves = checked.leaf.values() if isinstance(checked.leaf, Mapping) else (checked.leaf,)
        checked._check_together([make_family(leaf) for leaf in leaves if leaf != AUTO])
        return checked

    def _check_together(self, families: Sequence[HazardFamily]) -> None:
        """Raise ConfigError for settings that exclude each other."""
        fixed = " or ".join(map(repr, self.fixed_columns))
        if self.estimated and self.init != "distilled":
            raise ConfigError(f"init={self.init!r} does not support estimated penalties: give ridge a number")
        if self.estimated and self.roughness != ESTIMATED:
            raise ConfigError(f"roughness={self.roughness:g} needs a number for ridge, got 'estimated'")
        if self.init == "cox" and not all(isinstance(family, Spline) for family in families):
            raise ConfigError(f"init='cox' is for spline leaves, got leaf={self.leaf!r}; use init='random'")
        if self.min_leaf and self.init != "distilled" and isinstance(self.trainer, Leaves):
            raise ConfigError(
                f"min_leaf={self.min_leaf:g} needs init='distilled', or a trainer that moves gates"
            )
        if self.monotone and any(family.ancillary != "constant" for family in families):
            raise ConfigError("monotone needs shapes that are constant: use ancillary='constant'")
        if any(family.ancillary == "strata" for family in families):
            raise ConfigError("ancillary='strata' follows from Columns(strata=...): leave it out")
        if fixed and (self.depth or not self.keeps_gates or self.offset == self.strata):
            raise ConfigError(
                f"an offset or strata ({fixed}) need SurvivalRegression and a column each; for groups give "
                "PrognosticTree(teacher=SurvivalRegression(columns=Columns(...)))"
            )
        if fixed and (self.restricted or any(each.ancillary != "constant" for each in families)):
            raise ConfigError(
                f"an offset or strata ({fixed}) do not support monotone, fairness, custom penalties and "
                "ancillary='linear': leave one of the two out"
            )
        if fixed and (self.interactions == "all" or any(self.offset in pair for pair in self.interactions)):
            raise ConfigError(f"interactions must name pairs of columns without the offset ({fixed})")
        if self.fairness is None and self.rho != 0:
            raise ConfigError(f"rho={self.rho!r} needs a fairness penalty, such as fairness='l2'")
        # A penalty that jumps where gates move.
        frozen = self.fairness is not None and self.fairness.gates == "frozen"
        if frozen and not isinstance(self.trainer, Nodec | Leaves):
            raise ConfigError(
                f"{type(self.trainer).__name__} moves gates and leaves together, in which the penalty "
                "jumps: use fairness='l2_relaxed', or trainer='nodec'"
            )

    def check_fixed_columns(self, schema: Schema) -> None:
        """Raise ConfigError if offset or strata are no columns, or not of the right kind."""
        for what, name in (("offset", self.offset), ("strata", self.strata)):
            levels = schema.categories.get(name) if name is not None else None
            if name is not None and name not in schema.columns:
                raise ConfigError(f"{what} names {name!r}; the columns are {', '.join(schema.columns)}")
            if what == "offset" and levels is not None:
                raise ConfigError(f"offset: column {name!r} must be numeric, got a categorical one")
            if what == "strata" and name is not None and not 0 < len(levels or ()) <= CODED_LEVELS:
                got = f"{len(levels)} categories: join some" if levels else "a numeric one: use astype(str)"
                raise ConfigError(
                    f"strata: column {name!r} must be categorical with at most {CODED_LEVELS} categories, "
                    f"got {got}"
                )

    def check_columns(self, data: SurvivalData) -> None:
        """Raise ConfigError early if a column named in encodings is missing or has the wrong type."""
        schema = Schema.of(data.frame)
        self.check_fixed_columns(schema)
        self.encodings.check_columns(schema.columns, schema.categories)

    def facts(self) -> dict[str, object]:
        """All settings that affect training, by name, except the trainer; leaves as family objects."""
        facts = {item.name: getattr(self, item.name) for item in fields(self)}
        del facts["trainer"], facts["prediction"]
        if isinstance(self.leaf, Mapping):
            return facts | {"leaf": {cause: make_family(each) for cause, each in self.leaf.items()}}
        return facts | {"leaf": self.leaf if self.leaf == AUTO else make_family(self.leaf)}

    def for_cause(self, cause: str | None, n_events: int) -> BatchSettings:
        """The settings with the leaf of one cause with so many events, or of the only event."""
        leaf = self.leaf
        if isinstance(leaf, Mapping):
            if cause is None or cause not in leaf:
                missing = f"there is none of {cause}" if cause else "y has one event"
                raise ConfigError(f"leaf names leaves of {', '.join(leaf)}, and {missing}")
            leaf = leaf[cause]
        if leaf == AUTO:
            smooth = self.keeps_gates or self.estimated
            leaf = "spline_po" if smooth else "log_logistic"
            if cause and (smooth or n_events >= _MIN_EVENTS):
                leaf = "spline_ph"
        return replace(self, leaf=leaf)

    @property
    def family(self) -> HazardFamily:
        """The hazard family, for one event; see :meth:`for_cause`. Its shapes differ between strata."""
        assert not isinstance(self.leaf, Mapping)
        family = make_family(self.leaf)
        if self.strata is not None:
            family = copy.deepcopy(family)
            family.ancillary = "strata"
        return family

    @property
    def fixed_columns(self) -> list[str]:
        """The columns of the offset and the strata, if any."""
        return [name for name in (self.offset, self.strata) if name is not None]

    @property
    def keeps_gates(self) -> bool:
        """True if gates are distilled and not trained: a regression, or groups."""
        return self.init == "distilled" and isinstance(self.trainer, Leaves)

    @property
    def estimated(self) -> bool:
        """True if penalties maximise the evidence."""
        return self.ridge == ESTIMATED

    @property
    def restricted(self) -> bool:
        """True if something other than a prior restricts the coefficients."""
        return bool(self.monotone) or self.fairness is not None or bool(self.own)

    @property
    def plainly_estimated(self) -> bool:
        """True if Newton's method trains the leaves, which supports no restrictions."""
        plain = self.keeps_gates and not self.restricted and self.family.ancillary != "linear"
        return self.estimated and plain

    @property
    def encodings(self) -> Encodings:
        """Encodings of the columns for gates and leaves; without gates only for leaves."""
        numeric = self.numeric
        if self.offset is not None:
            numeric = replace(numeric, named=(*numeric.named, (self.offset, Linear())))
        leaves, gates = numeric.settled(Smooth()), self.gate_numeric.settled(Linear())
        return Encodings(leaves, gates if self.depth else leaves, self.interactions, self.monotone)

    @property
    def coefficients(self) -> Coefficients:
        """Coefficients of the penalties; zero if a penalty has no effect."""
        values = {item.name: getattr(self, item.name) for item in fields(Coefficients)}
        if self.estimated:  # others take their place
            values |= {"ridge": 0.0, "roughness": 0.0}
        elif self.roughness == ESTIMATED:
            values["roughness"] = max(_ROUGHNESS, values["ridge"])
        return Coefficients(**values | ({"roughness": 0.0} if self.encodings.are_linear else {}))
