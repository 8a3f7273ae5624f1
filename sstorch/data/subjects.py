"""Subjects with several rows, each from its entry to its time: numbers and checked histories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_after, counted, names_text, option_text, rows_text
from sstorch.data.columns import labels
from sstorch.data.oddities import Oddity
from sstorch.exceptions import ConfigError, DataError

# Ids that a message names.
_IDS_SHOWN = 3
# Rows that follow another of their value, and the share of them that begin where that one ends, from which a
# column is taken for the subjects; gaps in a history are why the share is below one.
_MIN_FOLLOWING, _FOLLOWING = 10, 0.9
# Condition under which one row of a model with time-varying covariates determines survival from time zero.
CONSTANT_COVARIATES = "if the covariates stay as in the row"


def parse_subjects(id: object, n: int) -> tuple[IntArray, list[object]]:
    """Subject of each row, (n,), 0 .. P - 1 in the order in which they first appear, and their ids."""
    values = pd.Series(np.asarray(id, dtype=object) if not isinstance(id, pd.Series) else id.to_numpy(object))
    if values.shape != (n,):
        raise DataError(f"id has {len(values)} values; give the subject of each of {n} rows")
    if (missing := values.isna().to_numpy(dtype=bool)).any():
        raise DataError(f"id is missing in {rows_text(missing)}; every row belongs to a subject")
    codes, ids = pd.factorize(values)
    return codes.astype(np.int64), list(ids)


def check_histories(
    subject: IntArray,
    ids: Sequence[object],
    entry: FloatArray,
    time: FloatArray,
    event: BoolArray,
    recurrent: bool = False,
) -> list[Oddity]:
    """Refuse rows of a subject that overlap or, unless `recurrent`, follow an event; gaps are odd."""
    order = np.lexsort((entry, subject))
    one, other = order[:-1], order[1:]
    follows = subject[one] == subject[other]
    one, other = one[follows], other[follows]

    def rows(pairs: BoolArray) -> str:
        k = int(np.flatnonzero(pairs)[0])
        both = np.zeros(len(subject), dtype=bool)
        both[[one[k], other[k]]] = True
        more = f" ({pairs.sum()} such pairs)" if pairs.sum() > 1 else ""
        return f"{rows_text(both)} of id {ids[subject[one[k]]]!r}{more}"

    if (overlap := entry[other] < time[one]).any():
        raise DataError(
            f"{rows(overlap)} overlap: a row lasts from its entry to its time, and the next row of the "
            "subject begins at that time or later; if they are different subjects, give them different ids"
        )
    if not recurrent and (after := event[one]).any():
        raise DataError(
            f"{rows(after)}: a row comes after an event, which ends a history; if the event can happen "
            "again, give recurrent=True"
        )
    gaps = entry[other] > time[one]
    if not gaps.any():
        return []
    names = names_text([str(ids[p]) for p in np.unique(subject[one[gaps]])][:_IDS_SHOWN])
    text = f"{gaps.sum()} gap{'s' * int(gaps.sum() > 1)} between rows of a subject, such as id {names}"
    return [Oddity(text, "a subject is not at risk in a gap; close gaps that were observed")]


def check_no_roles_left(
    frame: pd.DataFrame, id: npt.NDArray[Any] | None, entry: FloatArray, time: FloatArray
) -> None:
    """Refuse features of counting-process rows that are the entry times or identify the subjects.

    Without `id` a column identifies subjects if almost every row of a value begins where the row before of
    the same value ends.
    """
    late = bool(np.ptp(entry))
    subjects = None if id is None else labels(pd.Series(id))
    for name in frame.columns:
        column = frame[name]
        if isinstance(column.dtype, pd.CategoricalDtype):
            values = column.cat.codes.to_numpy()
        else:
            values = column.to_numpy()
            if late and np.array_equal(values, entry):
                raise DataError(f"column {str(name)!r} of X holds the entry times; drop it from X")
        if subjects is None:
            # A measurement with decimals can be another one for each subject, too.
            whole = bool((values == np.round(values)).all())
            identifies = whole and _follows_subjects(values, entry, time)
        else:
            # Labels of whole columns are slow; that of the first row of a measurement differs already.
            alike = np.array_equal(labels(column[:1]), subjects[:1])
            identifies = alike and np.array_equal(labels(column), subjects)
        if identifies:
            remedy = "drop it from X"
            if subjects is None:
                python = f"it as the subject, Surv(..., id=X[{str(name)!r}]), and {remedy}"
                remedy = f"give {option_text('id', str(name), python)}"
            raise DataError(f"column {str(name)!r} of X identifies the subjects of start-stop rows; {remedy}")


def check_not_start_stop(frame: pd.DataFrame, time: FloatArray) -> None:
    """Refuse features of rows without entry and id that are the entry times and the subjects.

    One column is below the time in every row, and almost every row of a value of another column has in it the
    time of the row before of the same value.
    """
    codes: dict[Any, npt.NDArray[Any]] = {
        name: (column.cat.codes if isinstance(column.dtype, pd.CategoricalDtype) else column).to_numpy()
        for name, column in frame.items()
    }
    for start in frame.select_dtypes("number"):
        entry = codes[start]
        late = entry[entry > 0]
        # Cheap, and necessary: start-stop rows after a subject's first begin at the time of another row.
        if not ((entry >= 0).all() and (entry < time).all() and len(np.unique(late)) >= _MIN_FOLLOWING):
            continue
        if np.isin(late, time).mean() < _FOLLOWING:
            continue
        for name, values in codes.items():
            whole = name != start and bool((values == np.round(values)).all())
            if whole and _follows_subjects(values, entry, time):
                python = f"Surv(..., entry=X[{str(start)!r}], id=X[{str(name)!r}]) and drop both from X"
                roles = {"entry": str(start), "id": str(name)}
                given = " ".join(dict.fromkeys(option_text(role, at, python) for role, at in roles.items()))
                raise DataError(
                    f"columns {str(start)!r} and {str(name)!r} of X hold the entry times and the subjects of "
                    f"start-stop rows; give {given}"
                )


def _follows_subjects(values: npt.NDArray[Any], entry: FloatArray, time: FloatArray) -> bool:
    order = np.lexsort((entry, values))
    same = values[order][1:] == values[order][:-1]
    if same.sum() < _MIN_FOLLOWING:
        return False
    follows = (entry[order][1:] == time[order][:-1])[same]
    return bool(follows.mean() >= _FOLLOWING and len(np.unique(values)) > 1)


def rows_of_subjects(rows: float, subjects: float | None) -> str:
    """Number of rows in words, with that of their subjects; None if each subject has one row."""
    of_subjects = "" if subjects is None else f" of {counted(subjects, 'subject')}"
    return counted(rows, "row") + of_subjects


def join_rows(
    same: Sequence[npt.NDArray[Any]], entry: FloatArray, time: FloatArray, event: BoolArray
) -> tuple[IntArray, IntArray, IntArray]:
    """First and last row of each run of rows that continue the row before, (m,), and each row's run, (n,).

    `same` is what the rows of a run have in common, subject first, (n,) each; missing numbers are alike. Runs
    are in the order in which the first of their rows was given.
    """
    order = np.lexsort((entry, same[0]))
    one, other = order[:-1], order[1:]
    continues = (entry[other] == time[one]) & ~event[one]
    for values in same:
        missing = values != values
        continues &= (values[one] == values[other]) | (missing[one] & missing[other])
    begins = np.append(True, ~continues)
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(order)) - 1
    place = np.argsort(np.minimum.reduceat(order, starts))
    run = np.empty_like(order)
    run[order] = np.argsort(place)[np.cumsum(begins) - 1]
    return order[starts][place], order[ends][place], run


@dataclass(frozen=True)
class Paths:
    """Rows of subjects, each valid from its entry to the subject's next row, the last one without end."""

    subject: IntArray  # subject of each row, (n,), 0 .. P - 1 in the order in which they first appear
    ids: list[object]  # of the subjects
    begin: FloatArray  # of each row, (n,)
    end: FloatArray  # of each row, (n,); infinite of the last

    @classmethod
    def of(cls, entry: object, id: object, n: int) -> Self:
        """Order the rows of each subject."""
        if entry is None or id is None:
            raise ConfigError(
                "a path needs entry, the time from which each row is valid, and id, its subject: give both"
            )
        subject, ids = parse_subjects(id, n)
        begin = check_after(entry, n, "entry")
        order = np.lexsort((begin, subject))
        end = np.full(n, np.inf)
        follows = subject[order[:-1]] == subject[order[1:]]
        end[order[:-1][follows]] = begin[order[1:][follows]]
        if (twice := end <= begin).any():
            raise DataError(
                f"{rows_text(twice)} of id {ids[subject[twice][0]]!r} begin when another row of the subject "
                "does; a path has one row at a time"
            )
        return cls(subject, ids, begin, end)

    def within(self, at: FloatArray) -> FloatArray:
        """Times of subjects (P, T) moved into each of their rows, (n, T + 1), its begin first."""
        inside = np.clip(at[self.subject], self.begin[:, None], self.end[:, None])
        return np.concatenate([self.begin[:, None], inside], axis=1)

    def summed(self, values: FloatArray) -> FloatArray:
        """Sum of rows (n, T) by subject, (P, T)."""
        total = np.zeros((len(self.ids), values.shape[1]))
        np.add.at(total, self.subject, values)
        return total
