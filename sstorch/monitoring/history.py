"""Training history: two tables of records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]

STEP_COLUMNS = ["problem", "macro_iteration", "node", "step", "objective_before", "objective_after"]
STEP_COLUMNS += ["gradient_norm", "evaluations", "rows", "status", "restarted"]
MACRO_COLUMNS = ["problem", "macro_iteration", "objective", "best_objective", "gradient_norm"]


@dataclass
class History:
    """Training records of a batch: two tables.

    ``steps`` has one row per problem and inner step: step is ``BN``, ``LN``, ``WLR``, ``JOINT``, or that of a
    :meth:`TrainingRun.step <sstorch.optim.TrainingRun.step>`; the objectives are those of the minimisation,
    ``rows`` counts I_s, ``restarted`` marks leaves that overflowed and restarted from the starting values of
    the family. ``macro_iterations`` has one row per problem and macro iteration, or pass of another trainer,
    counted from 1 (0 is the initial solution), with the full objective E, the best criterion so far, the
    max-norm of the gradient of E, in columns ``mass_<leaf>`` the share of training rows whose path ends in
    each leaf, in ``gate_norm_<gate>`` the Euclidean norm of the weights of each gate, and with held-out rows
    ``held_out_loss``, their mean loss.
    """

    _steps: list[Columns] = field(default_factory=list)
    _macro: list[Columns] = field(default_factory=list)

    def add_steps(self, **columns: Any) -> None:
        """Append step records; scalars are repeated over the problems."""
        self._steps.append(_columns(columns, STEP_COLUMNS))

    def add_macro_iteration(self, **columns: Any) -> None:
        """Append macro iteration records; extra columns (``mass_<leaf>``) are allowed."""
        self._macro.append(_columns(columns, list(dict.fromkeys([*MACRO_COLUMNS, *columns]))))

    @property
    def steps(self) -> pd.DataFrame:
        """All step records."""
        return _frame(self._steps, STEP_COLUMNS)

    @property
    def macro_iterations(self) -> pd.DataFrame:
        """All macro iteration records."""
        return _frame(self._macro, MACRO_COLUMNS)

    def last_macro_iteration(self) -> pd.DataFrame:
        """The newest macro iteration records."""
        return _frame(self._macro[-1:], MACRO_COLUMNS)

    def of_problem(self, problem: int) -> History:
        """The records of one problem, numbered 0."""

        def own(blocks: list[Columns]) -> list[Columns]:
            kept = [(block, block["problem"] == problem) for block in blocks]
            chosen = [{name: v[rows] for name, v in block.items()} for block, rows in kept if rows.any()]
            return [block | {"problem": 0 * block["problem"]} for block in chosen]

        return History(own(self._steps), own(self._macro))

    def until(self, macro_iteration: int) -> History:
        """Records up to the end of a macro iteration; the tables are shared."""
        tables = (self._steps, self._macro)
        return History(*([b for b in part if b["macro_iteration"][0] <= macro_iteration] for part in tables))


def _columns(columns: Mapping[str, Any], names: list[str]) -> Columns:
    arrays = {name: np.atleast_1d(np.asarray(columns[name])) for name in names}
    size = max(map(len, arrays.values()))
    # A record owns its numbers: what it was made from may change.
    return {name: np.broadcast_to(array, size).copy() for name, array in arrays.items()}


def _frame(blocks: list[Columns], names: list[str]) -> pd.DataFrame:
    if not blocks:
        return pd.DataFrame({name: [] for name in names})
    return pd.DataFrame({name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]})
