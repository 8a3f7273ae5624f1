"""Values made of dataclasses, containers and tensors as named arrays and a text, and back; no pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sstorch.exceptions import FormatError

Arrays = dict[str, npt.NDArray[Any]]

_LAYOUT = "layout"
_PACKAGE = "sstorch."


def pack(value: object) -> Arrays:
    """Tensors, arrays, plain values, containers and own dataclasses as arrays, else TypeError."""
    arrays: Arrays = {}
    text = json.dumps(_layout(value, arrays))
    return arrays | {_LAYOUT: np.frombuffer(text.encode(), dtype=np.uint8)}


def unpack(arrays: Arrays, device: torch.device | str = "cpu") -> Any:
    """The value of :func:`pack`, bit for bit, tensors on a device, or FormatError."""
    try:
        return _value(json.loads(arrays[_LAYOUT].tobytes()), arrays, device)
    except (KeyError, ValueError, TypeError, AttributeError, ImportError) as error:
        raise FormatError(f"a kept result is incomplete or of another version of sstorch: {error}") from error


def _layout(value: object, arrays: Arrays) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind == "U":  # as code points of characters
        name, points = str(len(arrays)), np.ascontiguousarray(value).view(np.uint32)
        arrays[name] = points.reshape(*value.shape, -1)
        return {"text": name}
    if isinstance(value, Tensor | np.ndarray):
        name = str(len(arrays))
        arrays[name] = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        return {"tensor" if isinstance(value, Tensor) else "array": name}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_layout(item, arrays) for item in value]}
    if isinstance(value, Mapping):
        return {"dict": [[_layout(key, arrays), _layout(item, arrays)] for key, item in value.items()]}
    kind = type(value)
    if is_dataclass(value) and kind.__module__.startswith(_PACKAGE):
        own = {item.name: _layout(getattr(value, item.name), arrays) for item in fields(value) if item.init}
        return {"class": [kind.__module__, kind.__qualname__], "fields": own}
    raise TypeError(f"a {kind.__module__}.{kind.__qualname__} cannot be kept in a checkpoint")


def _value(layout: Any, arrays: Arrays, device: torch.device | str) -> Any:
    if not isinstance(layout, dict):
        return layout
    if "class" in layout:
        module, name = layout["class"]
        if not module.startswith(_PACKAGE):
            raise ValueError(f"{module}.{name} is not of this package")
        kind = getattr(import_module(module), name)
        if not (isinstance(kind, type) and is_dataclass(kind)):
            raise ValueError(f"{module}.{name} is no dataclass")
        return kind(**{key: _value(item, arrays, device) for key, item in layout["fields"].items()})
    ((kind_name, content),) = layout.items()
    if kind_name == "tensor":
        return torch.from_numpy(arrays[content].copy()).to(device)
    if kind_name == "array":
        return arrays[content].copy()
    if kind_name == "text":
        points = np.ascontiguousarray(arrays[content])
        return points.view(f"<U{points.shape[-1]}").reshape(points.shape[:-1])
    if kind_name == "dict":
        return {_value(key, arrays, device): _value(item, arrays, device) for key, item in content}
    items = [_value(item, arrays, device) for item in content]
    return tuple(items) if kind_name == "tuple" else items
