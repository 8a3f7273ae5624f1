"""Dataclasses that hold many problems at once, some of which can be selected."""

from __future__ import annotations

from dataclasses import fields
from types import MappingProxyType
from typing import Any, Self

from torch import Tensor

# Metadata of a field that is the same for all problems: field(metadata=SHARED).
SHARED = MappingProxyType({"shared": True})


class Batched:
    """Mixin for dataclasses of K problems.

    Fields: tensors (K, ...), what has a ``select``, tuples of these, None; or, shared, with ``SHARED``.
    """

    def select(self, problems: Tensor | slice) -> Self:
        """The same for some of the problems: ascending positions (J,) among the K, or a slice."""
        chosen = {
            item.name: value if item.metadata.get("shared") else select(value, problems)
            for item in fields(self)  # type: ignore[arg-type]
            for value in (getattr(self, item.name),)
        }
        return type(self)(**chosen)

    def replaced(self, positions: Tensor, part: Self) -> Self:
        """The same with ``part``, J problems, in place of those at positions (J,)."""
        changed = {
            item.name: value if item.metadata.get("shared") else replaced(value, positions, other)
            for item in fields(self)  # type: ignore[arg-type]
            for value, other in ((getattr(self, item.name), getattr(part, item.name)),)
        }
        return type(self)(**changed)


def select(value: Any, problems: Tensor | slice) -> Any:
    """Some problems of a value, which may be any that a field of :class:`Batched` may have."""
    if isinstance(value, Tensor):
        return value[problems]
    if value is None:
        return None
    if isinstance(value, tuple):
        return tuple(select(item, problems) for item in value)
    return value.select(problems)


def replaced(value: Any, positions: Tensor, part: Any) -> Any:
    """A value, a tensor, None or another batched dataclass, with a part of its problems replaced."""
    if isinstance(value, Tensor):
        return value.index_copy(0, positions, part)
    return None if value is None else value.replaced(positions, part)
