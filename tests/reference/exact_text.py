"""Files and signatures as text that is equal only where they are."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from safetensors.torch import load as load_tensors

# Entries of a saved model's JSON that say by which versions it was written, and checksums over these.
VERSIONED = ("sstorch_version", "torch_version", "state_sha256", "tree_sha256")
# Columns that hold durations.
TIMED = ("seconds",)
ALIASES: dict[str, Any] = {
    "ArrayLike | None": npt.ArrayLike | None,
    "ArrayLike": npt.ArrayLike,
    "pd.DataFrame": pd.DataFrame,
    "NDArray[np.float64]": npt.NDArray[np.float64],
    "NDArray[np.int64]": npt.NDArray[np.int64],
    "NDArray[np.bool_]": npt.NDArray[np.bool_],
}


def sha(content: str | bytes) -> str:
    """First 64 bits of the SHA-256 of a text or of bytes."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]


def files_of(folder: Path) -> dict[str, str]:
    """Checksum of every file below a folder of a saved model, by its path.

    The JSON is taken without versions and the checksums over them. Tensors are taken as the file has them,
    or, where a duration is among them, one by one without it; its checksum in the JSON is then left out too.
    """
    files = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = file.read_bytes()
        timed = file.suffix == ".safetensors" and bool(set(TIMED) & set(load_tensors(content)))
        if timed:
            kept = sorted((k, v) for k, v in load_tensors(content).items() if k not in TIMED)
            content = b"".join(
                f"{k} {v.dtype} {list(v.shape)}".encode() + v.numpy().tobytes() for k, v in kept
            )
        if file.suffix == ".json":
            state = json.loads(content)
            tensors = load_tensors((file.parent / "tensors.safetensors").read_bytes())
            dropped = {*VERSIONED, *(["tensors_sha256"] if set(TIMED) & set(tensors) else [])}
            plain = {key: value for key, value in state.items() if key not in dropped}
            if "cv_results" in plain:  # a table as text, with the seconds of each candidate
                table = pd.read_csv(io.StringIO(plain["cv_results"]))
                plain["cv_results"] = table.drop(columns=list(TIMED), errors="ignore").to_csv()
            content = json.dumps(plain, indent=1, ensure_ascii=False).encode()
        files[file.relative_to(folder).as_posix()] = sha(content)
    return files


def public_names(module_name: str, others: Sequence[str] = ()) -> dict[str, str]:
    """Every public name of a module, and of its classes, with its signature.

    Args:
        module_name: of the module.
        others: modules whose classes are described there, and here only named.
    """
    try:
        module: ModuleType = importlib.import_module(module_name)
    except ImportError as error:
        return {"(module)": f"missing: {_plain(str(error))}"}
    names: dict[str, str] = {}
    for name in sorted(module.__all__):
        value = getattr(module, name)
        home = next((other for other in others if _has(other, name, value)), None)
        if home is not None:
            names[name] = f"that of {home}"
        elif inspect.isclass(value):
            names[name] = f"class{_signature(value)}"
            names |= {f"{name}.{member}": text for member, text in _members(value)}
        elif callable(value):
            names[name] = _signature(value)
        else:
            names[name] = _constant(value)
    return names


def _has(module_name: str, name: str, value: object) -> bool:
    try:
        return getattr(importlib.import_module(module_name), name, None) is value
    except ImportError:
        return False


def _members(kind: type) -> Iterator[tuple[str, str]]:
    """Public methods, properties and constants that come from this package."""
    for name in sorted(dir(kind)):
        origin = next((base for base in kind.__mro__ if name in vars(base)), None)
        if origin is None or not origin.__module__.startswith("sstorch") or name.startswith("_"):
            continue
        if name.startswith("set_") and name.endswith("_request"):  # scikit-learn's, made for each class
            continue
        value = inspect.getattr_static(kind, name)
        if isinstance(value, property | cached_property):
            function = value.fget if isinstance(value, property) else value.func
            yield name, f"property {_signature(function)}"
        elif callable(getattr(kind, name)):
            yield name, type(value).__name__.removesuffix("function") + " " + _signature(getattr(kind, name))
        else:
            yield name, _constant(getattr(kind, name))


def _signature(value: Any) -> str:
    """Names, kinds and defaults of the parameters, with annotations as they are written."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return " without a signature"
    parameters = [
        parameter
        if parameter.annotation is parameter.empty
        else parameter.replace(annotation=_Text(_annotation(parameter.annotation)))
        for parameter in signature.parameters.values()
    ]
    returned = signature.replace(
        parameters=parameters, return_annotation=_Text(_annotation(signature.return_annotation))
    )
    return _plain(str(returned))


class _Text:
    """A text that signatures show without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _annotation(annotation: object) -> str:
    """The same whether a module's annotations are evaluated or not, but for aliases of its own."""
    if annotation is inspect.Signature.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    for name, alias in ALIASES.items():
        for written in (inspect.formatannotation(alias), f"npt.{name}"):
            text = text.replace(written, name)
    return text


def _constant(value: object) -> str:
    if isinstance(value, ModuleType):
        return "module"
    text = ", ".join(sorted(map(str, value))) if isinstance(value, Mapping) else repr(value)
    return f"{type(value).__name__} {_plain(text)}"


def _plain(text: str) -> str:
    """Without addresses in memory and without the modules that names of this package are from."""
    return re.sub(r"\bsstorch\.(?:\w+\.)*(\w+)", r"\1", re.sub(r" at 0x[0-9a-f]+", "", text))
