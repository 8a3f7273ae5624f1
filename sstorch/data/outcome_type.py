"""Type of the training outcome of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, Self

from sstorch.checks import option_text
from sstorch.exceptions import DataError

OutcomeName = Literal["right", "counting", "interval", "competing", "competing counting"]


class Outcome(Protocol):
    """Checked parts of a `Surv`."""

    @property
    def causes(self) -> tuple[str, ...] | None:
        """Names of the competing causes."""

    def has(self, part: str) -> bool:
        """Whether entry times or subjects are there."""


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

    def check(self, y: Outcome) -> None:
        """Check that an outcome has all parts of the training outcome.

        Raises:
            DataError: Entry times, subjects or causes are missing, or there are causes but the model has one
                event; the message contains the remedy.
        """
        lacking = [
            part for part, wanted in (("entry", self.entry), ("id", self.id)) if wanted and not y.has(part)
        ]
        if lacking:
            python = f"y=Surv(time, event, {'=..., '.join(lacking)}=...)"
            given = " ".join(dict.fromkeys(option_text(part, "COLUMN", python) for part in lacking))
            raise DataError(
                f"y has no {' and no '.join(lacking)}, and the model was trained on {self.name} data with "
                f"{' and '.join(lacking)}: give {given}"
            )
        if self.causes is None and y.causes is not None:
            raise DataError(
                "y has competing causes, and the model was trained on one event: give Surv(time, cause == k) "
                "to look at the hazard of cause k, or train a model of competing risks"
            )
        if self.causes is not None and y.causes is None:
            raise DataError(
                f"y has one event, and the model was trained on competing causes ({', '.join(self.causes)}): "
                "give y=Surv(time, cause, causes=...)"
            )

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
