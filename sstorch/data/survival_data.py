"""SurvivalData: the one gate through which features, times and events enter."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_columns_exist, check_same_order, check_weight, counted, wording
from sstorch.data.columns import clean_features, labels, row_labels, vocabulary
from sstorch.data.oddities import check_trainable, few_events, odd_columns
from sstorch.data.surv import Surv, as_surv, without_outcome
from sstorch.data.target import (
    Intervals,
    cause_number,
    check_all_occur,
    check_histories,
    continuations,
    known_causes,
    no_intervals,
    parse_subjects,
    positive_times,
)
from sstorch.data.time_unit import check_time_unit, rows_of_subjects
from sstorch.exceptions import ConfigError, DataError, warn

# A column with more values than this is a measurement, not a group.
_MAX_GROUPS = 20


class SurvivalData:
    """Validated survival data: features, outcome, weights.

    Rows of X, y and weights correspond by position. Events at time zero have no logarithm: they are moved to
    half the smallest positive time, and a DataWarning states their number. Rows censored at time zero have no
    follow-up, and likelihood one. Other DataWarnings report problems of training rows, by index labels or
    rows of a file: identifiers, leaks of the time or the event, columns that are mostly missing.

    Args:
        X: Features, DataFrame or array (n, p); array columns are named ``x0``, ``x1``, ... Columns used by
            `Surv.of` for `y` are excluded.
        y: Outcome: a `Surv`, or a right-censored outcome in a form accepted by `as_surv`.
        sample_weight: Weight of each row (n,), >= 0; None for the weights of `y`, or 1.
        zero_time: Replacement of a time of zero, unless a positive time is as small; by default half the
            smallest positive time. For scored rows, pass the value of the training rows.
        require_events: False for data that are only scored: no events, a single row, or a column without
            values are then allowed.
        sensitive: Group of each row (n,), for fairness, or the name of a column of `X`, which then is not a
            feature.
        time_unit: Unit of the times in texts and figures, such as ``"days"``; None if undefined.

    Attributes:
        frame: Features (n, p), rows numbered from 0: float64 columns with NaN for missing, and categorical
            columns whose categories are text.
        nominal_time: (n,) float64 > 0; of intervals the midpoints.
        zero_time: Replacement of times of zero.
        cause, causes, intervals: As of a `Surv`; no intervals if all times are exact or right-censored.
        sample_weight: (n,) float64.
        entry: (n,) float64 >= 0, 0 if a row is at risk from time zero.
        groups: Sensitive groups of the rows; None if not given.
        subject: Subject of each row, (n,), 0 .. P - 1 in the order of their first rows; None without id.
        outcome_type: Type of the outcome, which a model keeps.

    Raises:
        DataError: The data are invalid; the message names column, rows and remedy.
        ConfigError: Weights are given twice, or `time_unit` is not a text.

    >>> data = SurvivalData(np.array([[1.0], [2.0], [4.0]]), ([5.0, 3.0, 8.0], [1, 0, 1]))
    >>> data.describe()
    '3 rows, 1 feature (1 numeric, 0 categorical), 2 events (66.7 %), times 3 to 8, 0.0 % of cells missing'
    """

    groups: Groups | None = None
    subject: IntArray | None = None
    intervals: Intervals | None = None

    def __init__(
        self,
        X: object,
        y: object,
        *,
        sample_weight: object = None,
        require_events: bool = True,
        zero_time: float | None = None,
        sensitive: object = None,
        time_unit: str | None = None,
    ) -> None:
        self.time_unit = check_time_unit(time_unit)
        with wording(rows=X):
            features, y = without_outcome(X, y), as_surv(y)
            frame = self.frame = clean_features(features)
            n = len(frame)
            if n != len(y):
                raise DataError(f"X has {n} rows but y has {len(y)}; give one outcome for every row")
            if n == 0:
                raise DataError("the data have no rows")
            check_same_order(X=X, y=y, sample_weight=sample_weight, sensitive=sensitive)
            if sample_weight is not None and y.weight is not None:
                raise ConfigError("sample_weight and y both have weights; leave one of them out")
            weight = check_weight(y.weight if sample_weight is None else sample_weight, n)
            self.sample_weight = np.ones(n) if weight is None else weight
            self.outcome_type, self.cause, self.causes = y.outcome_type, y.cause.copy(), y.causes
            self.entry = np.zeros(n) if y.entry is None else y.entry.copy()
            time = y.right_censored("the data")[0] if y.intervals is None else y.intervals.middle
            if y.id is not None:
                self.subject, ids = parse_subjects(y.id, n)
                # Rows that are only scored may be any part of a history.
                check_histories(self.subject, ids, self.entry, time, self.event, whole=require_events)
            if require_events:
                if self.causes is not None:
                    check_all_occur(self.cause, self.causes, self.sample_weight)
                check_trainable(frame, y, time, self.sample_weight)
            self.nominal_time, self.zero_time = positive_times(time, self.event, zero_time)
            self._unobserved = (time == 0) & ~self.event
            if y.intervals is not None and y.intervals.censored.any():
                self.intervals = y.intervals.moved((time == 0) & self.event, self.nominal_time)
            if sensitive is not None:
                grouped = self.with_sensitive(sensitive)
                self.frame, self.groups = grouped.frame, grouped.groups
            if require_events:
                for text in odd_columns(frame, self.nominal_time, self.event):
                    warn(text)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        time: str = "time",
        event: str | None = "event",
        *,
        drop: Iterable[str] = (),
        time_unit: str | None = None,
        **outcome: Any,
    ) -> Self:
        """Create data from a frame with the outcome as in `Surv.of`; other columns are features.

        Args:
            frame: One row per subject, or with `id` several start-stop rows per subject.
            time: Column of the times.
            event: Column of the event indicators, or with `causes` of the causes.
            drop: Columns that are not features, such as identifiers.
            time_unit: Unit of the times used in texts and figures, such as ``"days"``.
            **outcome: Other columns and options of `Surv.of`.

        Raises:
            DataError: A column does not exist, or the data are invalid.
            ConfigError: As `Surv.of`.
        """
        dropped, names = {drop} if isinstance(drop, str) else set(drop), list(map(str, frame.columns))
        check_columns_exist(sorted(dropped), names)
        with wording(frame):
            y = Surv.of(frame, time, event, **outcome)
            return cls(frame.loc[:, [name not in dropped for name in names]], y, time_unit=time_unit)

    def with_sensitive(self, sensitive: object) -> Self:
        """Return the rows with sensitive groups (n,), or those of a named feature, which then is none."""
        data = copy(self)
        if isinstance(sensitive, str):
            check_columns_exist((sensitive,), self.feature_names)
            if len(self.feature_names) == 1:
                raise DataError(f"no feature column is left apart from the sensitive column {sensitive!r}")
            sensitive, data.frame = self.frame[sensitive], self.frame.drop(columns=sensitive)
        data.groups = parse_groups(sensitive, len(self))
        return data

    # ------------------------------------------------------------------ outcome

    def __len__(self) -> int:
        return len(self.nominal_time)

    @property
    def time(self) -> FloatArray:
        """Times (n,) float64 > 0, in the unit of the data; DataError if some are intervals."""
        self.refuse_intervals("this method")
        return self.nominal_time

    def refuse_intervals(self, what: str) -> None:
        """Raise a DataError if some times are intervals, which `what` does not support."""
        if self.intervals is not None:
            raise no_intervals(what)

    @property
    def event(self) -> BoolArray:
        """Event indicator (n,): True if an event was observed, exactly or in an interval."""
        return self.cause > 0

    @property
    def event_times(self) -> FloatArray:
        """Distinct event times, increasing; for intervals the upper bounds."""
        time = self.nominal_time if self.intervals is None else self.intervals.upper
        return np.unique(time[self.event])

    @property
    def y(self) -> Surv:
        """The outcome with events at time zero moved and without weights."""
        time = np.where(self._unobserved, 0.0, self.nominal_time)
        return Surv._of_parts(
            time=time if self.intervals is None else None,
            cause=self.cause,
            causes=self.causes,
            entry=self.entry if self.outcome_type.entry else None,
            id=self.subject,
            intervals=self.intervals,
        )

    @property
    def weighted_y(self) -> Surv:
        """The outcome with the weights, as used by metrics."""
        return self.y.weighted(self.sample_weight)

    @property
    def uneven_weight(self) -> FloatArray | None:
        """Weights (n,); None if all are equal."""
        return self.sample_weight if np.ptp(self.sample_weight) else None

    @property
    def time_varying(self) -> bool:
        """True if some subjects have several rows."""
        return self.subject is not None and int(self.subject.max()) + 1 < len(self)

    @property
    def begin(self) -> FloatArray:
        """Times from which rows are at risk (n,): H(time) - H(begin) is zero for rows without follow-up."""
        return np.where(self._unobserved, self.nominal_time, self.entry)

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Bounds of the times within intervals, (n,) each; 0 and +inf of other times."""
        given = self.intervals or Intervals(self.nominal_time, self.nominal_time)
        return np.where(given.censored, given.lower, 0.0), np.where(given.censored, given.upper, np.inf)

    @property
    def n_events(self) -> int:
        """Number of observed events."""
        return int(self.event.sum())

    @property
    def feature_names(self) -> list[str]:
        """Names of the p raw features."""
        return list(self.frame.columns)

    @property
    def cause_names(self) -> tuple[str, ...]:
        """Names of the K causes; DataError for one event."""
        return known_causes(self.causes)

    # ------------------------------------------------------------------ rows

    def subset(self, rows: object) -> Self:
        """Return a subset of the rows without new checks; it may have no event.

        Args:
            rows: Positions (m,), repetitions allowed, or a boolean mask (n,).

        Raises:
            DataError: No row is selected.
            IndexError: `rows` does not fit the data.
        """
        chosen = np.asarray(rows)
        if not chosen.size or not (index := np.arange(len(self))[chosen]).size:
            raise DataError("the subset has no rows")
        part = copy(self)
        part.frame = self.frame.iloc[index].reset_index(drop=True)
        for name in ("nominal_time", "cause", "sample_weight", "_unobserved", "entry"):
            setattr(part, name, getattr(self, name)[index])
        part.groups = None if self.groups is None else self.groups.subset(index)
        part.intervals = None if self.intervals is None else self.intervals.subset(index)
        if self.subject is not None:  # in their order, without those that have no row
            part.subject = np.unique(self.subject[index], return_inverse=True)[1]
        return part

    def counted(self) -> Self:
        """Return the rows of positive weight: those which scores count."""
        return self if self.sample_weight.all() else self.subset(self.sample_weight > 0.0)

    def followed(self) -> Self:
        """Return the rows of positive weight with follow-up."""
        part = self.counted()
        return part.subset(~part._unobserved) if part._unobserved.any() else part

    def joined(self) -> Self:
        """Return the rows of :meth:`followed`, to which models are fitted, where one goes on with the next.

        Consecutive rows of a subject with equal covariates, weight and group are one, unless there is an
        event between them: results do not depend on how follow-up is split.
        """
        part = self.followed()
        if part.subject is None:
            return part
        same = [part.sample_weight, *([] if part.groups is None else [part.groups.codes])]
        for _, column in part.frame.items():
            coded = isinstance(column.dtype, pd.CategoricalDtype)
            same.append((column.cat.codes if coded else column.fillna(np.inf)).to_numpy())
        order, goes_on = continuations(part.subject, part.entry, part.nominal_time, part.event, *same)
        if not goes_on.any():
            return part
        first, last = order[np.append(True, ~goes_on)], order[np.append(~goes_on, True)]
        place = np.argsort(last)
        joined = part.subset(last[place])
        joined.entry = part.entry[first[place]]
        return joined

    def of_cause(self, cause: int | str) -> Self:
        """Return the rows with one cause, by number or name, as the event; other causes are censored.

        Models of these rows estimate the cause-specific hazard; 1 - S is not the probability of the cause,
        since it ignores competing events.
        """
        part, number = copy(self), cause_number(cause, self.cause_names)
        part.cause, part.causes = (self.cause == number).astype(np.int64), None
        part.outcome_type = part.y.outcome_type
        return part

    def warn_of_few_events(self) -> None:
        """Warn before fitting about fewer than ten events, or fewer events than encoded columns."""
        for text in few_events(self.frame, self.event):
            warn(text)

    # ------------------------------------------------------------------ text

    def __repr__(self) -> str:
        return f"SurvivalData({self.describe()})"

    def describe(self) -> str:
        """Describe the data in one line."""
        n, p = self.frame.shape
        n_categorical = sum(isinstance(d, pd.CategoricalDtype) for d in self.frame.dtypes)
        n_late = int(np.count_nonzero(self.entry))
        subjects = None if self.subject is None else self.subject.max() + 1
        in_unit = f" {self.time_unit}" if self.time_unit else ""
        late = f", {counted(n_late, 'row')} with late entry" if n_late else ""
        causes = ""
        if self.intervals is not None:
            causes = f": {int(self.intervals.censored.sum())} within intervals"
        if self.causes is not None:
            counts = np.bincount(self.cause, minlength=len(self.causes) + 1)[1:]
            causes = ": " + ", ".join(f"{k} {name}" for k, name in zip(counts, self.causes, strict=True))
        return (
            f"{rows_of_subjects(n, subjects)}, {counted(p, 'feature')} "
            f"({p - n_categorical} numeric, {n_categorical} categorical), "
            f"{self.n_events} events ({100 * self.event.mean():.1f} %{causes}), "
            f"times {self.nominal_time.min():g} to {self.nominal_time.max():g}{in_unit}{late}, "
            f"{100 * float(self.frame.isna().to_numpy().mean()):.1f} % of cells missing"
        )


