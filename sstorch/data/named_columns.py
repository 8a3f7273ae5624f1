"""A frame that holds its target: columns by name, in the words of lifelines."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sstorch.checks import check_columns_exist, check_unique
from sstorch.data.columns import to_pandas
from sstorch.exceptions import ConfigError, DataError


def split_columns(
    X: object,
    y: object,
    sample_weight: object = None,
    entry: object = None,
    id: object = None,
    *,
    duration_col: str | None,
    event_col: str | None,
    weights_col: str | None = None,
    entry_col: str | None = None,
    id_col: str | None = None,
) -> tuple[object, object, object, object, object]:
    """Features, target, weights, entry times and persons, where columns of X hold them.

    Args:
        X: Features; with `duration_col` a frame of features and the columns named here.
        y: Target in a form of `parse_target`, or None if columns hold it.
        sample_weight: Weight of each row (n,), or None.
        entry: Entry time of each row (n,), or None.
        id: Person of each row (n,), or None.
        duration_col: Column of the times; None if X holds features alone.
        event_col: Column of the events; None if every row has one.
        weights_col: Column of the weights.
        entry_col: Column of the entry times.
        id_col: Column of the persons.

    Returns:
        X without these columns, y, sample_weight, entry, id; as they came if no column is named.

    Raises:
        ConfigError: Something is said twice, or columns are named without `duration_col`.
        DataError: X is no frame, lacks a column, or has no others.
    """
    named = {
        option: name
        for option, name in (
            ("duration_col", duration_col),
            ("event_col", event_col),
            ("weights_col", weights_col),
            ("entry_col", entry_col),
            ("id_col", id_col),
        )
        if name is not None
    }
    if not named:
        return X, y, sample_weight, entry, id
    if duration_col is None:
        raise ConfigError(f"{next(iter(named))} names a column of X, and duration_col does not; name both")
    for option, given, name in (
        ("duration_col", y, "y"),
        ("weights_col", sample_weight, "sample_weight"),
        ("entry_col", entry, "entry"),
        ("id_col", id, "id"),
    ):
        if option in named and given is not None:
            raise ConfigError(f"{option} and {name} say the same; leave one of them out")
    frame = to_pandas(X)
    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"X is a {type(X).__name__}; with duration_col give a DataFrame with that column")
    present = [str(name) for name in frame.columns]
    check_unique(present)
    wanted = [str(name) for name in named.values()]
    check_columns_exist(wanted, present)
    if len(set(wanted)) < len(wanted):
        twice = next(name for name in wanted if wanted.count(name) > 1)
        raise ConfigError(f"column {twice!r} is named for two things; name different columns")
    columns = {option: frame.iloc[:, present.index(str(name))] for option, name in named.items()}
    features = frame.loc[:, [name not in wanted for name in present]]
    if features.shape[1] == 0:
        raise DataError(f"no feature column is left beside {duration_col!r}")
    event = columns.get("event_col", pd.Series(np.ones(len(frame), dtype=bool), index=frame.index))
    return (
        features,
        (columns["duration_col"], event),
        columns.get("weights_col", sample_weight),
        columns.get("entry_col", entry),
        columns.get("id_col", id),
    )
