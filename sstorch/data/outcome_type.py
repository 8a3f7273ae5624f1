"""Type of the training outcome of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
