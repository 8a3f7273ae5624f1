"""Where code makes the host wait for tensors, on any device: what would stall a GPU, seen on a CPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import sstorch

_ROOT = Path(sstorch.__file__).parent
# Operators whose result, or its size, the host has to know; on CUDA each waits for the stream. lift_fresh is
# what torch.tensor(...) does with a list: a copy from pageable memory, which waits as well.
_OPERATORS = (
    "aten::_local_scalar_dense",
    "aten::nonzero",
    "aten::masked_select",
    "aten::equal",
    "aten::bincount",
    "aten::repeat_interleave",
    "aten::lift_fresh",
    "aten::_unique2",
    "aten::unique_dim",
    "aten::unique_consecutive",
)
# On a CPU these do not reach the dispatcher.
_METHODS = {Tensor.tolist: "tolist", Tensor.numpy: "numpy", Tensor.cpu: "cpu", Tensor.__array__: "numpy"}


def _place() -> str:
    """Module and function of the innermost frame of the package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _ROOT not in Path(frame.f_code.co_filename).parents:
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    name = path.relative_to(_ROOT).with_suffix("").as_posix() if _ROOT in path.parents else path.stem
    return f"{name}: {frame.f_code.co_qualname}"


def _waits(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    name = operator.name().split(".")[0]
    if name == "aten::repeat_interleave":
        return kwargs.get("output_size") is None
    if name in ("aten::index", "aten::index_put", "aten::index_put_"):
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return name in _OPERATORS


class _Found:
    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self.found = found


class _Operators(_Found, TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _waits(func, args, kwargs or {}):
            self.found.append(_place())
        return func(*args, **(kwargs or {}))


class _Methods(_Found, TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _METHODS:
            self.found.append(_place())
        return func(*args, **(kwargs or {}))


@contextmanager
def host_syncs() -> Iterator[list[str]]:
    """Collect the places, ``"optim/batched_lbfgs: minimize"``, at which the host reads a tensor."""
    found: list[str] = []
    with _Methods(found), _Operators(found):
        yield found
