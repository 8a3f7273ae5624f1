"""Rows that belong together by position: features, target, weights."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch.data.columns import numeric_values
from sstorch.data.wording import rows_text
from sstorch.exceptions import DataError


def check_same_order(*parts: tuple[str, object]) -> None:
    """Refuse pandas objects whose row labels agree but stand in another order: rows would be mixed up.

    Args:
        parts: names and values; what has no row labels is passed over.

    Raises:
        DataError: names the two that disagree.
    """
    indexed = [(name, part.index) for name, part in parts if isinstance(part, (pd.DataFrame, pd.Series))]
    for name, index in indexed[1:]:
        first_name, first = indexed[0]
        if not index.equals(first) and first.is_unique and index.is_unique and first.isin(index).all():
            raise DataError(
                f"{first_name} and {name} have the same row labels in a different order; "
                f"bring {name} into the order of {first_name}, or reset_index(drop=True) on both"
            )


def target_parts(y: object) -> list[tuple[str, object]]:
    """What of a target, in any form of `parse_target`, can have row labels; for `check_same_order`."""
    return [("y", y)] if not isinstance(y, tuple) else [("time", y[0]), ("event", y[1])]


def parse_weights(sample_weight: object, n: int) -> npt.NDArray[np.float64]:
    """Weight of each row, (n,); ones if None.

    Raises:
        DataError: another length, no finite numbers >= 0, or all of them 0.
    """
    if sample_weight is None:
        return np.ones(n)
    values = np.asarray(sample_weight)
    if values.shape != (n,):
        raise DataError(f"sample_weight has shape {values.shape}; give one weight for each of {n} rows")
    weight = numeric_values(pd.Series(values), "sample_weight")
    if (bad := ~np.isfinite(weight) | (weight < 0)).any():
        raise DataError(
            f"sample_weight is negative, missing or infinite in {rows_text(bad)}; weights are >= 0"
        )
    if not weight.any():
        raise DataError("sample_weight is zero in every row; give some rows weight")
    return weight
