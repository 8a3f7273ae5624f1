"""Checkpoints: states of unfinished work in one safetensors file, replaced as a whole; no pickle."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from pathlib import Path
from types import FunctionType
from typing import Any, Self, TypeVar

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as dump_arrays
from torch import Tensor, nn

from sstorch.exceptions import ConfigError, FormatError
from sstorch.files import checksum, take_lock, try_lock, unlock, write_whole
from sstorch.nn import HazardFamily
from sstorch.packing import Arrays, pack, unpack

T = TypeVar("T")

Plain = bool | int | float | str | None
# Increased when the content of a file changes, which then is that of other work.
_VERSION = 4
_REMEDY = "delete the file to begin anew"


class Checkpoint:
    """An open file of named states, made by :func:`opened`."""

    def __init__(self, path: Path, digest: str) -> None:
        self._path, self._digest, self._prefix = path, digest, ""
        self._arrays: Arrays = {}
        if not path.exists():
            return
        try:
            with safe_open(path, framework="numpy") as file:
                known = (file.metadata() or {})["digest"]
                self._arrays |= {name: file.get_tensor(name) for name in sorted(file.keys())}
        except (SafetensorError, KeyError) as error:
            raise FormatError(f"{path} is no checkpoint, or truncated ({error}); {_REMEDY}") from error
        if known != digest:
            raise ConfigError(
                f"`checkpoint` must be a file of a run with the same settings, data, starting values, device "
                f"and versions, got {path} of another run: repeat that run, {_REMEDY}, or name another"
            )

    def within(self, part: str) -> Self:
        """Return a part of the same file, with a state of its own."""
        inner = copy(self)  # which shares the arrays
        inner._prefix = f"{self._prefix}{part}/"
        return inner

    def read(self, device: torch.device | str = "cpu") -> Any:
        """Return the state of this part, bit for bit, tensors on a device; None if there is none."""
        start = len(self._prefix)
        arrays = {name[start:]: each for name, each in self._arrays.items() if name.startswith(self._prefix)}
        return unpack(arrays, device) if arrays else None

    def write(self, state: object) -> None:
        """Replace the state of this part, and so the file; ConfigError where it stays unchanged."""
        for name in [name for name in self._arrays if name.startswith(self._prefix)]:
            del self._arrays[name]
        self._arrays |= {f"{self._prefix}{name}": np.array(a, order="C") for name, a in pack(state).items()}
        with _writable(self._path):
            write_whole(self._path, dump_arrays(self._arrays, {"digest": self._digest}))


@contextmanager
def opened(
    checkpoint: Checkpoint | str | os.PathLike[str] | None, **identity: object
) -> Iterator[Checkpoint | None]:
    """Open the checkpoint file of a path, which no other process may open meanwhile.

    Work that is repeated with the same identity, by :func:`plain_values`, continues from the file: with the
    same number of threads its results are those of work without interruption, bit for bit; on CUDA, where
    some sums have no fixed order, up to rounding. A checkpoint that is open, or None, is returned as is.

    Raises ConfigError (another identity, open elsewhere, cannot be written) or FormatError (truncated).
    """
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        yield checkpoint
        return
    path, sha = Path(checkpoint), hashlib.sha256(b"%d" % _VERSION)
    for name, value in plain_values(identity, ""):
        sha.update(f"{name}={value!r}\n".encode())
    if path.is_dir():
        raise ConfigError(f"checkpoint {path} is a folder; name a file in it")
    with _writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = take_lock(_lock_path(path))
    try:
        yield Checkpoint(path, sha.hexdigest())
    finally:
        unlock(lock)


def is_open(path: Path) -> bool:
    """True if a process has a checkpoint file open, this one or another."""
    if not _lock_path(path).exists():
        return False
    lock = try_lock(_lock_path(path))
    if lock is not None:  # its holder was killed
        unlock(lock)
    return lock is None


def kept(
    checkpoint: Checkpoint | None, part: str, make: Callable[[], T], device: torch.device | str = "cpu"
) -> T:
    """A result that earlier work has kept in a part of a checkpoint; else make it, and keep it there."""
    if checkpoint is None:
        return make()
    place = checkpoint.within(part)
    if place.read() is None:
        place.write(make())
    # Read in either case: a tensor in another memory layout could round otherwise in what follows.
    value: T = place.read(device)
    return value


def plain_values(value: object, name: str) -> Iterator[tuple[str, Plain]]:
    """Settings or data as plain values by dotted names; tensors, arrays and frames by checksum.

    ConfigError for what need not look alike in two processes: no plain value, function, tensor, array, frame,
    module, or dataclass, mapping or sequence of them.
    """
    parts: Mapping[Any, object] = {}
    if value is None or isinstance(value, bool | str):
        yield name, value
    elif isinstance(value, Integral):
        yield name, int(value)
    elif isinstance(value, Real):  # JSON has no infinity
        yield name, float(value) if np.isfinite(float(value)) else str(value)
    elif isinstance(value, Tensor | np.ndarray):
        content = np.ascontiguousarray(value.detach().cpu() if isinstance(value, Tensor) else value)
        text = f"{content.dtype} {content.shape} sha256 {checksum(content.tobytes())}"
        yield name, float(content) if content.ndim == 0 else text
    elif isinstance(value, pd.DataFrame):
        parts = {"columns": value.columns.tolist(), "rows": pd.util.hash_pandas_object(value).to_numpy()}
    elif isinstance(value, HazardFamily):
        yield name, value.name
        parts = value.options()
    elif isinstance(value, nn.Module):
        yield name, repr(value)
        parts = value.state_dict() | {
            f"{path}.{key}".lstrip("."): item
            for path, module in value.named_modules()
            for key, item in vars(module).items()
            if key[0] != "_" and isinstance(item, bool | int | float | str | Tensor)
        }
    elif is_dataclass(value) and not isinstance(value, type):
        yield name, type(value).__name__
        parts = {item.name: getattr(value, item.name) for item in fields(value)}
    elif isinstance(value, Mapping):
        parts = value
    elif isinstance(value, list | tuple):
        parts = {"count": len(value), **dict(enumerate(value))}
    elif isinstance(value, FunctionType):
        yield name, f"{value.__module__}.{value.__qualname__}"
    else:
        raise ConfigError(
            f"{name} is a {type(value).__name__}, which a checkpoint cannot compare with that of a later "
            "run; use plain values, dataclasses, tensors, modules or functions, or train without a checkpoint"
        )
    for key, part in parts.items():
        yield from plain_values(part, f"{name}.{key}".lstrip("."))


def _lock_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    """ConfigError in place of what the system says of a file."""
    try:
        yield
    except OSError as error:
        text = (
            f"checkpoint {path} cannot be written: {error.strerror or error}; make room or name another place"
        )
        raise ConfigError(text + "; the passes it holds are not lost" * path.is_file()) from error
