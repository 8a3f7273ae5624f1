"""Validation of groups for competing causes: hazards and cumulative incidences on held-out rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from sstorch import metrics
from sstorch._types import FloatArray, IntArray
from sstorch.data import SurvivalData
from sstorch.exceptions import DataError
from sstorch.groups.validation import GroupValidation, from_zero, held_out_groups, p_text, places_of_groups


@dataclass(frozen=True)
class CauseGroupValidation:
    """Validation of groups for one of several competing causes.

    Attributes:
        hazard: concordance of the groups and log-rank test for the cause-specific hazard, with other causes
            censored.
        gray_p_value: p-value of Gray's test of equal cumulative incidences
            (:func:`~sstorch.metrics.gray_test`), stratified by fold. Groups of different trees are matched by
            the order of their training incidences.
        c_incidence: concordance of the groups with the cumulative incidence
            (:func:`~sstorch.metrics.concordance_wolbers`), mean over folds; None (not defined) for left
            truncation, start-stop rows and unequal weights.
    """

    hazard: GroupValidation
    gray_p_value: float
    c_incidence: float | None


@dataclass(frozen=True)
class CompetingGroupValidation:
    """Validation of the groups of a tree for competing causes, on the held-out rows of each fold.

    There are two null hypotheses per cause. The log-rank test compares cause-specific hazards, the event
    rates of subjects under observation. Gray's test compares cumulative incidences, the probabilities of the
    cause. Groups that differ only in one cause-specific hazard usually differ in the incidences of all
    causes. P-values are not adjusted for the number of causes.

    Attributes:
        causes: validation of each cause, by name.
    """

    causes: Mapping[str, CauseGroupValidation]

    @property
    def differ(self) -> bool:
        """True if groups differ in the hazard of at least one cause, see :class:`GroupValidation`."""
        return any(each.hazard.differ for each in self.causes.values())

    def __str__(self) -> str:
        first = next(iter(self.causes.values())).hazard
        lines = [
            f"Groups of held-out rows, {first.n_folds} folds: {first.n_groups:.3g} groups of 5 % or more",
            f"A{first.agreement[1:]}",
        ]
        for name, each in self.causes.items():
            concordance = "" if each.c_incidence is None else f"concordance {each.c_incidence:.3f}, "
            gray = f"Gray {p_text(each.gray_p_value)} (anti-conservative)"
            lines.append(f"Hazard of {name}: {each.hazard.evidence}")
            lines.append(f"Cumulative incidence of {name}: {concordance}{gray}")
            if not each.hazard.differ:
                lines.append(f"Hazard of {name}: {each.hazard.doubt}")
        return "\n".join(lines)

    def against(self, null: Sequence[Any]) -> Self:
        """Add permutation p-values of the hazards, from validations of permuted data."""
        causes = {
            name: replace(each, hazard=each.hazard.against([one.causes[name].hazard for one in null]))
            for name, each in self.causes.items()
        }
        return replace(self, causes=causes)

    def to_dict(self) -> dict[str, Any]:
        """Return the values by name, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_dict`."""
        return cls(
            {
                name: CauseGroupValidation(**{**each, "hazard": GroupValidation.from_dict(each["hazard"])})
                for name, each in state["causes"].items()
            }
        )


def held_out_groups_of_causes(
    data: SurvivalData, folds: IntArray, groups: IntArray
) -> CompetingGroupValidation:
    """Validate groups for each cause; arguments and errors are those of :func:`held_out_groups`."""
    plain = not data.entry.any() and data.subject is None and data.uneven_weight is None
    found = {}
    groups = from_zero(groups)
    for number, name in enumerate(data.cause_names, 1):
        places, concordances = np.zeros(len(data), dtype=np.int64), []
        for fold, group in enumerate(groups):
            inside = folds == fold
            train, test = data.subset(~inside), data.subset(inside)
            without = _time_without(train, group[~inside], int(groups.max()) + 1, number)
            places[inside] = places_of_groups(without, group[~inside])[group[inside]]
            if plain:
                concordances.append(_concordance(test, train, -without[group[inside]], number, name))
        try:
            hazard = held_out_groups(data.of_cause(number), folds, groups)
        except DataError as error:
            raise DataError(f"cause {name}: {error}") from error
        test_of_incidence = metrics.gray_test(data.weighted_y, places, number, strata=folds)
        c_incidence = float(np.mean(concordances)) if plain else None
        found[name] = CauseGroupValidation(hazard, test_of_incidence.p_value, c_incidence)
    return CompetingGroupValidation(found)


def _time_without(train: SurvivalData, group: IntArray, n_groups: int, cause: int) -> FloatArray:
    """Area above the cumulative incidence of a cause up to its last event, of each group, (n_groups,).

    Groups without training rows have that of all rows.
    """
    times = np.unique(train.time[train.cause == cause])
    width = np.diff(times, prepend=0.0)

    def area(rows: SurvivalData) -> float:
        incidence = metrics.aalen_johansen(rows.weighted_y, times)[cause - 1]
        return float(width @ (1.0 - np.append(0.0, incidence[:-1])))

    members = [group == number for number in range(n_groups)]
    return np.array([area(train.subset(rows) if rows.any() else train) for rows in members])


def _concordance(test: SurvivalData, train: SurvivalData, risk: FloatArray, cause: int, name: str) -> float:
    """Wolbers' concordance up to the last training event of the cause."""
    tau = float(train.time[train.cause == cause].max())
    try:
        return metrics.concordance_wolbers(test.y, risk, cause, train=train.y, tau=tau)
    except DataError as error:
        raise DataError(
            f"a fold has no comparable pair of cause {name}; choose fewer folds: {error}"
        ) from error
