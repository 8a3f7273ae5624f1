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
        k, n_pairs = int(pairs.argmax()), int(pairs.sum())
        both = np.isin(np.arange(len(subject)), [one[k], other[k]])
        more = f" ({n_pairs} such pairs)" if n_pairs > 1 else ""
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
    subjects = labels(pd.Series([] if id is None else id))
    for name, column in frame.items():
        what = ""
        # Labels of whole columns are slow; that of the first row of a measurement differs already.
        if np.array_equal(labels(column[:1]), subjects[:1]) and np.array_equal(labels(column), subjects):
            what = "identifies the subjects of start-stop rows"
        elif np.ptp(entry) and np.array_equal(column.to_numpy(), entry):
            what = "holds the entry times"
        if what:
            raise DataError(f"column {str(name)!r} of X {what}; drop it from X")


def rows_of_subjects(rows: float, subjects: float | None) -> str:
    """Number of rows in words, with that of their subjects; None if each subject has one row."""
    return counted(rows, "row") + ("" if subjects is None else f" of {counted(subjects, 'subject')}")


def continuations(
    subject: IntArray, entry: FloatArray, time: FloatArray, event: BoolArray, *same: npt.NDArray[Any]
) -> tuple[IntArray, BoolArray]:
    """Order of rows by subject and entry, (n,), and whether each goes on with the next one, (n - 1,)."""
    # It does without an event or gap between them, if values of `same`, (n,) each, are equal.
    order = np.lexsort((entry, subject))
    one, other = order[:-1], order[1:]
    goes_on = (entry[other] == time[one]) & ~event[one]
    for values in (subject, *same):
        goes_on &= values[one] == values[other]
    return order, goes_on
