"""Training history: two tables of records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
MACRO_COLUMNS = ("problem", "macro_iteration", "objective", "best_objective", "gradient_norm")


@dataclass
class History:
    """Training records of a batch: two tables.

    ``steps`` has one row per problem and inner step: step is ``BN``, ``LN``, ``WLR`` or ``SKIP``, the
    objectives are those of the minimisation in the step, ``rows`` counts I_s, ``left_share`` is the share
    routed left before the step, ``restarted`` marks leaves that overflowed and restarted from the starting
    values of the family. ``macro_iterations`` has one row per problem and macro iteration, counted from 1 (0
    is the initial solution), with the full objective E, the best criterion so far, the max-norm of the
    gradient of E, in columns ``mass_<leaf>`` the share of training rows whose path ends in each leaf, in
    ``gate_norm_<gate>`` the Euclidean norm of the weights of each gate, and with held-out rows
    ``held_out_loss``, their mean loss.
    For trainers other than the decomposition a macro iteration is a pass: the one joint minimisation, whose
    step is ``JOINT`` of the root, or the steps of :meth:`TrainingRun.step
    <sstorch.optim.TrainingRun.step>`, by their names.
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
        """Step records of one macro iteration, searched from the end."""
        chosen: list[Columns] = []
        for block in reversed(self._steps):
            if block["macro_iteration"][0] < macro_iteration:
                break
            chosen.append(block)
        return _frame(chosen[::-1], STEP_COLUMNS)

    def last_macro_iteration(self) -> pd.DataFrame:
        """The newest macro iteration records."""
        return _frame(self._macro[-1:], MACRO_COLUMNS)

    def of_problem(self, problem: int) -> History:
        """The records of one problem, numbered 0."""
        return History(_only(self._steps, problem), _only(self._macro, problem))

    def until(self, macro_iteration: int) -> History:
        """Records up to the end of a macro iteration; the tables are shared."""
        return History(_until(self._steps, macro_iteration), _until(self._macro, macro_iteration))


def _columns(columns: Mapping[str, Any], names: tuple[str, ...]) -> Columns:
    missing = [name for name in names if name not in columns]
    if missing:
        raise TypeError(f"history record without {', '.join(missing)}")
    arrays = {name: np.atleast_1d(np.asarray(columns[name])) for name in names}
    size = max(array.shape[0] for array in arrays.values())
    # A record owns its numbers: what it was made from may change.
    return {
        name: array.copy() if len(array) == size else np.full(size, array[0])
        for name, array in arrays.items()
    }


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
