"""The candidates of a search: every choice of depth, leaf, start and penalties."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sstorch.data import SurvivalData
from sstorch.estimators.settings import Coefficients
from sstorch.exceptions import ConfigError
from sstorch.nn import HazardFamily

FloatArray = npt.NDArray[np.float64]

# Several values of these are compared; in this order candidates are listed.
SEARCHED = ("depth", "leaf", "init", "n_starts", "ridge", "gate_ridge", "fused")

# What leaf="auto" stands for where times are continuous, and where they are grouped: events at no more than
# so many distinct times, as where whole years were recorded.
CONTINUOUS_LEAVES = ("log_logistic", "spline_ph", "spline_po")
GROUPED_LEAVES = ("logistic_hazard",)
MAX_GROUPS = 12
# Least share of those censored before the last event who are so at times of events, too: the leaf takes one
# who goes in the middle of an interval for free of the event until then.
_ON_GROUPS = 0.8


@dataclass(frozen=True)
class Candidate:
    """Parameters of :class:`~sstorch.SoftSurvivalTree` that are compared, by the same names.

    Attributes:
        place: of leaf and init in their lists, and of the candidate among all.
    """

    depth: int
    leaf: str | HazardFamily
    init: str
    n_starts: int
    ridge: float
    gate_ridge: float
    fused: float
    place: tuple[int, int, int]

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the estimator."""
        return {name: getattr(self, name) for name in SEARCHED}

    @property
    def simplicity(self) -> tuple[float, ...]:
        """Sorts candidates, the simplest first.

        Few gates, then the earlier leaf and start of the lists, few starts, and leaves and gates that are
        held together or back the most.
        """
        leaf, init, number = self.place
        return self.depth, leaf, init, self.n_starts, -self.fused, -self.gate_ridge, -self.ridge, number

    @property
    def batch(self) -> tuple[object, ...]:
        """What candidates have in common that are trained as one batch."""
        return self.depth, leaf_label(self.leaf), self.init

    @property
    def coefficients(self) -> Coefficients:
        """Of the penalties."""
        return Coefficients(self.ridge, self.gate_ridge, self.fused)

    def row(self) -> dict[str, Any]:
        """As a row of a table."""
        return {**self.parameters, "leaf": leaf_label(self.leaf)}


def candidates(lists: Mapping[str, object]) -> list[Candidate]:
    """Every choice of one value of each list.

    A single leaf has no gates to start or to hold back and nothing to be fused with: at depth 0 leaf and
    ridge alone are compared, with one start.

    Args:
        lists: values, or one, of each of ``SEARCHED``.

    Raises:
        ConfigError: a list is empty or names a value twice.
    """
    values = {name: _values(name, lists[name]) for name in SEARCHED}
    found = []
    for number, choice in enumerate(itertools.product(*(enumerate(values[name]) for name in SEARCHED))):
        at = {name: place for name, (place, _) in zip(SEARCHED, choice, strict=True)}
        own = {name: value for name, (_, value) in zip(SEARCHED, choice, strict=True)}
        if own["depth"] == 0:
            if at["init"] or at["n_starts"] or at["gate_ridge"] or at["fused"]:
                continue
            own |= {"n_starts": 1, "gate_ridge": 0.0, "fused": 0.0}
        found.append(Candidate(**own, place=(at["leaf"], at["init"], number)))
    return found


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


def _is_grouped(rows: SurvivalData) -> bool:
    """Whether times were recorded in few whole units, those of people lost on the way, too."""
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
    single = isinstance(given, str | HazardFamily) or not isinstance(given, Iterable)
    values: list[Any] = [given] if single else list(given)  # type: ignore[call-overload]
    values = [value.item() if isinstance(value, np.generic) else value for value in values]
    labels = [leaf_label(value) if name == "leaf" else value for value in values]
    if not values or any(label in labels[:place] for place, label in enumerate(labels)):
        raise ConfigError(f"{name} must be a value, or different ones to compare, got {given!r}")
    return values
