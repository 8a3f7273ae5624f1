"""Records of a training run, kept as columns; every logger reads them, the trainer knows no logger."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]

STEP_COLUMNS = (
    "problem",
    "macro_iteration",
    "node",
    "step",
    "objective_before",
    "objective_after",
    "gradient_norm",
    "evaluations",
    "rows",
    "left_share",
    "status",
    "restarted",
)
MACRO_COLUMNS = ("problem", "macro_iteration", "objective", "best_objective", "gradient_norm", "dropped")


@dataclass
class History:
    """Two tables that grow while a batch is trained.

    ``steps`` has one row per problem and inner step: step is ``BN``, ``LN``, ``WLR`` or ``SKIP``, the
    objectives are those of the step's own minimisation, ``rows`` counts I_s, ``left_share`` is the share
    routed left before the step, ``restarted`` marks leaves that overflowed and began again from the family's
    start. ``macro_iterations`` has one row per problem and macro iteration, counted
    from 1 (0 is the initial solution), with the full objective, the best so far, whether the start was then
    dropped from the race and, in columns ``mass_<leaf>``, the share of training rows whose path ends in each
    leaf. For trainers other than the decomposition a macro iteration is a pass: an epoch, or the one joint
    minimisation, whose step is ``JOINT`` of the root.
    """

    _steps: list[Columns] = field(default_factory=list)
    _macro: list[Columns] = field(default_factory=list)

    def add_steps(self, **columns: Any) -> None:
        """Append step records; scalars are repeated over the problems."""
        self._steps.append(_columns(columns, STEP_COLUMNS))

    def add_macro_iteration(self, **columns: Any) -> None:
        """Append macro iteration records; extra columns (``mass_<leaf>``) are allowed."""
        extra = tuple(name for name in columns if name not in MACRO_COLUMNS)
        self._macro.append(_columns(columns, MACRO_COLUMNS + extra))

    @property
    def steps(self) -> pd.DataFrame:
        """All step records."""
        return _frame(self._steps, STEP_COLUMNS)

    @property
    def macro_iterations(self) -> pd.DataFrame:
        """All macro iteration records."""
        return _frame(self._macro, MACRO_COLUMNS)

    def last_steps(self, macro_iteration: int) -> pd.DataFrame:
        """Step records of one macro iteration, found from the end."""
        chosen: list[Columns] = []
        for block in reversed(self._steps):
            if block["macro_iteration"][0] < macro_iteration:
                break
            chosen.append(block)
        return _frame(chosen[::-1], STEP_COLUMNS)

    def last_macro_iteration(self) -> pd.DataFrame:
        """The newest macro iteration records."""
        return _frame(self._macro[-1:], MACRO_COLUMNS)

    def dropped(self) -> set[int]:
        """Problems that were dropped from a race: their trees have not been trained to the end."""
        table = self.macro_iterations
        return set(table.loc[table["dropped"].astype(bool), "problem"].astype(int))

    def of_problem(self, problem: int) -> History:
        """The records of one problem, numbered 0."""
        return History(_only(self._steps, problem), _only(self._macro, problem))

    def until(self, macro_iteration: int) -> History:
        """The records as they stood at the end of a macro iteration; the tables are shared."""
        return History(_until(self._steps, macro_iteration), _until(self._macro, macro_iteration))

    def to_arrays(self) -> Columns:
        """All records as arrays of numbers, text as code points, from which they are rebuilt exactly."""
        tables = {"steps": self._steps, "macro_iterations": self._macro}
        return {
            f"{table}/{number}/{position}/{name}": _as_numbers(column)
            for table, blocks in tables.items()
            for number, block in enumerate(blocks)
            for position, (name, column) in enumerate(block.items())
        }

    @classmethod
    def from_arrays(cls, arrays: Columns) -> History:
        """Rebuild the records from :meth:`to_arrays`, in whatever order the arrays come."""
        tables: dict[str, dict[int, dict[int, tuple[str, NDArray[Any]]]]] = {
            "steps": {},
            "macro_iterations": {},
        }
        for key, values in arrays.items():
            table, number, position, name = key.split("/")
            column = name, _text(values) if values.ndim == 2 else values
            tables[table].setdefault(int(number), {})[int(position)] = column
        steps, macro = (
            [dict(block[position] for position in range(len(block))) for _, block in sorted(blocks.items())]
            for blocks in tables.values()
        )
        return cls(steps, macro)

    def save(self, folder: Path) -> None:
        """Write ``steps.parquet`` and ``macro_iterations.parquet`` into an existing folder.

        Each file is moved into place when it is whole, so that it can be read at any moment.
        """
        for name, table in (("steps", self.steps), ("macro_iterations", self.macro_iterations)):
            aside = folder / f".{name}.parquet"
            table.to_parquet(aside, index=False)
            os.replace(aside, folder / f"{name}.parquet")


def _columns(columns: Mapping[str, Any], names: tuple[str, ...]) -> Columns:
    missing = [name for name in names if name not in columns]
    if missing:
        raise TypeError(f"history record without {', '.join(missing)}")
    arrays = {name: np.atleast_1d(np.asarray(columns[name])) for name in names}
    size = max(array.shape[0] for array in arrays.values())
    return {name: np.broadcast_to(array, (size,)).copy() for name, array in arrays.items()}


def _frame(blocks: list[Columns], names: tuple[str, ...]) -> pd.DataFrame:
    if not blocks:
        return pd.DataFrame({name: [] for name in names})
    return pd.DataFrame({name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]})


def _only(blocks: list[Columns], problem: int) -> list[Columns]:
    chosen = []
    for block in blocks:
        rows = block["problem"] == problem
        if rows.any():
            chosen.append({**{k: v[rows] for k, v in block.items()}, "problem": np.zeros(rows.sum(), int)})
    return chosen


def _until(blocks: list[Columns], macro_iteration: int) -> list[Columns]:
    return [block for block in blocks if block["macro_iteration"][0] <= macro_iteration]


def _as_numbers(column: NDArray[Any]) -> NDArray[Any]:
    """Numbers as they are; texts as the code points of their characters, shape (n, width)."""
    return column.view(np.uint32).reshape(len(column), -1) if column.dtype.kind == "U" else column


def _text(code_points: NDArray[np.uint32]) -> NDArray[np.str_]:
    return np.ascontiguousarray(code_points).view(f"<U{code_points.shape[1]}").reshape(-1)
