"""Outcomes in any accepted form, those of a fitted model, and the features that are none of their columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from pandas.api import types as pdt

from sstorch.data.causes import known_causes
from sstorch.data.columns import folded, labels, to_pandas
from sstorch.data.surv import OutcomeType, Surv, index_of
from sstorch.data.target import parse_target
from sstorch.exceptions import DataError


def as_surv(y: object) -> Surv:
    """Convert any accepted form of an outcome to a :class:`Surv`; others raise a DataError.

    Forms are a Surv, a tuple (time, event), a DataFrame with the columns ``time`` and ``event``, and a
    structured array, whose fields are found by these names or by type.
    """
    if isinstance(y, Surv):
        return y
    time, event = parse_target(y)
    index = index_of(*(y if isinstance(y, tuple) else [y]))
    return Surv._of_parts(time=time, cause=event.astype(np.int64), index=index)


def outcome_of(model: object, y: object) -> Surv:
    """Convert an outcome for a fitted model, with causes in the order of the model.

    A DataError names what the training outcome had and this one has not: entry times, subjects, causes; or
    causes that are unknown to the model. Models without ``outcome_type_``, such as those of other packages,
    accept any outcome.
    """
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
