"""The state of a run on disk: one safetensors file, replaced as a whole after every pass; no pickle."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass
from numbers import Integral, Real
from pathlib import Path
from types import FunctionType
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from filelock import BaseFileLock
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as dump_arrays
from torch import Tensor, nn

from sstorch.exceptions import ConfigError, FormatError
from sstorch.files import take_lock, try_lock, unlock, write_whole
from sstorch.nn import HazardFamily, SoftTree
from sstorch.optim.packing import Arrays, pack, unpack

T = TypeVar("T")

Plain = bool | int | float | str | None
Fingerprint = dict[str, Plain]

_DIGEST = "sha256 "
# Differences that an error message names before it counts the others.
_NAMED = 6


def fingerprint(value: object, name: str) -> Fingerprint:
    """Settings or data by dotted names that begin with ``name``; tensors by dtype, shape and checksum.

    Raises:
        ConfigError: something is not a plain value, function, tensor, tree, other module, or dataclass,
            mapping or sequence of them, and need not look alike in two processes.
    """
    return dict(_entries(value, name))


def differences(there: Mapping[str, Plain], here: Mapping[str, Plain]) -> str:
    """The differences of two fingerprints in words; empty if there are none."""
    texts = []
    for name in dict.fromkeys((*there, *here)):
        if name not in here or name not in there:
            texts.append(f"{name} is only {'there' if name in there else 'here'}")
        elif there[name] != here[name]:
            values = there[name], here[name]
            hidden = any(isinstance(value, str) and _DIGEST in value for value in values)
            texts.append(f"{name} differs" if hidden else f"{name} is {values[0]} there and {values[1]} here")
    more = len(texts) - _NAMED
    return "; ".join(texts[:_NAMED]) + (f"; and {more} more" if more > 0 else "")


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
        yield name, f"{value.n_problems} of depth {value.topology.depth} in {value.in_features} features"
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
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _entries(part, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        yield f"{name}.count", len(value)
        for number, part in enumerate(value):
            yield from _entries(part, f"{name}.{number}")
    elif isinstance(value, FunctionType):
        yield name, f"{value.__module__}.{value.__qualname__}"
    else:
        raise ConfigError(
            f"{name} is a {type(value).__name__}, which a checkpoint cannot compare with that of a later "
            "run; use plain values, dataclasses, tensors, modules or functions, or train without a checkpoint"
        )


def _tensor_text(tensors: Mapping[str, Tensor]) -> str:
    """Dtype and shape of the first of some tensors, and the checksum of all."""
    digest, about = hashlib.sha256(), ""
    for name, tensor in tensors.items():
        text = f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)} "
        about = about or text
        digest.update(f"{name} {text}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return f"{about}{_DIGEST}{digest.hexdigest()}"


FORMAT = "sstorch.checkpoint"
FORMAT_VERSION = 2


@dataclass
class _File:
    """State of a checkpoint file held by a process."""

    lock: BaseFileLock | None = None
    depth: int = 0
    identity: dict[str, Fingerprint] = field(default_factory=dict)
    arrays: Arrays | None = None


class Checkpoint:
    """File from which an interrupted run continues.

    Pass it, or its path, as ``checkpoint`` to :meth:`Trainer.train`, to ``SoftSurvivalTree.fit`` or to
    ``cross_validate``. The file is written atomically after every finished part (:func:`kept`), at the start
    of the training and after every pass. A later run with the same settings, data and starting values
    continues from it. On the same machine with the same number of threads its trees are identical, bit for
    bit, to those of an uninterrupted run; on CUDA, where some sums have no fixed order, up to rounding. Any
    other run raises.

    Args:
        path: path of the file; a missing folder is created.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file = _File()
        self._prefix = ""

    @classmethod
    def of(cls, checkpoint: Self | str | os.PathLike[str]) -> Self:
        """Return the checkpoint, or a checkpoint for a path."""
        return checkpoint if isinstance(checkpoint, cls) else cls(checkpoint)  # type: ignore[arg-type]

    def within(self, part: str) -> Self:
        """Return the named part of the same file, with separate identification, reading and writing."""
        inner = copy(self)
        inner._prefix = f"{self._prefix}{part}/"
        return inner

    @property
    def _lock_path(self) -> Path:
        return self.path.with_name(f".{self.path.name}.lock")

    @property
    def is_held(self) -> bool:
        """True if a run, of this process or another, holds the file."""
        if not self._lock_path.exists():
            return False
        lock = try_lock(self._lock_path)
        if lock is not None:  # its holder was killed
            unlock(lock)
        return lock is None

    @contextmanager
    def held(self) -> Iterator[Self]:
        """Keep other processes from the file; may be nested.

        Raises:
            ConfigError: another run holds it, or the folder cannot be written.
            FormatError: there is a file, but it is truncated, altered or of an unknown format version.
        """
        file = self._file
        if file.depth == 0:
            try:
                if self.path.is_dir():
                    raise ConfigError(f"checkpoint {self.path} is a folder; name a file in it")
                self.path.parent.mkdir(parents=True, exist_ok=True)
                file.lock = take_lock(self._lock_path)
            except OSError as error:
                raise self._unwritable(error) from error
        file.depth += 1
        try:
            if file.depth == 1 and (stored := self._load()) is not None:
                file.identity, file.arrays = stored
            yield self
        finally:
            file.depth -= 1
            if file.depth == 0:
                file.identity, file.arrays = {}, None
                if file.lock is not None:
                    unlock(file.lock)
                file.lock = None

    def identify(self, **parts: object) -> None:
        """Compare the run with that of the file by their :func:`fingerprint`. While :meth:`held` only.

        Raises:
            ConfigError: the file belongs to a run that differs in one of the parts.
        """
        for part, value in parts.items():
            here = fingerprint(value, part)
            there = self._file.identity.setdefault(self._prefix + part, here)
            if difference := differences(there, here):
                raise ConfigError(
                    f"{self.path} belongs to another run: {difference}. Repeat that run, delete the file to "
                    "begin anew, or name another"
                )

    def read(self) -> Arrays | None:
        """The arrays written last; None if there are none. While :meth:`held` only."""
        own = {
            name.removeprefix(self._prefix): array
            for name, array in (self._file.arrays or {}).items()
            if name.startswith(self._prefix)
        }
        return own or None

    def write(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Replace the file by one with these arrays in place of those of this part. While :meth:`held` only.

        Raises:
            ConfigError: the file cannot be written; an existing file is unchanged.
        """
        others = {
            name: array
            for name, array in (self._file.arrays or {}).items()
            if not name.startswith(self._prefix)
        }
        own = {f"{self._prefix}{name}": np.array(array, order="C") for name, array in arrays.items()}
        every = others | own
        ordered = {name: every[name] for name in sorted(every)}
        state = {"format": FORMAT, "format_version": FORMAT_VERSION, "identity": self._file.identity}
        text = json.dumps(state, allow_nan=False, ensure_ascii=False)
        blob = dump_arrays(ordered, {"state": text, "sha256": _checksum(text, ordered)})
        try:
            write_whole(self.path, blob)
        except OSError as error:
            raise self._unwritable(error) from error
        self._file.arrays = ordered

    def _load(self) -> tuple[dict[str, Fingerprint], Arrays] | None:
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="numpy") as file:
                metadata = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in sorted(file.keys())}
            state = json.loads(metadata["state"])
            version = state["format"], state["format_version"]
            if version != (FORMAT, FORMAT_VERSION):
                raise FormatError(
                    f"{self.path} is of format {version[0]} version {version[1]}; this version of sstorch "
                    f"reads {FORMAT} version {FORMAT_VERSION}; delete it to begin anew"
                )
            if metadata["sha256"] != _checksum(metadata["state"], arrays):
                raise FormatError(
                    f"{self.path} is altered: its checksum does not fit; delete it to begin anew"
                )
            identity: dict[str, Fingerprint] = state["identity"]
        except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise FormatError(
                f"{self.path} is no checkpoint, or truncated or altered ({error}); delete it to begin anew"
            ) from error
        except OSError as error:
            raise ConfigError(f"checkpoint {self.path} cannot be read: {error.strerror or error}") from error
        return identity, arrays

    def _unwritable(self, error: OSError) -> ConfigError:
        kept = "; the passes it holds are not lost" if self.path.is_file() else ""
        return ConfigError(
            f"checkpoint {self.path} cannot be written: {error.strerror or error}; make room or name another "
            f"place{kept}"
        )


def kept(
    checkpoint: Checkpoint | None, part: str, make: Callable[[], T], device: torch.device | None = None
) -> T:
    """A result that an earlier run has kept in a checkpoint; else make it, and keep it there under its name.

    What the result depends on has identified the held checkpoint; tensors are on `device`, else on the CPU.
    """
    if checkpoint is None:
        return make()
    place = checkpoint.within(part)
    arrays = place.read()
    if arrays is None:
        arrays = pack(make())
        place.write(arrays)
    # Unpacked in either case: a tensor in another memory layout could round otherwise in what follows.
    value: T = unpack(arrays, device or "cpu")
    return value


def _checksum(text: str, arrays: Arrays) -> str:
    digest = hashlib.sha256(text.encode())
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.asarray(array, order="C").reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
