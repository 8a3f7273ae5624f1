"""Training history and callbacks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from sstorch.files import write_whole
from sstorch.nn import SoftTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch.utils.tensorboard.writer import SummaryWriter

__all__ = ["Callback", "History", "HistoryWriter", "ProgressBar", "StepContext", "TensorBoardLogger"]

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
        """All records as a few arrays of numbers, to be rebuilt exactly from; text as code points."""
        return _to_arrays(self._steps, "steps") | _to_arrays(self._macro, "macro_iterations")

    @classmethod
    def from_arrays(cls, arrays: Columns) -> History:
        """Rebuild the records from :meth:`to_arrays`, in whatever order the arrays come."""
        return cls(_from_arrays(arrays, "steps"), _from_arrays(arrays, "macro_iterations"))

    def save(self, folder: Path) -> None:
        """Write ``steps.parquet`` and ``macro_iterations.parquet`` into an existing folder.

        Each file is moved into place when it is whole, so that it can be read at any moment.
        """
        for name, table in (("steps", self.steps), ("macro_iterations", self.macro_iterations)):
            write_whole(folder / f"{name}.parquet", table.to_parquet(index=False))


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


def _to_arrays(blocks: list[Columns], table: str) -> Columns:
    """Blocks one below the other, their sizes, and the dtype that each column has in each block."""
    if not blocks:
        return {}
    arrays = {f"{table}/sizes": np.array([len(next(iter(block.values()))) for block in blocks])}
    for position, name in enumerate(blocks[0]):
        columns = [block[name] for block in blocks]
        dtypes = np.array([column.dtype.str for column in columns])
        arrays[f"{table}/{position}/{name}/values"] = _as_numbers(np.concatenate(columns))
        arrays[f"{table}/{position}/{name}/dtypes"] = _as_numbers(dtypes)
    return arrays


def _from_arrays(arrays: Columns, table: str) -> list[Columns]:
    if f"{table}/sizes" not in arrays:
        return []
    ends = arrays[f"{table}/sizes"].cumsum()[:-1]
    blocks: list[Columns] = [{} for _ in range(len(ends) + 1)]
    keys = [key.split("/") for key in arrays if key.startswith(f"{table}/") and key.endswith("/values")]
    for _, position, name, _ in sorted(keys, key=lambda key: int(key[1])):
        values, dtypes = (
            _as_text(arrays[f"{table}/{position}/{name}/{part}"]) for part in ("values", "dtypes")
        )
        for block, column, dtype in zip(blocks, np.split(values, ends), dtypes, strict=True):
            block[name] = column.astype(dtype)
    return blocks


def _as_numbers(column: NDArray[Any]) -> NDArray[Any]:
    """Numbers as they are; texts as the code points of their characters, shape (n, width)."""
    return column.view(np.uint32).reshape(len(column), -1) if column.dtype.kind == "U" else column


def _as_text(column: NDArray[Any]) -> NDArray[Any]:
    """The inverse of :func:`_as_numbers`."""
    if column.ndim == 1:
        return column
    return np.ascontiguousarray(column).view(f"<U{column.shape[1]}").reshape(-1)


@dataclass(frozen=True)
class StepContext:
    """An inner step that has just ended, before its result is written back into the batch.

    Attributes:
        macro_iteration: counted from 1.
        node: s.
        step: ``BN``, ``LN`` or ``WLR``.
        tree: the sub-batch that took this step, frozen but for its working set.
        problems: positions of the sub-batch in the whole batch.
    """

    macro_iteration: int
    node: int
    step: str
    tree: SoftTree
    problems: Tensor


class Callback:
    """Base of callbacks, which does nothing: override the methods of interest.

    A run that is resumed from a checkpoint calls ``on_macro_iteration`` again for those that were done
    before, in order and with the history as it was then, but not ``on_step``.
    """

    def on_compile(self) -> None:
        """Before all else, if machine code has to be made, which takes half a minute, once on a machine."""

    def on_train_begin(self, tree: SoftTree, macro_iterations: int) -> None:
        """Before the first step, with the initial solutions and the most macro iterations there can be."""

    def on_step(self, context: StepContext) -> None:
        """After an inner step."""

    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        """After a macro iteration; 0 is the initial solution."""

    def on_train_end(self, history: History) -> None:
        """After the last macro iteration."""


class ProgressBar(Callback):
    """One tick per macro iteration: a bar on a terminal, plain lines elsewhere."""

    def on_compile(self) -> None:
        """Say what the wait is for."""
        print("making machine code: about 40 seconds, once on this machine", file=sys.stderr, flush=True)

    def on_train_begin(self, tree: SoftTree, macro_iterations: int) -> None:
        """Open the bar."""
        self._n_problems = tree.n_problems
        self._total = macro_iterations
        self._bar = (
            tqdm(total=macro_iterations, desc=f"{tree.n_problems} trees", unit="pass", file=sys.stderr)
            if sys.stderr.isatty()
            else None
        )

    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        """Advance, with the mean of the best objectives so far of the trees still training."""
        newest = history.last_macro_iteration()
        text = f"objective {newest['best_objective'].mean():.4f}, {len(newest)} training"
        if self._bar is not None:
            self._bar.set_postfix_str(text)
            self._bar.update(int(macro_iteration > 0))
        else:
            print(
                f"pass {macro_iteration}/{self._total} of {self._n_problems} trees: {text}",
                file=sys.stderr,
                flush=True,
            )

    def on_train_end(self, history: History) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()


class HistoryWriter(Callback):
    """Rewrite the history files after every macro iteration, so that a run cut short leaves its records.

    Args:
        folder: made if missing.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        """Write what there is so far."""
        history.save(self._folder)


