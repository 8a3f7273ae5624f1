"""Anything that holds numbers as float64, and the order of rows that have labels."""

import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from sstorch.exceptions import DataError

FloatArray = npt.NDArray[np.float64]

# What the kinds of NumPy types that are no numbers are called in messages.
_NOT_NUMBERS = {
    "U": "text",
    "S": "text",
    "M": "dates",
    "m": "time spans",
    "c": "complex numbers",
    "V": "records",
}
_REMEDY = {"M": "; subtract the start and divide by one unit", "m": "; divide by one unit of time"}


def as_numbers(values: Any, name: str) -> FloatArray:
    """The values as float64.

    Numbers and booleans pass. Text is refused even where it spells numbers, as are dates and time spans,
    whose unit would be guessed, complex numbers, masked entries, and tensors that are not in host memory or
    carry a gradient.

    Args:
        values: anything that NumPy turns into an array, any shape.
        name: the argument's name, for the message.

    Raises:
        DataError: no numbers.
    """
    expected = f"{name}: expected an array of numbers in host memory; "
    if isinstance(values, torch.Tensor):
        if values.requires_grad:
            raise DataError(f"{expected}got a tensor that requires grad; pass {name}.detach().")
        if values.device.type != "cpu":
            raise DataError(f"{expected}got a tensor on {values.device}; pass {name}.cpu().")
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise DataError(f"{expected}got a masked array with masked entries; leave these rows out.")
    try:
        array = np.asarray(values)
        kinds = {array.dtype.kind} if array.dtype.kind != "O" else _kinds_of_objects(array)
        for kind, what in _NOT_NUMBERS.items():
            if kind in kinds:
                raise DataError(f"{expected}got {what}{_REMEDY.get(kind, '')}.")
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, RuntimeError) as error:  # of NumPy, pandas or torch
        raise DataError(f"{expected}{error}.") from error


def rounding_unit(values: Any) -> float:
    """Machine epsilon of the coarsest floating type of the values; 0 where they have none."""
    if isinstance(values, torch.Tensor):
        return float(torch.finfo(values.dtype).eps) if values.is_floating_point() else 0.0
    given = list(values.dtypes) if isinstance(values, pd.DataFrame) else [getattr(values, "dtype", None)]
    types = [getattr(dtype, "numpy_dtype", dtype) for dtype in given]  # pandas has floating types of its own
    return max(
        (float(np.finfo(t).eps) for t in types if isinstance(t, np.dtype) and t.kind == "f"), default=0.0
    )


def check_same_order(**parts: Any) -> None:
    """Refuse pandas objects whose row labels agree but stand in another order: rows would be mixed up.

    Args:
        **parts: arguments by name, of the same rows; what is no Series and no DataFrame is passed over.

    Raises:
        DataError: two of them have the same labels in different orders.
    """
    indexed = [
        (name, part.index) for name, part in parts.items() if isinstance(part, pd.DataFrame | pd.Series)
    ]
    for name, index in indexed[1:]:
        first_name, first = indexed[0]
        if (
            len(index) == len(first)
            and not index.equals(first)
            and first.is_unique
            and index.is_unique
            and first.isin(index).all()
        ):
            raise DataError(
                f"{first_name} and {name}: the same row labels in a different order; bring {name} into the "
                f"order of {first_name}, or reset_index(drop=True) on both if the rows do correspond."
            )


def _kinds_of_objects(array: npt.NDArray[np.object_]) -> set[str]:
    return {_kind_of(kind) for kind in set(map(type, array.flat))}


def _kind_of(kind: type) -> str:
    """The kind that an array of such objects would have; "f" for what may be a number."""
    if issubclass(kind, str | bytes):
        return "U"
    if issubclass(kind, complex | np.complexfloating):
        return "c"
    if issubclass(kind, np.datetime64 | datetime.date):  # pandas.Timestamp is one
        return "M"
    return "m" if issubclass(kind, np.timedelta64 | datetime.timedelta) else "f"
