"""Rows with a prediction at one horizon: what every measure of a validation is computed from."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_horizon
from sstorch.data import Surv
from sstorch.data.subjects import parse_subjects
from sstorch.exceptions import DataError
from sstorch.metrics.checks import check_observed_horizon, check_probability
from sstorch.metrics.outcome import (
    Observed,
    ObservedCauses,
    Outcome,
    cause_number,
    read_causes,
    read_rows,
)
from sstorch.metrics.robust import by_subject


@dataclass(frozen=True, eq=False)
class HorizonRows:
    """Outcomes and predictions of n rows at one horizon; rows of weight 0 are left out.

    Attributes:
        time: observed times, shape (n,).
        event: True where an event of any cause was observed, shape (n,).
        interest: True where it was the event of interest, shape (n,); `event` without competing causes.
        survival: predicted probability that the event of interest has not happened by the horizon, (n,).
        t: the horizon, in the unit of `time`.
        weight: shape (n,); None where all weights are equal.
        entry: as of `Observed`, shape (n,); None if no row entered late.
        subject: of each row, 0 .. n_subjects - 1, shape (n,); None if each row is a subject.
        competing: whether there are competing causes.
        recurrent: whether the event can happen to a subject again.
        expected: predicted cumulative hazard of each row while it was observed, up to the horizon, shape
            (n,); None where it is not known.
        path: whether rows are parts of histories with time-varying covariates, whose predictions hold for the
            row only.
    """

    time: FloatArray
    event: BoolArray
    interest: BoolArray
    survival: FloatArray
    t: float
    weight: FloatArray | None = None
    entry: FloatArray | None = None
    subject: IntArray | None = None
    competing: bool = False
    recurrent: bool = False
    expected: FloatArray | None = None
    path: bool = False

    @classmethod
    def of(
        cls,
        y: Outcome,
        survival: npt.ArrayLike,
        t: float,
        *,
        sample_weight: npt.ArrayLike | None = None,
        cause: int | str | None = None,
        expected: FloatArray | None = None,
        path: bool = False,
    ) -> Self:
        """Check outcomes, predictions, weights and horizon.

        Args:
            y: a :class:`~sstorch.Surv`, or (time, event), n rows; (time, cause) where a cause is given.
            survival: predicted S_i(t), one probability per row, shape (n,); with competing causes one minus
                the cumulative incidence of the cause.
            t: the horizon, in the unit of `y`.
            sample_weight: weights of the rows, shape (n,); None for those of `y`.
            cause: number or name of the cause of interest, where y has competing causes; None for the first.
            expected: as of the class, shape (n,).
            path: as of the class.

        Raises:
            DataError: arguments that `sstorch.checks` refuses, interval-censored times, or a time outside the
                observed ones.
            ConfigError: t no time > 0, or an unknown cause.
        """
        what = "a measure at one horizon"
        options: dict[str, Any] = {"entry": True, "weight": True, "sample_weight": sample_weight}
        competing = cause is not None or isinstance(y, ObservedCauses)
        if competing or (isinstance(y, Surv) and y.causes is not None):
            causes = read_causes(y, what, survival=survival, **options)
            seen, competing = causes.any_event, True
            interest = causes.cause == cause_number(y, 1 if cause is None else cause)
        else:
            seen = read_rows(y, what, survival=survival, **options)
            interest = seen.event
        n = seen.time.size
        horizon = check_horizon(t, "t")
        predicted = check_probability(survival, "survival", n)
        check_observed_horizon(horizon, seen.time, "t")
        id = y.id if isinstance(y, Surv | Observed) else None
        weight = seen.weight
        rows = cls(
            seen.time,
            seen.event,
            interest,
            predicted,
            horizon,
            weight,
            seen.entry,
            None if id is None else parse_subjects(id, n)[0],
            competing,
            isinstance(y, Surv) and y.recurrent,
            expected,
            path,
        )
        if weight is None:
            return rows
        rows = rows.take(np.flatnonzero(weight > 0.0))
        assert rows.weight is not None
        return replace(rows, weight=None) if np.ptp(rows.weight) == 0.0 else rows

    def __len__(self) -> int:
        return int(self.time.size)

    def take(self, rows: IntArray) -> Self:
        """Some rows, repetitions allowed."""
        parts: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        parts = {name: part[rows] for name, part in parts.items() if isinstance(part, np.ndarray)}
        return replace(self, **parts)

    @property
    def y(self) -> Observed:
        """Outcome of the rows, of any cause."""
        return Observed(self.time, self.event, self.entry, self.weight, self.subject)

    @property
    def weights(self) -> FloatArray:
        """Weights, (n,), one each where all are equal."""
        return np.ones(len(self)) if self.weight is None else self.weight

    @property
    def robust(self) -> bool:
        """Whether errors are those of influences: weights are uneven, or subjects have several events."""
        return self.weight is not None or self.recurrent

    def up_to_horizon(self) -> Self:
        """The rows as if follow-up had ended at the horizon, without those that entered then or later."""
        rows = self
        if self.entry is not None and (late := self.entry >= self.t).any():
            rows = self.take(np.flatnonzero(~late))
        seen = rows.time <= self.t
        return replace(
            rows, time=np.minimum(rows.time, self.t), event=rows.event & seen, interest=rows.interest & seen
        )

    def check_events(self) -> None:
        """Make sure that there is an event of interest by the horizon."""
        if not (self.interest & (self.time <= self.t)).any():
            raise DataError(
                f"event: no row has an event up to {self.t:g}, so that there is nothing to compare with."
            )

    def check_from_zero(self, measure: str) -> None:
        """Make sure that all rows were observed from time zero."""
        if self.entry is not None:
            raise DataError(
                f"{measure} needs rows that are observed from time zero, and some entered later (left "
                "truncation): use the rows at risk at a time, from there (after)."
            )

    @property
    def n_subjects(self) -> int:
        """Number of subjects; without `subject` that of rows."""
        return len(self) if self.subject is None else int(np.unique(self.subject).size)

    def error_of(self, influence: FloatArray) -> float | FloatArray:
        """Standard error of estimates from the weighted influences of rows, (n,) or (n, k): robust.

        The root of the sum over subjects of squared sums over their rows.
        """
        influence = by_subject(influence, self.subject)
        error = np.sqrt((influence**2).sum(axis=0))
        return float(error) if influence.ndim == 1 else error
