"""Binary features with names that can be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import pandas as pd

from sstorch.data.columns import labels, numeric_values
from sstorch.exceptions import FormatError
from sstorch.optimal.patterns import BoolArray

RuleKind = Literal["above", "between", "is", "other", "missing"]


@dataclass(frozen=True)
class Rule:
    """A yes-no question about one column.

    A missing value answers no, except to ``"missing"``.

    Attributes:
        column: the column's name.
        kind: ``"above"``, x > low; ``"between"``, low < x <= high, infinite at the ends; ``"is"``, the
            category `values[0]`; ``"other"``, a category that is none of `values`; ``"missing"``.
        low: see `kind`.
        high: see `kind`.
        values: see `kind`.
    """

    column: str
    kind: RuleKind
    low: float = -np.inf
    high: float = np.inf
    values: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The rule in words: ``"age > 45.5"``."""
        if self.kind == "above":
            return f"{self.column} > {self.low:.10g}"
        if self.kind == "between":
            if self.low == -np.inf:
                return f"{self.column} <= {self.high:.10g}"
            if self.high == np.inf:
                return f"{self.column} > {self.low:.10g}"
            return f"{self.low:.10g} < {self.column} <= {self.high:.10g}"
        if self.kind == "is":
            return f"{self.column} = {self.values[0]}"
        return f"{self.column} is {'another category' if self.kind == 'other' else 'missing'}"

    def __call__(self, column: pd.Series) -> BoolArray:
        """The answer for every cell, shape (n,) bool."""
        if self.kind == "missing":
            return column.isna().to_numpy(dtype=np.bool_)
        if self.kind in ("above", "between"):
            numbers = numeric_values(column, f"column {self.column!r}")
            return (numbers > self.low) & (numbers <= self.high)
        cells = labels(column)
        known: BoolArray = np.array([cell in self.values for cell in cells], dtype=np.bool_)
        if self.kind == "is":
            return known
        return ~known & ~column.isna().to_numpy(dtype=np.bool_)

    def to_dict(self) -> dict[str, Any]:
        """The rule as a dictionary that JSON can hold: infinite ends are None."""
        state = asdict(self)
        for end in ("low", "high"):
            state[end] = state[end] if np.isfinite(state[end]) else None
        return state

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild a rule from `to_dict`.

        Raises:
            FormatError: an entry is missing or altered.
        """
        try:
            kind = state["kind"]
            if kind not in get_args(RuleKind):
                raise ValueError(f"kind {kind!r}")
            return cls(
                str(state["column"]),
                kind,
                -np.inf if state["low"] is None else float(state["low"]),
                np.inf if state["high"] is None else float(state["high"]),
                tuple(str(value) for value in state["values"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"a saved rule is incomplete or altered: {error!r}") from error
