"""What a search compares: regressions, distilled groups, and gates trained on outcomes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np

from sstorch.data import SurvivalData
from sstorch.data.encodings import ColumnEncodings
from sstorch.exceptions import ConfigError
from sstorch.nn import HazardFamily
from sstorch.soft.settings import SETTINGS, completed

# One leaf; gates distilled from it, which stay; gates that training moves.
Family = Literal["regression", "groups", "gates"]
FAMILIES: tuple[Family, ...] = get_args(Family)
# Depths compared if none are named, by family.
_DEPTHS = {"regression": (0,), "groups": (2,), "gates": (1, 2, 3, 4)}
# Of the penalty on differences between slopes of groups, if none are named: the same slopes, nearly the same,
# and slopes of their own that are held together.
_FUSED = (math.inf, 0.1, 0.01)

# What leaf="auto" stands for where times are continuous, and where they are grouped: events at no more than
# so many distinct times, as where whole years were recorded.
CONTINUOUS_LEAVES = ("log_logistic", "spline_ph", "spline_po")
GROUPED_LEAVES = ("logistic_hazard",)
MAX_GROUPS = 12
# Least share of those censored before the last event who are so at times of events, too: the leaf takes one
# who goes in the middle of an interval for free of the event until then.
_ON_GROUPS = 0.8
# What numeric="auto" stands for where there are so many events, and where there are fewer: too few to tell a
# curve from noise.
CURVED_ENCODINGS = ("linear", "log", "piecewise", "spline")
STRAIGHT_ENCODINGS = ("linear", "log")
MIN_EVENTS = 100


@dataclass(frozen=True)
class Candidate:
    """Parameters of :class:`~sstorch.SoftSurvivalTree` that are compared, by the same names.

    Attributes:
        gate_features: columns of a distilled gate; None for all, and of gates that are not distilled.
        family: what kind of tree it is.
        place: of numeric, leaf and init in their lists, and of the candidate among all.
    """

    depth: int
    leaf: str | HazardFamily
    numeric: ColumnEncodings
    init: str
    n_starts: int
    ridge: float
    gate_ridge: float
    fused: float
    roughness: float
    gate_features: int | None
    family: Family
    place: tuple[int, int, int, int]

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the estimator, encodings as text."""
        return {name: getattr(self, name) for name in SEARCHED} | {"numeric": self.numeric.plain}

    @property
    def simplicity(self) -> tuple[float, ...]:
        """Sorts candidates, the simplest first.

        Few gates, few columns in each, then straight lines before logarithms before curves, then the earlier
        encoding, leaf and start of the lists, few starts, and leaves and gates that are held together or back
        the most.
        """
        columns = math.inf if self.gate_features is None else self.gate_features
        shape = not self.numeric.is_linear, self.numeric.is_curved
        *places, number = self.place
        held = self.fused, self.gate_ridge, self.ridge, self.roughness
        return self.depth, columns, *shape, *places, self.n_starts, *(-each for each in held), number

    @property
    def batch(self) -> tuple[object, ...]:
        """The parameters that candidates of one batch have in common."""
        return self.depth, leaf_label(self.leaf), self.numeric, self.init, self.gate_features

    @property
    def settled(self) -> tuple[object, ...]:
        """The parameters that a growing search chooses at its first depth, for each leaf."""
        return self.numeric, self.ridge, self.roughness

    def row(self) -> dict[str, Any]:
        """As a row of a table."""
        told = {"leaf": leaf_label(self.leaf), "numeric": str(self.numeric)}
        if self.gate_features is None:
            told["gate_features"] = "all" if self.depth else "none"
        return {"family": self.family, **self.parameters, **told}


# Several values of these are compared; in this order candidates are listed.
SEARCHED = tuple(item.name for item in fields(Candidate) if item.name not in ("family", "place"))


def candidates(lists: Mapping[str, object], trainer: object) -> list[Candidate]:
    """Every choice of one value of each list that makes a candidate of its own.

    A single leaf has no gates to start or to hold back and nothing to be fused with: at depth 0 leaf,
    encodings and what holds these back are compared, with one start. Gates that stay have no ridge to hold
    them back, those that are not distilled no number of columns, and encodings without curves no roughness.

    Args:
        lists: values, or one, of each of ``SEARCHED``. None, of ``init``, is every start that the trainer
            leaves open; of ``depth``, ``n_starts`` and ``fused``, what is compared of each family.
        trainer: of all candidates; None for that of their start.

    Raises:
        ConfigError: a list is empty or names a value twice.
    """
    values = {name: _values(name, lists[name]) for name in SEARCHED}
    if lists["init"] is None:
        values["init"] = ["distilled", "random"] if trainer is None else [_completed(None, trainer)["init"]]
    listed: list[tuple[tuple[int, ...], dict[str, Any]]] = []
    for place, init in enumerate(values["init"]):
        own, families = _of_start(values, lists, init, trainer)
        for choice in itertools.product(*(enumerate(own[name]) for name in SEARCHED)):
            at = {name: position for name, (position, _) in zip(SEARCHED, choice, strict=True)}
            parameters = {name: value for name, (_, value) in zip(SEARCHED, choice, strict=True)}
            family = families[bool(parameters["depth"])]
            if lists["depth"] is None and parameters["depth"] not in _DEPTHS[family]:
                continue
            meaningless = _meaningless(parameters, family)
            if any(at[name] for name in meaningless) or (place and family == "regression"):
                continue
            parameters |= meaningless | {"family": family}
            listed.append((tuple((at | {"init": place}).values()), parameters))
    listed.sort(key=lambda each: each[0])
    numeric, leaf, start = (SEARCHED.index(name) for name in ("numeric", "leaf", "init"))
    return [
        Candidate(**parameters, place=(at[numeric], at[leaf], at[start], number))
        for number, (at, parameters) in enumerate(listed)
    ]


