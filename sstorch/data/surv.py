"""Surv: the outcome of survival data as one object, with a type; other forms of outcomes become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api import types as pdt

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_columns_exist, check_same_order, check_unique, check_weight, counted
from sstorch.data.columns import folded, labels, row_labels, to_pandas
from sstorch.data.target import (
    CauseNames,
    Intervals,
    cause_number,
    continuations,
    known_causes,
    no_intervals,
    parse_causes,
    parse_subjects,
    parse_target,
    read_bounds,
    time_of_rows,
    with_entry,
)
from sstorch.exceptions import ConfigError, DataError

OutcomeName = Literal["right", "counting", "interval", "competing", "competing counting"]
# Parts with a value for each row.
_BY_ROW = ("time", "cause", "entry", "id", "weight", "index")


@dataclass(frozen=True)
class OutcomeType:
    """Type of the training outcome, stored in the model."""

    name: OutcomeName = "right"  # counting: rows with entry times or subjects
    entry: bool = False  # whether rows have entry times
    id: bool = False  # whether rows have subjects
    causes: tuple[str, ...] | None = None  # names; None for one event
    weighted: bool = False  # whether the rows had unequal weights


@dataclass(init=False, repr=False, eq=False, frozen=True)
class Surv:
    """Survival outcome: times, events, entry times, subjects, causes or intervals, as R's ``Surv``.

    Immutable, and indexed by rows like an array: ``cross_val_score``, ``GridSearchCV``, ``train_test_split``
    and ``joblib`` accept it as ``y``. ``(time, event)`` tuples, structured arrays and frames are accepted in
    place of a Surv as right-censored times.

    Args:
        time: Time of the event or of censoring (n,), >= 0, in the unit of the data.
        event: Event indicator (n,): boolean or 0/1, 1 = event; with `causes` the cause of each event. None if
            every row has an event.
        entry: Entry time of each row (n,), >= 0 and below its time: left truncation (late entry), or the
            start of a start-stop row. None if all rows are at risk from time zero.
        id: Subject of each row (n,), for several rows per subject, each from `entry` to `time`.
        causes: Competing causes: names of the codes 1 .. K, such as ``("relapse", "death")``, with 0 for
            censored rows; names by value, such as ``{1: "relapse", 2: "death"}``, with one other value for
            censored rows; or ``"auto"``: 0 or the word ``censored`` is censored, 1 .. K or the other words
            are causes. Case and blanks around words do not matter.
        event_value: Value of `event` for an event, such as ``"dead"`` in any case, or 2 where 1 = censored;
            all other values are censored.
        weight: Weight of each row (n,), >= 0, used as `sample_weight`.

    Attributes:
        time, entry, weight: (n,) float64 or None; `time` is None for interval-censored times.
        cause: (n,) int, cause of each row's event, 1 .. K, 0 = censored; 1 for one event.
        causes: names of the K causes; None for one event.
        id: (n,), as given, or None.
        intervals: bounds `lower` and `upper` of the times, (n,) float64: the last time at which the event had
            not happened, and the first one at which it had; None unless interval-censored.
        source: Columns of the frame used by :meth:`of`, by role, as they were given; None without a frame.

    Raises:
        DataError: A value is missing, negative, infinite or text, lengths differ, or an entry is not before
            its time; rows are given as 0-based positions.
        ConfigError: `causes` gives two values one name, or arguments exclude each other.

    References:
        Therneau and Grambsch (2000), Modeling Survival Data, section 3.7: counting-process data.

    >>> Surv([5, 3, 8], [1, 0, 1])
    Surv([5, 3+, 8], right, 2 events in 3 rows)
    >>> Surv([2, 7, 4], [0, 1, 0], entry=[0, 2, 0], id=["a", "a", "b"])[:2]
    Surv([(0, 2+], (2, 7]], counting, 1 event in 2 rows)
    >>> Surv([5, 3, 8], [1, 0, 2], causes=("relapse", "death"))
    Surv([5:relapse, 3+, 8:death], competing, 2 events in 3 rows)
    >>> Surv.interval([0, 2, 3, 5], [4, 2, 7, np.inf])
    Surv([4-, 2, (3, 7], 5+], interval, 3 events in 4 rows)
    """

    cause: IntArray
    time: FloatArray | None = None
    causes: tuple[str, ...] | None = None
    entry: FloatArray | None = None
    id: npt.NDArray[Any] | None = None
    intervals: Intervals | None = None
    weight: FloatArray | None = None
    index: pd.Index | None = None
    source: Mapping[str, pd.Series] | None = None

    def __init__(
        self,
        time: object,
        event: object = None,
        *,
        entry: object = None,
        id: object = None,
        causes: CauseNames | None = None,
        event_value: object = None,
        weight: object = None,
    ) -> None:
        if event is None:
            event = np.ones(np.asarray(time).shape, dtype=bool)
        check_same_order(time=time, event=event, entry=entry, weight=weight, id=id)
        names = None
        if causes is None:
            times, events = parse_target((time, event), event_value)
            cause = events.astype(np.int64)
        elif event_value is not None:
            raise ConfigError("causes define the values of event; leave event_value out")
        else:
            times, cause, names = parse_causes(time, event, causes)
        entries, bounds = with_entry(entry, Intervals(times, np.where(cause > 0, times, np.inf)))
        self._set(
            time=bounds.lower,
            cause=cause,
            causes=names,
            entry=entries,
            id=None if id is None else row_labels(id, len(times), "id").to_numpy(),
            weight=check_weight(weight, len(times)),
            index=index_of(time, event, entry, id, weight),
        )

    @classmethod
    def interval(cls, lower: object, upper: object, *, entry: object = None, weight: object = None) -> Self:
        """Interval-censored outcome, as R's ``Surv(type = "interval2")``.

        Args:
            lower: Last time at which the event had not happened (n,), >= 0: 0 for a left-censored row.
            upper: First time at which the event had happened (n,): infinite for a right-censored row, equal
                to `lower` for an exact time.
            entry: Entry time of each row (n,), at most its lower bound; None for time zero.
            weight: As for the class.

        Raises:
            DataError: A bound is missing, negative or text, a lower bound is infinite, or an interval is
                reversed.
        """
        check_same_order(lower=lower, upper=upper, entry=entry, weight=weight)
        entries, bounds = with_entry(entry, read_bounds(lower, upper))
        return cls._of_parts(
            cause=(bounds.upper < np.inf).astype(np.int64),
            intervals=bounds,
            entry=entries,
            weight=check_weight(weight, len(bounds.lower)),
            index=index_of(lower, upper, entry, weight),
        )

    @classmethod
    def of(
        cls,
        frame: object,
        time: str,
        event: str | None = None,
        *,
        entry: str | None = None,
        id: str | None = None,
        weight: str | None = None,
        causes: CauseNames | None = None,
        event_value: object = None,
    ) -> Self:
        """Create the outcome from columns of a frame, which are then not features.

        Estimators exclude these columns from the same frame as `X`. The frame has features, and columns whose
        names are given as `time`, `event`, `entry`, `id` and `weight`; other arguments are as for the class.

        Raises:
            DataError: `frame` is not a DataFrame or lacks a column, or values are invalid.
            ConfigError: A column has two roles.

        >>> frame = pd.DataFrame({"age": [61, 54], "days": [300, 210], "died": [True, False]})
        >>> Surv.of(frame, time="days", event="died")
        Surv([300, 210+], right, 1 event in 2 rows)
        """
        table = to_pandas(frame)
        if not isinstance(table, pd.DataFrame):
            raise DataError(f"frame must be a DataFrame with these columns, got {type(frame).__name__}")
        names = [str(name) for name in table.columns]
        check_unique(names)
        given = {"time": time, "event": event, "entry": entry, "id": id, "weight": weight}
        roles = {role: str(name) for role, name in given.items() if name is not None}
        check_columns_exist(roles.values(), names)
        for (one, name), (other, same) in combinations(roles.items(), 2):
            if name == same:
                raise ConfigError(f"column {name!r} is named as {one} and {other}; name different columns")
        taken: dict[str, Any] = {role: table.iloc[:, names.index(name)] for role, name in roles.items()}
        return cls(**taken, causes=causes, event_value=event_value)._with(source=taken)

    @classmethod
    def _of_parts(cls, **parts: Any) -> Self:
        """An outcome of checked parts; those that are not given are None."""
        y = cls.__new__(cls)
        y._set(**parts)
        return y

    def _set(self, **parts: Any) -> None:
        for name, value in parts.items():
            if isinstance(value, np.ndarray):
                value = value.view()
                value.flags.writeable = False
            object.__setattr__(self, name, value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set(**state)  # arrays of a copy, too, cannot be written

    def _with(self, **parts: Any) -> Self:
        """The same outcome with other parts, which are checked already."""
        y = copy(self)
        y._set(**parts)
        return y

    @property
    def type(self) -> OutcomeName:
        """``"right"``, ``"counting"``, ``"interval"``, ``"competing"`` or ``"competing counting"``."""
        if self.intervals is not None:
            return "interval"
        counting = self.entry is not None or self.id is not None
        if self.causes is not None:
            return "competing counting" if counting else "competing"
        return "counting" if counting else "right"

    @property
    def outcome_type(self) -> OutcomeType:
        """The type of the outcome, as stored in a model."""
        return OutcomeType(self.type, self.entry is not None, self.id is not None, self.causes)

    @property
    def event(self) -> BoolArray:
        """Event indicator (n,): True if an event of any cause was observed, exactly or in an interval."""
        return self.cause > 0

    @property
    def n_events(self) -> int:
        """Number of rows with an event."""
        return int(self.event.sum())

    def right_censored(self, what: str) -> tuple[FloatArray, BoolArray, FloatArray]:
        """Times, events of any cause, entries or 0, (n,) each; DataError naming `what` for intervals."""
        if self.time is None:
            raise no_intervals(what)
        return self.time, self.event, np.zeros(len(self)) if self.entry is None else self.entry

    # ------------------------------------------------------------------ rows

    def __len__(self) -> int:
        return len(self.cause)

    @property
    def shape(self) -> tuple[int]:
        """``(n,)``, for tools that split arrays by rows."""
        return (len(self),)

    @property
    def ndim(self) -> int:
        """1."""
        return 1

    def __getitem__(self, rows: object) -> Self:
        """Some rows: a slice, a mask (n,), positions (m,), one, or ``[rows, ...]``; else IndexError."""
        if isinstance(rows, tuple):
            if len(rows) != 2 or rows[1] is not Ellipsis:
                raise IndexError("a Surv is indexed by rows alone: y[rows]")
            rows = rows[0]
        if not isinstance(rows, slice):
            rows = np.atleast_1d(np.asarray(rows))
            if rows.ndim > 1:
                raise IndexError(f"a Surv is indexed by (m,) positions or an (n,) mask, got {rows.shape}")
            rows = rows if rows.size else rows.astype(np.int64)
        place: Any = np.arange(len(self))[rows]
        own = {name: getattr(self, name) for name in _BY_ROW}
        parts = {name: None if value is None else value[place] for name, value in own.items()}
        if self.intervals is not None:
            parts["intervals"] = self.intervals.subset(place)
        if self.source is not None:
            parts["source"] = {role: column.iloc[place] for role, column in self.source.items()}
        return self._with(**parts)

    def weighted(self, weight: object) -> Self:
        """Return the outcome with other weights (n,), >= 0, or None."""
        check_same_order(y=self, weight=weight)
        return self._with(weight=check_weight(weight, len(self)))

    def of_cause(self, cause: int | str) -> Self:
        """Return the outcome with one cause as the event; events of other causes are censored."""
        number = cause_number(cause, known_causes(self.causes))
        return self._with(cause=(self.cause == number).astype(np.int64), causes=None)

    def any_cause(self) -> Self:
        """Return the outcome with any cause as the event; unchanged for one event."""
        return self._with(cause=self.event.astype(np.int64), causes=None)

    def from_landmark(self, after: float) -> Self:
        """Return the outcome with times counted from a landmark before the end of every row."""
        time, _, entry = self.right_censored("a landmark")
        after = time_of_rows(after, time, entry)
        late = None if self.entry is None else np.maximum(entry - after, 0.0)
        return self._with(time=time - after, entry=late)

    def followed_from(self, after: float) -> tuple[IntArray, Self]:
        """Return the rows at risk at a landmark and their outcome, with times counted from it.

        Follow-up continues through the later rows of the subject, up to the first event or gap: the end of a
        start-stop row is a change of covariates, not the end of follow-up.

        Returns:
            Positions of the rows with entry <= after < time, (m,), and their outcome, (m,), without entry.

        Raises:
            DataError: times are interval-censored, or no row is at risk.

        References:
            van Houwelingen (2007), Scandinavian Journal of Statistics 34, 70-85.

        >>> y = Surv([2, 7, 4], [0, 1, 0], entry=[0, 2, 0], id=["a", "a", "b"])
        >>> y.followed_from(1)[1]
        Surv([6, 3+], right, 1 event in 2 rows)
        """
        rows, y = self.entering(after)
        id = None if y.id is None or len(set(y.id)) == len(y) else y.id
        time, _, entry = y.right_censored("a landmark")
        return rows, y._with(time=time - entry, entry=None, id=id)

    def entering(self, after: float) -> tuple[IntArray, Self]:
        """As :meth:`followed_from`, on the original time scale: `after` is the entry of all rows."""
        time, event, entry = self.right_censored("a landmark")
        after = time_of_rows(after, time, entry)
        rows = np.flatnonzero((time > after) & (entry <= after))
        if not rows.size:
            raise DataError(f"no row is at risk at after={after:g}: all entered later or ended before")
        at = end = self[rows]
        if self.id is not None:  # the last of the rows that continue each
            subject, _ = parse_subjects(self.id, len(self))
            order, goes_on = continuations(subject, entry, time, event)
            chain = np.append(0, np.cumsum(~goes_on))
            last = np.empty_like(order)
            last[order] = order[np.append(np.flatnonzero(~goes_on), len(order) - 1)[chain]]
            end = self[last[rows]]
        entries = np.full(rows.size, float(after))
        return rows, end._with(weight=at.weight, index=at.index, source=at.source, entry=entries)

    def to_structured(self) -> npt.NDArray[np.void]:
        """Return a structured array with the fields ``event`` and ``time``, as in scikit-survival.

        A DataError for other outcomes than right-censored ones: the array would lose information.
        """
        if self.type != "right":
            raise DataError(f"a structured array of event and time cannot hold {self.type} outcomes")
        array = np.empty(len(self), dtype=[("event", np.bool_), ("time", np.float64)])
        array["event"], array["time"] = self.event, self.time
        return array

    def __array__(self, dtype: object = None, copy: bool | None = None) -> npt.NDArray[np.void]:
        """See :meth:`to_structured`."""
        return self.to_structured()

    def __repr__(self) -> str:
        shown = ", ".join(self[:6]._texts()) + (", ..." if len(self) > 6 else "")
        return (
            f"Surv([{shown}], {self.type}, {counted(self.n_events, 'event')} in {counted(len(self), 'row')})"
        )

    def _texts(self) -> list[str]:
        """Each outcome as R prints it: ``5``, ``5+``, ``(2, 7+]``, ``5:relapse``."""
        if self.intervals is not None:
            return [_bounds_text(low, high) for low, high in zip(*self.intervals, strict=True)]
        time, event, entry = self.right_censored("a text")
        texts = [f"{end:g}" + "+" * (not happened) for end, happened in zip(time, event, strict=True)]
        if self.entry is not None:
            texts = [f"({begin:g}, {text}]" for begin, text in zip(entry, texts, strict=True)]
        if self.causes is not None:
            names = ["", *(f":{name}" for name in self.causes)]
            texts = [text + names[cause] for text, cause in zip(texts, self.cause, strict=True)]
        return texts


def _bounds_text(low: float, high: float) -> str:
    if low == high:
        return f"{low:g}"
    if np.isinf(high):
        return f"{low:g}+"
    return f"({low:g}, {high:g}]" if low else f"{high:g}-"


def index_of(*parts: object) -> pd.Index | None:
    """Row labels of the first part that has some."""
    return next((part.index for part in parts if isinstance(part, pd.DataFrame | pd.Series)), None)


def as_surv(y: object) -> Surv:
    """Convert a Surv, a tuple (time, event), a frame with ``time`` and ``event``, or a structured array."""
    # Fields of arrays are found by these names or by type; other forms raise a DataError.
    if isinstance(y, Surv):
        return y
    time, event = parse_target(y)
    index = index_of(*(y if isinstance(y, tuple) else [y]))
    return Surv._of_parts(time=time, cause=event.astype(np.int64), index=index)


def outcome_of(model: object, y: object) -> Surv:
    """Convert an outcome for a fitted model, with causes in its order, or refuse it."""
    # Entries, subjects or causes of training must not lack; models without ``outcome_type_`` accept any.
    outcome, trained = as_surv(y), getattr(model, "outcome_type_", None)
    if not isinstance(trained, OutcomeType):
        return outcome
    wanted = {"entry": trained.entry and outcome.entry is None, "id": trained.id and outcome.id is None}
    if lacking := [part for part, lacks in wanted.items() if lacks]:
        raise DataError(
            f"y has no {' and no '.join(lacking)}, and the model was trained on {trained.name} data with "
            f"{' and '.join(lacking)}: give y=Surv(time, event, {'=..., '.join(lacking)}=...)"
        )
    if trained.causes is None and outcome.causes is not None:
        raise DataError(
            "y has competing causes, and the model was trained on one event: give Surv(time, cause == k) "
            "to look at the hazard of cause k, or train a model of competing risks"
        )
    if trained.causes is not None and outcome.causes is None:
        raise DataError(
            f"y has one event, and the model was trained on competing causes ({', '.join(trained.causes)}): "
            "give y=Surv(time, cause, causes=...)"
        )
    return outcome if trained.causes is None else recoded(outcome, trained.causes)


def recoded(y: Surv, names: Sequence[str]) -> Surv:
    """Return the outcome with causes in the order of a model; causes without events are allowed."""
    known = known_causes(y.causes)
    place = {folded(name): k for k, name in enumerate(names, 1)}
    if unknown := [name for name in known if folded(name) not in place]:
        raise DataError(
            f"y has the cause {', '.join(map(repr, unknown))}; the model has {', '.join(names)}: name the "
            "causes alike, Surv(time, cause, causes={value: name})"
        )
    codes = np.array([0, *(place[folded(name)] for name in known)])
    return y._with(causes=tuple(names), cause=codes[y.cause])


def without_outcome(X: object, y: object) -> object:
    """Features without the columns that the outcome was taken from, whose values are compared."""
    frame = to_pandas(X)
    if not isinstance(y, Surv) or y.source is None or not isinstance(frame, pd.DataFrame):
        return X
    taken = {str(column.name): (role, column) for role, column in y.source.items()}
    names = [str(name) for name in frame.columns]
    for place, name in enumerate(names):
        if name in taken and len(frame) == len(y) and not _equal(frame.iloc[:, place], taken[name][1]):
            raise DataError(
                f"column {name!r} of X is not the column of the {taken[name][0]} that y was taken from; "
                "rename it, or give y of the same rows"
            )
    if set(names) <= taken.keys():
        raise DataError(f"no feature column is left apart from {', '.join(map(repr, sorted(taken)))}")
    return frame.loc[:, [name not in taken for name in names]]


def _equal(one: pd.Series, other: pd.Series) -> bool:
    """Whether two columns hold the same numbers, or the same labels, but for the rounding of float32."""
    if pdt.is_numeric_dtype(one.dtype) and pdt.is_numeric_dtype(other.dtype):
        first, second = (x.to_numpy(dtype=np.float64, na_value=np.nan) for x in (one, other))
        return np.allclose(first, second, rtol=1e-6, atol=0.0, equal_nan=True)
    return np.array_equal(labels(one), labels(other))
