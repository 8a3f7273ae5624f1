"""Subjects with several rows, each from its entry to its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import counted, rows_text
from sstorch.data.columns import labels, row_labels
from sstorch.exceptions import DataError

# Condition under which one row of a model with time-varying covariates determines survival from time zero.
CONSTANT_COVARIATES = "if the covariates stay as in the row"


def parse_subjects(id: object, n: int) -> tuple[IntArray, list[object]]:
    """Subject of each row, (n,), 0 .. P - 1 in the order in which they first appear, and their ids."""
    codes, ids = pd.factorize(row_labels(id, n, "id").astype(object))
    return codes.astype(np.int64), list(ids)


def check_histories(
    subject: IntArray,
    ids: Sequence[object],
    entry: FloatArray,
    time: FloatArray,
    event: BoolArray,
    whole: bool = True,
) -> None:
    """Refuse rows of a subject that overlap or, where histories are `whole`, follow an event."""
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
    if whole and (after := event[one]).any():
        raise DataError(
            f"{rows(after)}: a row comes after an event, which ends a history; recurrent events are not "
            "supported: keep the rows up to the first"
        )


def check_no_roles_left(frame: pd.DataFrame, id: npt.NDArray[Any] | None, entry: FloatArray) -> None:
    """Refuse features of counting-process rows that are the entry times or the subjects."""
    subjects = None if id is None else labels(pd.Series(id))
    for name in frame.columns:
        column = frame[name]
        coded = isinstance(column.dtype, pd.CategoricalDtype)
        if not coded and np.ptp(entry) and np.array_equal(column.to_numpy(), entry):
            raise DataError(f"column {str(name)!r} of X holds the entry times; drop it from X")
        # Labels of whole columns are slow; that of the first row of a measurement differs already.
        if subjects is None or not np.array_equal(labels(column[:1]), subjects[:1]):
            continue
        if np.array_equal(labels(column), subjects):
            raise DataError(
                f"column {str(name)!r} of X identifies the subjects of start-stop rows; drop it from X"
            )


def rows_of_subjects(rows: float, subjects: float | None) -> str:
    """Number of rows in words, with that of their subjects; None if each subject has one row."""
    of_subjects = "" if subjects is None else f" of {counted(subjects, 'subject')}"
    return counted(rows, "row") + of_subjects


def continuations(
    subject: IntArray, entry: FloatArray, time: FloatArray, event: BoolArray, *same: npt.NDArray[Any]
) -> tuple[IntArray, BoolArray]:
    """Order of rows by subject and entry, (n,), and whether each goes on with the next one, (n - 1,).

    It does without an event or a gap between them, if given values, (n,) each, are equal.
    """
    order = np.lexsort((entry, subject))
    one, other = order[:-1], order[1:]
    goes_on = (entry[other] == time[one]) & ~event[one]
    for values in (subject, *same):
        goes_on &= values[one] == values[other]
    return order, goes_on


def ends_of_follow_up(subject: IntArray, entry: FloatArray, time: FloatArray, event: BoolArray) -> IntArray:
    """Of each row the last of those that continue it without an event or a gap, (n,)."""
    order, goes_on = continuations(subject, entry, time, event)
    ends = np.append(np.flatnonzero(~goes_on), len(order) - 1)
    last = np.empty_like(order)
    last[order] = order[ends[np.append(0, np.cumsum(~goes_on))]]
    return last
