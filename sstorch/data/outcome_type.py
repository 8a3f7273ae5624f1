"""Type of the training outcome of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

OutcomeName = Literal["right", "counting", "interval", "competing", "competing counting"]


@dataclass(frozen=True)
class OutcomeType:
    """Type of the training outcome, stored in the model.

    Attributes:
        name: ``"right"`` (right-censored times), ``"counting"`` (rows with entry times or subjects: left
            truncation, start-stop rows), ``"interval"``, ``"competing"`` or ``"competing counting"``.
        entry: True if rows have entry times.
        id: True if rows have subjects.
        causes: Names of the competing causes; None for one event.
        weighted: True if the rows had unequal weights.
    """

    name: OutcomeName = "right"
    entry: bool = False
    id: bool = False
    causes: tuple[str, ...] | None = None
    weighted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_dict`."""
        causes = None if values["causes"] is None else tuple(str(name) for name in values["causes"])
        return cls(
            values["name"], bool(values["entry"]), bool(values["id"]), causes, bool(values["weighted"])
        )
