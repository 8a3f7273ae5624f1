"""Outcomes as metrics read them: checked arrays of a `Surv`, or of a tuple (time, event).

A function names the parts of an outcome that it supports. Others raise a DataError with the remedy, so
that entry times, weights or competing causes are never ignored.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_integer, check_same_order, check_weight
from sstorch.data import Surv, as_surv
from sstorch.exceptions import DataError, named
from sstorch.metrics.checks import check_cause, check_event, check_same_unit, check_time


class Observed(NamedTuple):
    """Checked outcome of rows with one event; functions of this package take it as `y`, too.

    Attributes:
        time: observed times, shape (n,).
        event: whether the event was observed, shape (n,).
        entry: times from which rows were at risk, -inf for time zero, shape (n,); None if all were at risk
            from time zero. A row is at risk at t where entry < t <= time.
        weight: weights of the rows, shape (n,); None is one each.
        id: subject of each row, as given, shape (n,); None if rows are subjects.
    """

    time: FloatArray
    event: BoolArray
    entry: FloatArray | None = None
    weight: FloatArray | None = None
    id: npt.NDArray[Any] | None = None

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
        """Times, (n,); of a censored row that a later one of its subject continues just after its end.

        Such a subject is known to survive an event of another one at that time.
        """
        return np.where(self.ends | self.event, self.time, np.nextafter(self.time, np.inf))

    def take(self, rows: Any) -> Observed:
        """Some rows: a mask or positions."""
        return Observed(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]


class ObservedCauses(NamedTuple):
    """Checked outcome of rows with competing causes."""

    time: FloatArray  # observed times, shape (n,)
    cause: IntArray  # 1 .. K, 0 where the row was censored, shape (n,)
    n_causes: int  # K; the largest cause if the outcome has no names of causes
    entry: FloatArray | None = None  # as of `Observed`
    weight: FloatArray | None = None  # as of `Observed`
    id: npt.NDArray[Any] | None = None  # as of `Observed`

    def take(self, rows: Any) -> ObservedCauses:
        """Some rows: a mask or positions."""
        parts = {name: part for name, part in self._asdict().items() if isinstance(part, np.ndarray)}
        return self._replace(**{name: part[rows] for name, part in parts.items()})

    @property
    def any_event(self) -> Observed:
        """The same rows, each cause an event."""
        return Observed(self.time, self.cause > 0, self.entry, self.weight, self.id)

    def only(self, cause: int) -> Observed:
        """The same rows, censored where another cause ended them."""
        return Observed(self.time, self.cause == cause, self.entry, self.weight, self.id)


# What functions take as `y`: the tuple is (time, event), or (time, cause) for scores of incidences.
Outcome = (
    Surv
    | tuple[npt.ArrayLike, npt.ArrayLike]
    | pd.DataFrame
    | npt.NDArray[np.void]
    | Observed
    | ObservedCauses
)


# An outcome that was read.
Read = TypeVar("Read", "Observed", "ObservedCauses")


def read_rows(
    y: Outcome,
    what: str,
    *,
    entry: bool = False,
    weight: bool = False,
    sample_weight: npt.ArrayLike | None = None,
    prefix: str = "",
    **others: Any,
) -> Observed:
    """Read an outcome with one event, for the function that messages call `what`.

    The function supports entry times if `entry`, and uneven weights if `weight`; equal ones are one each.
    `sample_weight` (n,) takes the place of the weights of `y`, `prefix` goes before "time" and "event" in
    messages, and `others` are arguments whose row labels have to be in the order of `y`.
    """
    if isinstance(y, ObservedCauses):
        y = y.any_event
    if isinstance(y, Observed):
        check_same_order(**others)
        return _reweighted(y, what, sample_weight, entry=entry, weight=weight)
    if isinstance(y, tuple) and len(y) == 2:
        check_same_order(**_parts(y, prefix, "event"), sample_weight=sample_weight, **others)
        time = check_time(y[0], f"{prefix}time")
        events = check_event(y[1], f"{prefix}event", time.size)
        return Observed(time, events, weight=check_weight(sample_weight, time.size))
    with named(prefix.strip()):
        outcome = as_surv(y)
    name = f"{prefix.strip()}: " if prefix else ""
    if outcome.causes is not None:
        raise DataError(
            f"{name}y has competing causes, and {what} is of one event: give (time, cause == k) for cause k, "
            "or (time, cause > 0) for any cause"
        )
    check_same_order(y=outcome, sample_weight=sample_weight, **others)
    time, events, _ = outcome.right_censored(f"{name}{what}")
    parts = _supported(outcome, name, what, sample_weight, entry=entry, weight=weight)
    return Observed(time, events, *parts, id=outcome.id)


def _reweighted(
    y: Read, what: str, sample_weight: npt.ArrayLike | None, *, entry: bool, weight: bool
) -> Read:
    """An outcome that was read already, with other weights if some are given."""
    given = check_weight(sample_weight, y.time.size)
    y = y if given is None else y._replace(weight=given)
    _check_supported(y.entry, y.weight, what, entry=entry, weight=weight or given is not None)
    return y


def read_causes(
    y: Outcome,
    what: str,
    *,
    entry: bool = False,
    weight: bool = False,
    sample_weight: npt.ArrayLike | None = None,
    n_causes: int | None = None,
    prefix: str = "",
    **others: Any,
) -> ObservedCauses:
    """Read an outcome with competing causes; arguments and errors are those of `read_rows`.

    In a tuple (time, cause) causes are 0 for censored rows and 1 .. K, with K = `n_causes`, or the largest
    cause if that is None.
    """
    if isinstance(y, ObservedCauses):
        check_same_order(**others)
        return _reweighted(y, what, sample_weight, entry=entry, weight=weight)
    if isinstance(y, tuple) and len(y) == 2:
        check_same_order(**_parts(y, prefix, "cause"), sample_weight=sample_weight, **others)
        time = check_time(y[0], f"{prefix}time")
        codes = check_cause(y[1], f"{prefix}cause", time.size, n_causes)
        count = int(codes.max()) if n_causes is None else n_causes
        return ObservedCauses(time, codes, count, weight=check_weight(sample_weight, time.size))
    with named(prefix.strip()):
        outcome = as_surv(y)
    name = f"{prefix.strip()}: " if prefix else ""
    if outcome.cause is None or outcome.causes is None:
        raise DataError(f"{name}y has no causes, and {what} needs them; give Surv(time, cause, causes=...)")
    check_same_order(y=outcome, sample_weight=sample_weight, **others)
    time, _, _ = outcome.right_censored(f"{name}{what}")
    count = len(outcome.causes) if n_causes is None else max(n_causes, len(outcome.causes))
    parts = _supported(outcome, name, what, sample_weight, entry=entry, weight=weight)
    return ObservedCauses(time, outcome.cause, count, *parts, id=outcome.id)


def training(train: Outcome, test_time: FloatArray | None = None, *, causes: bool = False) -> Observed:
    """Training rows of positive weight that give the censoring distribution or Kaplan-Meier.

    Each cause ends observation as an event does; with `causes` a tuple is (time, cause). Times have to be in
    the unit of `test_time`, if it is given.
    """
    options: dict[str, Any] = {"weight": True, "prefix": "train "}
    given: Any = tuple(train) if isinstance(train, list) else train
    if causes or (isinstance(train, Surv) and train.causes is not None):
        known = read_causes(given, _CENSORING, **options).any_event
    else:
        known = read_rows(given, _CENSORING, **options)
    if known.weight is not None:
        known = known.take(known.weight > 0.0)
    if test_time is not None:
        check_same_unit(test_time, known.time, ("time", "train time"))
    return known


def cause_number(y: Outcome, cause: int | str) -> int:
    """Number of a cause, 1 .. K, by itself or, where the outcome has names, by its name."""
    if isinstance(y, Surv) and y.coded_causes is not None:
        return y.coded_causes.number(cause)
    return check_integer("cause", cause, 1)


_CENSORING = "an estimate from the training rows"


def _parts(y: tuple[Any, Any], prefix: str, second: str) -> dict[str, Any]:
    return {f"{prefix}time": y[0], f"{prefix}{second}": y[1]}


def _supported(
    y: Surv,
    name: str,
    what: str,
    sample_weight: npt.ArrayLike | None,
    *,
    entry: bool,
    weight: bool,
) -> tuple[FloatArray | None, FloatArray | None]:
    """Entry times and weights as in `Observed`."""
    late = y.entry is not None and bool((y.entry > 0.0).any())
    starts = np.where(y.entry > 0.0, y.entry, -np.inf) if late and y.entry is not None else None
    given = check_weight(sample_weight, len(y))
    uneven = None
    if given is None and y.weight is not None and np.ptp(y.weight) > 0.0:
        uneven = check_weight(y.weight, len(y))
    _check_supported(starts, uneven, what, entry=entry, weight=weight, name=name)
    return starts, uneven if given is None else given


def _check_supported(
    starts: FloatArray | None,
    weights: FloatArray | None,
    what: str,
    *,
    entry: bool,
    weight: bool,
    name: str = "",
) -> None:
    if starts is not None and not entry:
        raise DataError(
            f"{name}y has entry times (left truncation), and {what} takes every row as at risk from time "
            "zero: score the rows at risk at a time, evaluate(..., after=)"
        )
    if weights is not None and not weight:
        raise DataError(
            f"{name}y has weights, and {what} does not support them: leave them out for the unweighted value"
        )
