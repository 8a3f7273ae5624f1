"""What a run is: its settings, data and start as plain values that tell two runs apart."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from types import FunctionType

import numpy as np
import torch
from torch import Tensor, nn

from sstorch.exceptions import ConfigError
from sstorch.nn import HazardFamily, SoftTree

Plain = bool | int | float | str | None
Fingerprint = dict[str, Plain]

_DIGEST = "sha256 "
# Differences that an error message names before it counts the others.
_NAMED = 6


def fingerprint(value: object, name: str) -> Fingerprint:
    """Describe settings or data by dotted names; tensors by dtype, shape and checksum.

    Args:
        value: plain values, functions, tensors, trees, other modules, and dataclasses, mappings and sequences
            of them.
        name: of the value.

    Raises:
        ConfigError: something else is among them, which need not look alike in two processes.
    """
    return dict(_entries(value, name))


def differences(there: Mapping[str, Plain], here: Mapping[str, Plain]) -> str:
    """What tells two fingerprints apart, in words; empty if nothing does."""
    told = []
    for name in dict.fromkeys((*there, *here)):
        if name not in here or name not in there:
            told.append(f"{name} is only {'there' if name in there else 'here'}")
        elif there[name] != here[name]:
            values = there[name], here[name]
            hidden = any(isinstance(value, str) and _DIGEST in value for value in values)
            told.append(f"{name} differs" if hidden else f"{name} is {values[0]} there and {values[1]} here")
    more = len(told) - _NAMED
    return "; ".join(told[:_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _entries(value: object, name: str) -> Iterator[tuple[str, Plain]]:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str):
        yield name, value
    elif isinstance(value, Integral):
        yield name, int(value)
    elif isinstance(value, Real):
        # JSON has no infinity.
        yield name, float(value) if np.isfinite(float(value)) else str(value)
    elif isinstance(value, Tensor):
        yield name, float(value) if value.ndim == 0 else _tensor_text({"": value})
    elif isinstance(value, HazardFamily):
        yield name, value.name
        yield from _entries(value.options(), name)
    elif isinstance(value, SoftTree):
        yield name, f"{value.n_problems} of depth {value.topology.depth} in {value.n_features} features"
        yield from _entries(value.family, f"{name}.leaf")
        yield f"{name}.parameters", _tensor_text(value.state_dict())
    elif isinstance(value, nn.Module):
        for path, module in value.named_modules():
            here = f"{name}.{path}".rstrip(".")
            yield here, f"{type(module).__name__}({module.extra_repr()})"
            for attribute, item in vars(module).items():
                if isinstance(item, bool | int | float | str | Tensor) and attribute[0] != "_":
                    yield from _entries(item, f"{here}.{attribute}")
        for path, tensor in value.state_dict().items():
            yield from _entries(tensor, f"{name}.{path}")
    elif is_dataclass(value) and not isinstance(value, type):
        yield name, type(value).__name__
        for item in fields(value):
            yield from _entries(getattr(value, item.name), f"{name}.{item.name}")
        # See Trainer.retired.
        yield from ((f"{name}.{key}", plain) for key, plain in getattr(value, "retired", {}).items())
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _entries(part, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        yield f"{name}.count", len(value)
        for number, part in enumerate(value):
            yield from _entries(part, f"{name}.{number}")
    elif isinstance(value, FunctionType):
        yield name, _function_text(value)
    else:
        raise ConfigError(
            f"{name} is a {type(value).__name__}, which a checkpoint cannot compare with that of a later "
            "run; use plain values, dataclasses, tensors, modules or functions, or train without a checkpoint"
        )


def _function_text(function: Callable[..., object]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _tensor_text(tensors: Mapping[str, Tensor]) -> str:
    """Dtype and shape of the first of some tensors, and the checksum of all."""
    digest, about = hashlib.sha256(), ""
    for name, tensor in tensors.items():
        text = f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)} "
        about = about or text
        digest.update(f"{name} {text}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return f"{about}{_DIGEST}{digest.hexdigest()}"
