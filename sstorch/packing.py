"""Objects of this package, containers, arrays and tensors as JSON and named arrays, and back; no pickle."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from sstorch.exceptions import FormatError

Arrays = dict[str, npt.NDArray[Any]]

_LAYOUT = "layout"
_PACKAGE = "sstorch."
# First letter of keys that say what a JSON object stands for.
_TAG = "$"


class Packed:
    """Base class of what is no dataclass: its attributes are written, and read without its constructor."""


def pack(value: object) -> Arrays:
    """Arrays for a value, as :func:`layout_of` takes it, with its layout among them."""
    arrays: Arrays = {}
    text = json.dumps(layout_of(value, arrays), allow_nan=False)
    return arrays | {_LAYOUT: np.frombuffer(text.encode(), dtype=np.uint8)}


def unpack(arrays: Arrays, device: torch.device | str = "cpu") -> Any:
    """The value of :func:`pack`, bit for bit, tensors on a device, or FormatError."""
    try:
        return value_of(json.loads(arrays[_LAYOUT].tobytes()), arrays, device)
    except (KeyError, ValueError, TypeError, AttributeError, ImportError) as error:
        raise FormatError(f"a kept result is incomplete or of another version of sstorch: {error}") from error


def layout_of(value: object, arrays: Arrays) -> Any:
    """JSON form of a value, TypeError for unknown types; arrays and tensors are added to the named arrays."""

    def named(array: npt.NDArray[Any]) -> str:
        arrays[name := f"array {len(arrays)}"] = array
        return name

    def each(values: Any) -> list[Any]:
        return [layout_of(item, arrays) for item in values]

    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind == "U":  # as code points of characters
        return {"$text": named(np.ascontiguousarray(value).view(np.uint32).reshape(*value.shape, -1))}
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return {"$objects": each(value.tolist())}
    if isinstance(value, np.ndarray):
        return {"$array": named(value)}
    if isinstance(value, Tensor):
        return {"$tensor": named(value.detach().cpu().numpy())}
    if isinstance(value, pd.DataFrame):
        index, columns = value.index, [(name, column.to_numpy()) for name, column in value.items()]
        return {"$frame": each([index.to_numpy(), list(index.names), columns, list(value.columns.names)])}
    if isinstance(value, list):
        return each(value)
    if isinstance(value, tuple):
        return {"$tuple": each(value)}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith(_TAG) for key in value):
            return dict(zip(value, each(value.values()), strict=True))
        return {"$dict": [each(pair) for pair in value.items()]}
    kind = type(value)
    if not kind.__module__.startswith(_PACKAGE) or not (isinstance(value, Packed) or is_dataclass(value)):
        raise TypeError(f"a {kind.__module__}.{kind.__qualname__} cannot be kept in a file")
    own = vars(value)
    if is_dataclass(value) and not isinstance(value, Packed):
        own = {item.name: getattr(value, item.name) for item in fields(value) if item.init}
    parts = dict(zip(own, each(own.values()), strict=True))
    return {"$class": [kind.__module__, kind.__qualname__], "fields": parts}


def value_of(layout: Any, arrays: Arrays, device: torch.device | str = "cpu") -> Any:
    """The value of a layout, tensors on a device; KeyError, ValueError, TypeError ... if it was altered."""
    if isinstance(layout, list):
        return [value_of(item, arrays, device) for item in layout]
    if not isinstance(layout, dict):
        return layout
    if not any(key.startswith(_TAG) for key in layout):
        return {key: value_of(item, arrays, device) for key, item in layout.items()}
    if "$class" in layout:
        own = {key: value_of(item, arrays, device) for key, item in layout["fields"].items()}
        module, name = layout["$class"]
        return _made(module, name, own)
    ((tag, content),) = layout.items()
    match tag:
        case "$float":
            return float(content)
        case "$tensor":
            return torch.from_numpy(arrays[content].copy()).to(device)
        case "$array":
            return arrays[content].copy()
        case "$text":
            points = np.ascontiguousarray(arrays[content])
            return points.view(f"<U{points.shape[-1]}").reshape(points.shape[:-1])
    parts = [value_of(item, arrays, device) for item in content]
    match tag:
        case "$objects":
            items = np.empty(len(parts), dtype=object)
            items[:] = parts
            return items
        case "$frame":
            index, levels, columns, names = parts
            labels = pd.MultiIndex.from_tuples(index) if len(levels) > 1 else pd.Index(index)
            frame = pd.DataFrame(dict(enumerate(column for _, column in columns)), index=labels)
            frame.columns = pd.Index([column for column, _ in columns])
            frame.index.names, frame.columns.names = levels, names
            return frame
        case "$dict":
            return dict(parts)
        case "$tuple":
            return tuple(parts)
    raise ValueError(f"unknown content {tag}")


def _made(module: str, name: str, own: Mapping[str, Any]) -> Any:
    """An object of a class of this package."""
    if not module.startswith(_PACKAGE):
        raise ValueError(f"{module}.{name} is not of this package")
    kind = getattr(import_module(module), name)
    if isinstance(kind, type) and issubclass(kind, Packed):
        value = kind.__new__(kind)
        vars(value).update(own)
        return value
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise ValueError(f"{module}.{name} is no dataclass")
    return kind(**own)