def _of_start(
    values: Mapping[str, Sequence[Any]], lists: Mapping[str, object], init: str, trainer: object
) -> tuple[dict[str, Sequence[Any]], tuple[Family, Family]]:
    """The lists for one kind of start, and the families of its trees without gates and with them."""
    usual = _completed(init, trainer)
    family: Family = "groups" if usual["offset"] else "gates"
    defaults = {
        "depth": sorted(set().union(*_DEPTHS.values())),
        "n_starts": [usual["n_starts"]],
        "fused": _FUSED if family == "groups" else [0.0],
    }
    missing = {name: default for name, default in defaults.items() if lists[name] is None}
    return {**values, "init": [init], **missing}, ("regression", family)


def _meaningless(parameters: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """Parameters that do not matter beside the others, with the value that stands for any."""
    found: dict[str, Any] = {}
    if family == "regression":
        found |= {"n_starts": 1, "gate_ridge": 0.0, "fused": 0.0}
    if family == "groups":
        found |= {"gate_ridge": 0.0}
    if family == "regression" or parameters["init"] != "distilled":
        found |= {"gate_features": None}
    if not parameters["numeric"].is_curved:
        found |= {"roughness": 0.0}
    return found


def _completed(init: str | None, trainer: object) -> dict[str, Any]:
    """What settings that depend on start and trainer are by default."""
    missing = {name: None for name, item in SETTINGS.items() if item.default is None}
    return completed(missing | {"init": init, "trainer": trainer})


def automatic_leaves(leaf: object, rows: SurvivalData | None) -> object:
    """Leaves as they are given, or those that ``"auto"`` stands for.

    Args:
        leaf: one leaf or several, or ``"auto"``.
        rows: the data; None if they are not known yet: then ``"auto"`` stands for every leaf that it may
            stand for.
    """
    if not isinstance(leaf, str) or leaf != "auto":
        return leaf
    if rows is None:
        return tuple(dict.fromkeys((*CONTINUOUS_LEAVES, *GROUPED_LEAVES)))
    return GROUPED_LEAVES if _is_grouped(rows) else CONTINUOUS_LEAVES


def automatic_encodings(numeric: object, rows: SurvivalData | None, monotone: object = None) -> object:
    """Encodings of numeric columns as they are given, or those that ``"auto"`` stands for.

    Args:
        numeric: encodings for all columns or by column, or several of these, or ``"auto"``.
        rows: the data; None if they are not known yet: then ``"auto"`` stands for every encoding that it may
            stand for.
        monotone: columns whose effect goes one way: then without splines, which can turn.
    """
    if not isinstance(numeric, str) or numeric != "auto":
        return numeric
    encodings = CURVED_ENCODINGS if rows is None or rows.event.sum() >= MIN_EVENTS else STRAIGHT_ENCODINGS
    return tuple(each for each in encodings if not (monotone and each == "spline"))


def _is_grouped(rows: SurvivalData) -> bool:
    """True if times were recorded in few whole units, those of people lost on the way, too."""
    if rows.intervals is not None:
        return False  # their bounds say what is known, whatever the units
    event_times = rows.time[rows.event]
    groups = np.unique(event_times)
    if len(groups) > min(MAX_GROUPS, len(event_times) / 2):
        return False
    lost = rows.time[~rows.event & (rows.time < groups[-1])]
    return len(lost) == 0 or float(np.isin(lost, groups).mean()) >= _ON_GROUPS


def leaf_label(leaf: str | HazardFamily) -> str:
    """Name of a leaf in tables: that of the family, with its options if it is given as an object."""
    return leaf if isinstance(leaf, str) else f"{leaf.name}({leaf.extra_repr()})"


def _values(name: str, given: object) -> Sequence[Any]:
    single = isinstance(given, str | HazardFamily | Mapping) or not isinstance(given, Iterable)
    values: list[Any] = [given] if single else list(given)  # type: ignore[call-overload]
    values = [value.item() if isinstance(value, np.generic) else value for value in values]
    if name == "numeric":
        values = [ColumnEncodings.of(value) for value in values]
        if any(value.is_automatic for value in values):
            raise ConfigError(
                "numeric must be one of linear, log, piecewise, spline for each candidate, or 'auto' alone, "
                f"got {given!r}"
            )
    labels = [leaf_label(value) if name == "leaf" else value for value in values]
    if not values or any(label in labels[:place] for place, label in enumerate(labels)):
        raise ConfigError(f"{name} must be a value, or different ones to compare, got {given!r}")
    return values