def fingerprint(data: SurvivalData) -> str:
    """Checksum of features and outcomes of rows with follow-up, whatever the order; weights are not in it."""
    data = data.joined()
    frame = data.frame[sorted(data.frame.columns)].reset_index(drop=True)
    code = data.event if data.causes is None else data.cause
    frame = frame.assign(**{"": data.nominal_time, " ": code.astype(np.float64), "  ": data.entry})
    rows = np.sort(pd.util.hash_pandas_object(frame, index=False).to_numpy())
    return hashlib.sha256(rows.tobytes()).hexdigest()


def on_training_rows(model: Any, X: Any, y: object) -> bool:
    """Whether rows are those that a model of this package was trained on, by their fingerprint."""
    fitted = getattr(model, "best_estimator_", model)
    known = getattr(fitted, "training_rows_", None)
    if known is None:
        return False
    with warnings.catch_warnings():  # of the rows, which those of the predictions repeat
        warnings.simplefilter("ignore")
        return bool(fingerprint(fitted._rows(X, y)) == known)


# ---------------------------------------------------------------------- sensitive groups


@dataclass(frozen=True)
class Groups:
    """Sensitive groups of rows."""

    name: str  # of the sensitive column
    labels: tuple[str, ...]  # names of the G groups; a subset of the rows keeps all
    codes: IntArray  # group of each row, 0 .. G - 1, (n,)

    @property
    def counts(self) -> IntArray:
        """Rows of each group, shape (G,)."""
        return np.bincount(self.codes, minlength=len(self.labels))

    def subset(self, index: IntArray) -> Groups:
        """The groups of the rows at positions ``index``."""
        return replace(self, codes=self.codes[index])


def parse_groups(values: object, n: int, name: str = "sensitive") -> Groups:
    """Groups of rows: text, numbers, booleans or categories, (n,), 2 to 20; a Series has its own name."""
    column = row_labels(values, n, "sensitive")
    name, words = name if column.name is None else str(column.name), labels(column)
    present = set(words)
    names = [value for value in vocabulary(column) if value in present]
    if len(names) < 2:
        raise DataError(f"sensitive column {name!r} is {names[0]} in every row; two groups are needed")
    if len(names) > _MAX_GROUPS:
        raise DataError(
            f"sensitive column {name!r} has {len(names)} different values; at most {_MAX_GROUPS} groups can "
            "be compared: cut it into a few, for instance with pd.cut"
        )
    code = {value: number for number, value in enumerate(names)}
    return Groups(name, tuple(names), np.array([code[word] for word in words], dtype=np.int64))
