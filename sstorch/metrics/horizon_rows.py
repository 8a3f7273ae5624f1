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
from sstorch.metrics.outcome import Observed, ObservedCauses, Outcome, cause_number, read_causes, read_rows
from sstorch.metrics.weights import by_subject


@dataclass(frozen=True, eq=False)
class HorizonRows:
    """Outcomes and predictions of n rows at one horizon; rows of weight 0 are excluded.

    Attributes:
        time: observed times, shape (n,).
        event: True for an observed event of any cause, shape (n,).
        interest: True for the event of interest, shape (n,); equals `event` without competing causes.
        survival: predicted probability that the event of interest has not happened by the horizon, (n,).
        t: the horizon, in the unit of `time`.
        weight: shape (n,); None if all weights are equal.
        entry: as in `Observed`, shape (n,); None without left truncation.
        subject: subject of each row, 0 .. n_subjects - 1, shape (n,); None if each row is a subject.
        competing: True with competing causes.
        expected: predicted cumulative hazard of each row during follow-up, up to the horizon, shape (n,);
            None if unknown.
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
    expected: FloatArray | None = None

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
    ) -> Self:
        """Create rows from outcomes, predictions, weights and horizon, with checks.

        Args:
            y: a :class:`~sstorch.Surv`, or (time, event), n rows; (time, cause) if a cause is given.
            survival: predicted S_i(t), one probability per row, shape (n,); with competing causes one minus
                the cumulative incidence of the cause.
            t: the horizon, in the unit of `y`.
            sample_weight: weights of the rows, shape (n,); None for those of `y`.
            cause: number or name of the cause of interest, for competing causes; None for the first.
            expected: as in the class, shape (n,).

        Raises:
            DataError: invalid arguments (see `sstorch.checks`), interval-censored times, or a time outside
                the observed ones.
            ConfigError: t not > 0, or an unknown cause.
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
            expected,
        )
        if weight is not None:
            rows = rows.take(np.flatnonzero(weight > 0.0))
            rows = replace(rows, weight=None if np.ptp(rows.weights) == 0.0 else rows.weight)
        check_observed_horizon(horizon, rows.time, "t")
        return rows

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
        """Weights, (n,); 1 if all are equal."""
        return np.ones(len(self)) if self.weight is None else self.weight

    @property
    def robust(self) -> bool:
        """True if standard errors use influences: unequal weights."""
        return self.weight is not None

    def up_to_horizon(self) -> Self:
        """Rows with follow-up censored at the horizon, without entries at the horizon or later."""
        rows = self
        if self.entry is not None and (late := self.entry >= self.t).any():
            rows = self.take(np.flatnonzero(~late))
        seen = rows.time <= self.t
        return replace(
            rows, time=np.minimum(rows.time, self.t), event=rows.event & seen, interest=rows.interest & seen
        )

    def check_events(self) -> None:
        """Check that there is an event of interest by the horizon."""
        if not (self.interest & (self.time <= self.t)).any():
            raise DataError(f"event: no row has an event up to {self.t:g}; choose a later time.")

    def check_from_zero(self, measure: str) -> None:
        """Check that all rows were observed from time zero."""
        if self.entry is not None:
            raise DataError(
                f"{measure} needs rows that are observed from time zero, and some entered later (left "
                "truncation): use the rows at risk at a time, from there (after)."
            )

    @property
    def n_subjects(self) -> int:
        """Number of subjects; number of rows without `subject`."""
        return len(self) if self.subject is None else int(np.unique(self.subject).size)

    def error_of(self, influence: FloatArray) -> float | FloatArray:
        """Robust standard error of estimates from weighted influences of rows, (n,) or (n, k).

        The square root of the sum over subjects of squared sums over their rows.
        """
        influence = by_subject(influence, self.subject)
        error = np.sqrt((influence**2).sum(axis=0))
        return float(error) if influence.ndim == 1 else error
