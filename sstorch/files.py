"""Files and folders that are written whole or not at all, and locks between processes."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from filelock import BaseFileLock, FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor

from sstorch._version import __version__
from sstorch.exceptions import ConfigError, FormatError
from sstorch.packing import Arrays, layout_of, value_of


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Write a file in one step: after a crash or `OSError`, too, readers find the old or all of the new."""
    # Random, since processes of several machines can have one number.
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        # The name is that of the file aside, or missing where the disk is full.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def try_lock(path: Path) -> BaseFileLock | None:
    """Take the lock of a path, a file that exists while it is held; None if it is held already."""
    lock = FileLock(path, blocking=False, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        return None
    return lock


def unlock(lock: BaseFileLock) -> None:
    """Give a lock back and remove its file."""
    if sys.platform != "win32":  # where the release removes it
        # While it is held: who has opened the file already finds that it has no name, and does not take it.
        Path(lock.lock_file).unlink(missing_ok=True)
    lock.release()


# What altered content raises.
_ALTERED = (AttributeError, ImportError, LookupError, TypeError, ValueError, RuntimeError)
JSON_NAME, TENSOR_NAME = "model.json", "tensors.safetensors"
_CHECKSUM = "state_sha256"


def write_folder(
    folder: Path, name: str, version: int, state: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Write a model, its state packed, into ``folder``, made if missing, with checksums of both files."""
    arrays: Arrays = {}
    packed = {key: layout_of(value, arrays) for key, value in state.items()}
    named = dict(tensors) | {key: torch.tensor(array) for key, array in arrays.items()}
    blob = dump_tensors({key: value.detach().cpu().contiguous() for key, value in named.items()})
    whole = {
        "format": name,
        "format_version": version,
        "sstorch_version": __version__,
        "torch_version": torch.__version__,
        "tensors_sha256": checksum(blob),
        **packed,
    }
    whole[_CHECKSUM] = _state_checksum(whole)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / TENSOR_NAME, blob)
        write_whole(folder / JSON_NAME, _text(whole))
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}; choose another folder") from error


def read_folder(folder: Path, name: str, version: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read what :func:`write_folder` wrote: the state, and the tensors on the CPU."""
    try:
        text, blob = (folder / JSON_NAME).read_bytes(), (folder / TENSOR_NAME).read_bytes()
    except OSError as error:
        raise FormatError(f"{folder} holds no saved tree: {error.strerror} ({error.filename})") from error
    with reading(folder):
        state: dict[str, Any] = json.loads(text)
        written = (state["format"], state["format_version"])
        if written != (name, version):
            raise FormatError(
                f"{folder / JSON_NAME} is of format {written[0]} version {written[1]}; this version of "
                f"sstorch reads {name} version {version}"
            )
        if checksum(blob) != state["tensors_sha256"]:
            raise FormatError(f"{folder / TENSOR_NAME} is truncated or altered: its checksum does not fit")
        # Digits that no float64 keeps would leave the content as it was: the text is compared, too.
        if _state_checksum(state) != state[_CHECKSUM] or _text(state) != text.replace(b"\r\n", b"\n"):
            raise FormatError(f"{folder / JSON_NAME} is incomplete or altered: its checksum does not fit")
        tensors = load_tensors(blob)
        arrays = {key: tensors.pop(key).numpy() for key in [*tensors] if key.startswith("array ")}
        return {key: value_of(value, arrays) for key, value in state.items()}, tensors


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Raise a `FormatError` that names the folder for whatever altered content raises while it is read."""
    try:
        yield
    except FormatError:
        raise
    except (*_ALTERED, SafetensorError) as error:
        raise FormatError(
            f"{folder} is incomplete or altered, or of another version of sstorch: {error}"
        ) from error


def checksum(content: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _text(state: Mapping[str, Any]) -> bytes:
    """JSON with a line for each entry; with deeper indents Python writes it number by number."""
    lines = [
        f" {json.dumps(key)}: {json.dumps(value, allow_nan=False, ensure_ascii=False)}"
        for key, value in state.items()
    ]
    return ("{\n" + ",\n".join(lines) + "\n}").encode()


def _state_checksum(state: Mapping[str, Any]) -> str:
    """Of everything but the checksum itself."""
    plain = {key: value for key, value in state.items() if key != _CHECKSUM}
    return checksum(json.dumps(plain, sort_keys=True, allow_nan=False).encode())
