"""Outcomes and predictions at one horizon, which measures with confidence limits are functions of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_horizon
from sstorch.data import Surv
from sstorch.data.target import time_of_rows
from sstorch.exceptions import DataError
from sstorch.metrics.checks import check_observed_horizon, check_probability
from sstorch.metrics.incidence import incidence_and_influence
from sstorch.metrics.outcome import Observed, Outcome, read_scored, subjects_of
from sstorch.metrics.weights import by_subject


@dataclass(frozen=True, eq=False)
class HorizonRows:
    """Outcomes and predictions of n rows at one horizon; rows of weight 0 are excluded.

    Attributes:
        y: outcome of the rows, of K causes; `weight` is None if all weights are equal, `id` is the number
            of the subject, 0 .. n_subjects - 1.
        survival: predicted probability that the event of interest has not happened by the horizon, (n,).
        t: the horizon, in the unit of `y`.
        cause: number of the cause of interest.
    """

    y: Observed
    survival: FloatArray
    t: float
    cause: int = 1

    @classmethod
    def of(
        cls,
        y: Outcome,
        survival: npt.ArrayLike,
        t: float,
        *,
        sample_weight: npt.ArrayLike | None = None,
        cause: int | str | None = None,
    ) -> Self:
        """Create rows from outcomes, predictions, weights and horizon, with checks.

        Arguments are described in `sstorch.metrics`; `survival` is predicted S_i(t), (n,), of a cause one
        minus its cumulative incidence, `t` in the unit of `y`. With competing causes and no `cause`, the
        first.

        Raises:
            DataError: invalid arguments, interval-censored times, or a time outside the observed ones.
            ConfigError: t not > 0, or an unknown cause.
        """
        asked = 1 if cause is None and isinstance(y, Surv) and y.causes is not None else cause
        others = {"sample_weight": sample_weight, "survival": survival}
        rows, which = read_scored(y, "a measure at one horizon", asked, entry=True, weight=True, **others)
        horizon = time_of_rows(check_horizon(t, "t"), rows.time)
        predicted = check_probability(survival, "survival", rows.time.size)
        found = cls(rows._replace(id=subjects_of(rows)), predicted, horizon, which)
        if rows.weight is not None:
            found = found.take(np.flatnonzero(rows.weight > 0.0))
            if np.ptp(found.y.weights) == 0.0:
                found = replace(found, y=found.y._replace(weight=None))
        check_observed_horizon(horizon, found.y.time, "t")
        return found

    def __len__(self) -> int:
        return int(self.y.time.size)

    def take(self, rows: IntArray) -> Self:
        """Some rows, repetitions allowed."""
        return replace(self, y=self.y.take(rows), survival=self.survival[rows])

    @property
    def interest(self) -> BoolArray:
        """True for an observed event of interest, (n,)."""
        return np.asarray(self.y.cause == self.cause)

    @property
    def competing(self) -> bool:
        """True with competing causes."""
        return self.y.n_causes > 1

    def check_events(self) -> None:
        """Check that there is an event of interest by the horizon."""
        if not (self.interest & (self.y.time <= self.t)).any():
            raise DataError(f"event: no row has an event up to {self.t:g}; choose a later time.")

    def check_from_zero(self, measure: str) -> None:
        """Check that all rows were observed from time zero."""
        if self.y.entry is not None:
            raise DataError(
                f"{measure} needs rows that are observed from time zero, and some entered later (left "
                "truncation): use the rows at risk at a time, from there (after)."
            )

    @property
    def n_subjects(self) -> int:
        """Number of subjects; that of the rows if each is one."""
        return len(self) if self.y.id is None else int(np.unique(self.y.id).size)

    def error_of(self, influence: FloatArray) -> float:
        """Robust standard error from weighted influences of rows, (n,): root of the sum over subjects."""
        return float(np.sqrt((by_subject(influence, self.y.id) ** 2).sum()))

    def incidence(self) -> tuple[float, FloatArray]:
        """Aalen-Johansen estimate of the event of interest, and its derivatives by the weights, (n,)."""
        incidence, moved = incidence_and_influence(self.y, self.t)
        return float(incidence[self.cause - 1]), moved[self.cause - 1]
