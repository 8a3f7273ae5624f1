"""Outcomes as metrics read them: checked arrays of a `Surv`, or of a tuple (time, event) or (time, cause).

A function names the parts of an outcome that it supports; others raise a DataError with the remedy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_integer, check_same_order, check_weight
from sstorch.data import Surv
from sstorch.data.surv import as_surv
from sstorch.data.target import cause_number, parse_subjects
from sstorch.exceptions import DataError, named
from sstorch.metrics.checks import check_cause, check_time


class Observed(NamedTuple):
    """Checked outcome of n rows; functions of this package take it as `y`, too."""

    time: FloatArray
    cause: IntArray | BoolArray
    entry: FloatArray | None = None  # at risk at t: entry < t <= time
    weight: FloatArray | None = None
    id: npt.NDArray[Any] | None = None
    n_causes: int = 1

    @property
    def event(self) -> BoolArray:
        """Whether an event of any cause was observed, (n,)."""
        return self.cause > 0

    @property
    def weights(self) -> FloatArray:
        """Weights, (n,), one each if there are none."""
        return np.ones(self.time.size) if self.weight is None else self.weight

    @property
    def ends(self) -> BoolArray:
        """Whether the follow-up of the subject ends with the row, (n,): no later row of it follows."""
        last = np.ones(self.time.size, dtype=bool)
        if self.id is not None and self.entry is not None:
            order = np.lexsort((self.time, np.unique(self.id, return_inverse=True)[1]))
            id, time, entry = (part[order] for part in (self.id, self.time, self.entry))
            last[order[:-1]] = (id[1:] != id[:-1]) | (entry[1:] < time[:-1])
        return last

    @property
    def survived(self) -> FloatArray:
        """Times, (n,); of a censored row that a later one of its subject continues just after its end."""
        return np.where(self.ends | self.event, self.time, np.nextafter(self.time, np.inf))

    def take(self, rows: Any) -> Observed:
        """Some rows: a mask or positions."""
        parts = (None if part is None else part[rows] for part in self[:5])
        return Observed(*parts, n_causes=self.n_causes)  # type: ignore[arg-type,misc]

    def counted(self) -> Observed:
        """The rows of positive weight."""
        return self if self.weight is None else self.take(self.weight > 0.0)

    def only(self, cause: int) -> Observed:
        """The same rows, censored where another cause ended them."""
        return self._replace(cause=self.cause == cause, n_causes=1)


# What functions take as `y`: the tuple is (time, event), or (time, cause) where a cause is scored.
Outcome = Surv | tuple[npt.ArrayLike, npt.ArrayLike] | pd.DataFrame | npt.NDArray[np.void] | Observed


def read_rows(
    y: Outcome,
    what: str,
    *,
    causes: bool = False,
    entry: bool = False,
    weight: bool = False,
    sample_weight: npt.ArrayLike | None = None,
    n_causes: int | None = None,
    **others: Any,
) -> Observed:
    """Read an outcome for the function `what` of messages, which supports the parts that are True."""
    # With `causes` a tuple is (time, cause), K = `n_causes` or the largest. `sample_weight` (n,) replaces the
    # weights of `y`; row labels of `others` have to be in order.
    weight = weight or sample_weight is not None
    if isinstance(y, Observed):
        check_same_order(**others)
        given = check_weight(sample_weight, y.time.size)
        return _supported(y if given is None else y._replace(weight=given), what, entry, weight)
    if isinstance(y, tuple) and len(y) == 2:
        second = "cause" if causes else "event"
        check_same_order(**{"time": y[0], second: y[1]}, sample_weight=sample_weight, **others)
        time = check_time(y[0])
        given = check_weight(sample_weight, time.size)
        codes = check_cause(y[1], second, time.size, n_causes if causes else 1)
        if not causes:
            return Observed(time, codes > 0, weight=given)
        return Observed(time, codes, weight=given, n_causes=n_causes or int(codes.max()))
    outcome = as_surv(y)
    if outcome.causes is not None and not causes:
        raise DataError(
            f"y has competing causes, and {what} is of one event: give (time, cause == k) for cause k, "
            "or (time, cause > 0) for any cause"
        )
    check_same_order(y=outcome, sample_weight=sample_weight, **others)
    time, events, _ = outcome.right_censored(what)
    starts = None
    if outcome.entry is not None and bool((outcome.entry > 0.0).any()):
        starts = np.where(outcome.entry > 0.0, outcome.entry, -np.inf)
    uneven = check_weight(sample_weight, len(outcome))
    if uneven is None and outcome.weight is not None and np.ptp(outcome.weight) > 0.0:
        uneven = check_weight(outcome.weight, len(outcome))
    rows = _supported(Observed(time, events, starts, uneven, outcome.id), what, entry, weight)
    if outcome.causes is None:
        return rows
    return rows._replace(cause=outcome.cause, n_causes=max(n_causes or 0, len(outcome.causes)))


def read_scored(y: Outcome, what: str, cause: int | str | None, **options: Any) -> tuple[Observed, int]:
    """Read an outcome of which one cause is scored, None for one event, and the number of the cause."""
    names = y.causes if isinstance(y, Surv) else None
    if names is not None and cause is None:
        raise DataError(
            f"y has competing causes, and {what} is of one event: give cause=, a number or a name, or "
            "(time, cause > 0) for any cause"
        )
    rows = read_rows(y, what, causes=cause is not None, **options)
    if cause is None:
        return rows, 1
    which = check_integer("cause", cause, 1) if names is None else cause_number(cause, names)
    return rows._replace(n_causes=max(rows.n_causes, which)), which


def training(train: Outcome, *, causes: bool = False) -> Observed:
    """Training rows of positive weight, for G or Kaplan-Meier; with `causes` a tuple is (time, cause)."""
    causes = causes or (isinstance(train, Surv) and train.causes is not None)
    what = "an estimate from the training rows"
    with named("train"):
        return read_rows(train, what, causes=causes, weight=True).counted()


def subjects_of(y: Surv | Observed) -> IntArray | None:
    """Subject of each row, 0 .. n_subjects - 1, (n,); None if rows are subjects."""
    return None if y.id is None else parse_subjects(y.id, len(y.id))[0]


def _supported(rows: Observed, what: str, entry: bool, weight: bool) -> Observed:
    """The rows, if they have only those of entry times and weights that a function supports."""
    if rows.entry is not None and not entry:
        raise DataError(
            f"y has entry times (left truncation), and {what} takes every row as at risk from time "
            "zero: score the rows at risk at a time, evaluate(..., after=)"
        )
    if rows.weight is not None and not weight:
        raise DataError(
            f"y has weights, and {what} does not support them: leave them out for the unweighted value"
        )
    return rows
