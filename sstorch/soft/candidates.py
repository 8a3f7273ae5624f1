"""What a search compares: regressions, distilled groups, and gates trained on outcomes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np

from sstorch.data import SurvivalData
from sstorch.data.encodings import ColumnEncodings
from sstorch.exceptions import ConfigError
from sstorch.nn import MAX_DEPTH, HazardFamily, Topology
from sstorch.optim import Trainer
from sstorch.parameters import Parameters
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.parameters import Columns, GatePenalties, GroupPenalties, Penalties
from sstorch.soft.prognostic import PrognosticTree
from sstorch.soft.regression import SurvivalRegression
from sstorch.soft.settings import TrainerName
from sstorch.soft.tree import SoftSurvivalTree

# One leaf; gates distilled from it, which stay; gates that training moves.
Family = Literal["regression", "groups", "gates"]
FAMILIES: tuple[Family, ...] = get_args(Family)
# Depths compared if none are named, by family.
_DEPTHS: dict[Family, tuple[int, ...]] = {"regression": (0,), "groups": (2,), "gates": (1, 2, 3, 4)}

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


@dataclass(repr=False)
class Grid(Parameters):
    """What a search compares beside depths, leaves and encodings: one value or several of each.

    Attributes:
        ridge: coefficients of the ridge on slopes.
        roughness: of the penalty on the roughness of curves; encodings without curves have no candidates for
            it.
        fused: of the penalty on differences between the slopes of groups: by default infinity (slopes that
            all groups share), nearly the same, and slopes of their own that are held together.
        gate_features: columns of a distilled gate; None in the list stands for all.
        gate_ridge: of the ridge on the weights of gates that are trained.
        init: initial solutions of gates that are trained.
        n_starts: their numbers; fewer starts are the first of the most, and cost nothing more.
        trainer: of gates that are trained; ``"joint"`` takes less time than the decomposition and predicts as
            well here.
    """

    ridge: float | Sequence[float] = (1e-4, 1e-3, 1e-2)
    roughness: float | Sequence[float] = (1e-3, 1e-2, 1e-1)
    fused: float | Sequence[float] = (math.inf, 0.1, 0.01)
    gate_features: int | Sequence[int | None] | None = (1, 2, 3)
    gate_ridge: float | Sequence[float] = (1e-5, 1e-4)
    init: str | Sequence[str] = "random"
    n_starts: int | Sequence[int] = 10
    trainer: TrainerName | Trainer = "nodec"


@dataclass(frozen=True)
class Candidate:
    """Parameters of an estimator that are compared, by the same names.

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
        """What is compared, encodings as text."""
        return {name: getattr(self, name) for name in SEARCHED} | {"numeric": self.numeric.plain}

    def estimator(self, columns: Columns, trainer: TrainerName | Trainer, **shared: Any) -> SoftEstimator:
        """The estimator that it is.

        Args:
            columns: of all candidates, but for the encoding of numeric columns.
            trainer: of gates that are trained.
            shared: further parameters of all estimators.
        """
        columns = replace(columns, numeric=self.numeric.plain)
        held: dict[str, Any] = {"ridge": self.ridge, "roughness": self.roughness}
        if self.family == "regression":
            return SurvivalRegression(self.leaf, Penalties(**held), columns, **shared)  # type: ignore[arg-type]
        if self.family == "groups":
            return PrognosticTree(
                self.depth,
                self.leaf,  # type: ignore[arg-type]
                gate_features=self.gate_features,
                penalties=GroupPenalties(**held, fused=self.fused),
                columns=columns,
                **shared,
            )
        return SoftSurvivalTree(
            self.depth,
            self.leaf,  # type: ignore[arg-type]
            trainer,
            self.init,  # type: ignore[arg-type]
            self.n_starts,
            GatePenalties(**held, gate_ridge=self.gate_ridge),
            columns,
            **shared,
        )

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
        return self.family, self.depth, leaf_label(self.leaf), self.numeric, self.init, self.gate_features

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


def candidates(lists: Mapping[str, object], families: Sequence[Family]) -> list[Candidate]:
    """Every choice of one value of each list that makes a candidate of its own.

    A single leaf has no gates to start or to hold back and nothing to be fused with: of a regression leaf,
    encodings and what holds these back are compared. Gates that stay have no ridge to hold them back, those
    that are not distilled no number of columns, and encodings without curves no roughness.

    Args:
        lists: values, or one, of each of ``SEARCHED``. None, of ``depth``, is what is compared of each
            family.
        families: that are compared.

    Raises:
        ConfigError: a list is empty or names a value twice, or no family is named.
    """
    if not families or set(families) - set(FAMILIES):
        raise ConfigError(f"families must be some of {', '.join(FAMILIES)}, got {families!r}")
    given = {name: value for name, value in lists.items() if name != "depth" or value is not None}
    usual = sorted({depth for family in families for depth in _DEPTHS[family]})
    values = {name: _values(name, given[name]) if name in given else usual for name in SEARCHED}
    for depth in values["depth"]:
        Topology(depth)  # which refuses those that no tree has
    listed: list[tuple[tuple[int, ...], dict[str, Any]]] = []
    for family in FAMILIES:
        if family not in families:
            continue
        own = _of_family(values, family)
        for choice in itertools.product(*(enumerate(own[name]) for name in SEARCHED)):
            at = {name: position for name, (position, _) in zip(SEARCHED, choice, strict=True)}
            parameters = {name: value for name, (_, value) in zip(SEARCHED, choice, strict=True)}
            depths = _DEPTHS[family] if lists["depth"] is None else range(MAX_DEPTH + 1)
            if parameters["depth"] not in depths or (parameters["depth"] > 0) != (family != "regression"):
                continue
            meaningless = {} if parameters["numeric"].is_curved else {"roughness": 0.0}
            if any(at[name] for name in meaningless):
                continue
            at["init"] += family == "gates"  # starts of gates come after those of groups
            parameters |= meaningless | {"family": family}
            listed.append((tuple(at.values()), parameters))
    listed.sort(key=lambda each: each[0])
    numeric, leaf, start = (SEARCHED.index(name) for name in ("numeric", "leaf", "init"))
    return [
        Candidate(**parameters, place=(at[numeric], at[leaf], at[start], number))
        for number, (at, parameters) in enumerate(listed)
    ]


def _of_family(values: Mapping[str, Sequence[Any]], family: Family) -> dict[str, Sequence[Any]]:
    """The lists of a family, with one value of what does not matter to it."""
    if family == "gates":
        return {**values, "fused": [0.0], "gate_features": [None]}
    own = {**values, "init": ["distilled"], "n_starts": [1], "gate_ridge": [0.0]}
    return own if family == "groups" else {**own, "fused": [0.0], "gate_features": [None]}


def automatic_leaves(leaf: object, rows: SurvivalData | None) -> object:
    """Leaves as they are given, or those that ``"auto"`` stands for.

    Args:
        leaf: one leaf or several, or ``"auto"``.
        rows: the data; None if they are not known yet: then ``"auto"`` stands for every leaf that it may
            stand for.

    Raises:
        ConfigError: ``"auto"`` is one of several.
    """
    if not isinstance(leaf, str) or leaf != "auto":
        if isinstance(leaf, Sequence) and not isinstance(leaf, str) and "auto" in leaf:
            raise ConfigError("leaf='auto' stands for several leaves: name them, or leave the others out")
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