class TensorBoardLogger(Callback):
    """One TensorBoard run per split of the data, each scalar a mean over the split's starts.

    Scalars by macro iteration: ``train/objective`` and ``train/best_objective``,
    ``node/<id>/<step>/objective`` after each BN, LN or WLR step, ``node/<id>/left_share`` and
    ``leaf/<id>/mass``.

    Args:
        folder: of the event files.
        names: of the splits, in the order of the batch.
        n_starts: problems per split.
    """

    def __init__(self, folder: Path, names: Sequence[str], n_starts: int) -> None:
        # Loading TensorBoard takes a second, which training without it need not wait for.
        from torch.utils.tensorboard.writer import SummaryWriter

        self._names = tuple(names)
        # A writer whose queue was interrupted waits for its next flush before it can be closed.
        self._writers = {name: SummaryWriter(str(folder / name), flush_secs=5) for name in names}
        self._n_starts = n_starts

    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        """Write the scalars of the macro iteration that ended."""
        newest = history.last_macro_iteration()
        masses = [name for name in map(str, newest) if name.startswith("mass_")]
        for writer, rows in self._by_split(newest[newest["macro_iteration"] == macro_iteration]):
            writer.add_scalar("train/objective", rows["objective"].mean(), macro_iteration)
            writer.add_scalar("train/best_objective", rows["best_objective"].mean(), macro_iteration)
            for name in masses:
                leaf = name.removeprefix("mass_")
                writer.add_scalar(f"leaf/{leaf}/mass", rows[name].mean(), macro_iteration)
        steps = history.last_steps(macro_iteration)
        steps = steps[(steps["macro_iteration"] == macro_iteration) & (steps["step"] != "SKIP")]
        for writer, rows in self._by_split(steps):
            tags = "node/" + rows["node"].astype(str) + "/" + rows["step"] + "/objective"
            for tag, value in rows["objective_after"].groupby(tags).mean().items():
                writer.add_scalar(str(tag), value, macro_iteration)
            gates = rows[rows["step"] != "LN"]
            for node, value in gates.groupby("node")["left_share"].mean().items():
                writer.add_scalar(f"node/{node!s}/left_share", value, macro_iteration)
        for writer in self._writers.values():
            writer.flush()

    def log_text(self, tag: str, text: str) -> None:
        """Write a text into every run, shown verbatim."""
        for writer in self._writers.values():
            writer.add_text(tag, "\n".join(f"    {line}" for line in text.splitlines()))

    def log_figure(self, name: str, tag: str, figure: Figure) -> None:
        """Write a figure into the run of the split ``name``."""
        self._writers[name].add_figure(tag, figure, close=False)

    def log_hparams(
        self, name: str, settings: Mapping[str, bool | str | float | int], scores: Mapping[str, float]
    ) -> None:
        """Write settings and final scores of the split ``name`` for the HPARAMS page."""
        prefixed = {f"final/{score}": value for score, value in scores.items()}
        self._writers[name].add_hparams(dict(settings), prefixed, run_name=".")

    def close(self) -> None:
        """Write what is buffered and close the files."""
        for writer in self._writers.values():
            writer.close()

    def _by_split(self, rows: pd.DataFrame) -> list[tuple[SummaryWriter, pd.DataFrame]]:
        split = rows["problem"] // self._n_starts
        return [(self._writers[self._names[int(k)]], part) for k, part in rows.groupby(split)]
