"""Training history, callbacks and TensorBoard."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import override

from sstorch._types import FloatArray
from sstorch.exceptions import ConfigError
from sstorch.nn import SoftTree

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

__all__ = ["Callback", "History", "ProgressBar", "TensorBoard"]

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


class Callback:
    """Base class of callbacks without effect; override methods.

    A run resumed from a checkpoint calls ``on_macro_iteration`` again for earlier macro iterations, in order
    and with the history at that time.
    """

    def on_train_begin(self, module: nn.Module, macro_iterations: int) -> None:
        """Before the first step, with the maximum number of macro iterations.

        The module is the batch of trees with starting values, a :class:`~sstorch.nn.SoftTree`, or the network
        of a :class:`~sstorch.TorchSurvival`.
        """

    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        """After a macro iteration, or an epoch of a network; 0 is the initial solution of trees."""

    def on_train_end(self, history: History) -> None:
        """After the last macro iteration."""

    def on_round(self, model: str, number: int, values: Mapping[str, Tensor]) -> None:
        """After an update of the penalties of a candidate: ``"regression"``, ``"spectral 1"`` ...

        Args:
            model: name of the candidate.
            number: of the round, from 0.
            values: by tag, one for each split (S,): ``evidence`` in nats, ``objective`` in nats a row,
                ``variance/<kind>`` of each kind of coefficients, and for trained gates ``leaf/<id>/loss``.
        """


def check_callbacks(callbacks: object) -> None:
    """Raise ConfigError for what is no list or tuple of callbacks."""
    if not isinstance(callbacks, list | tuple) or not all(isinstance(each, Callback) for each in callbacks):
        raise ConfigError(
            f"`callbacks` must be a list of sstorch.monitoring.Callback, got {callbacks!r}: such as "
            "callbacks=[TensorBoard('runs/a')]"
        )


class ProgressBar(Callback):
    """A line per macro iteration on standard error; on a terminal each takes the place of the last."""

    @override
    def on_train_begin(self, module: nn.Module, macro_iterations: int) -> None:
        title = f"{module.n_problems} trees" if isinstance(module, SoftTree) else type(module).__name__
        self._of = f"/{macro_iterations} of {title}"

    @override
    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        newest, end = history.last_macro_iteration(), "\r" if sys.stderr.isatty() else "\n"
        text = f"objective {newest['best_objective'].mean():.4f}, {len(newest)} training"
        print(f"pass {macro_iteration}{self._of}: {text}", end=end, file=sys.stderr, flush=True)

    @override
    def on_train_end(self, history: History) -> None:
        if sys.stderr.isatty():
            print(file=sys.stderr)


# Columns of the records of passes, and their tags.
_TAGS = {name: f"train/{name}" for name in ("objective", "best_objective", "gradient_norm", "held_out_loss")}
# With several starts, the curves of a run: its own folder, and subfolders.
_CURVES: dict[str, Callable[[list[float]], Any]] = {"": np.median, "min": np.min, "max": np.max}


class TensorBoard(Callback):
    """Write a training run for TensorBoard (``tensorboard --logdir FOLDER``), one point per pass or epoch.

    Scalars, of the networks of :class:`~sstorch.TorchSurvival` those of ``train``:

    * ``train/objective``, ``train/best_objective``: E; the best criterion so far.
    * ``train/gradient_norm``: max-norm of the gradient of E.
    * ``train/held_out_loss``: mean loss of the held-out rows, if any.
    * ``node/<id>/<step>/objective``: objective at the end of each step: E, or E restricted to a subtree.
    * ``node/<id>/WLR/log_loss``: the same of the logistic regression that rebalances a gate, no part of E.
    * ``gate/<id>/norm``: Euclidean norm of the weights of a gate, its sharpness.
    * ``gate/<id>/left_share``: share of the training rows that visit a gate and are routed left.
    * ``leaf/<id>/share``: share of the training rows whose most probable path ends in a leaf.

    Where penalties are estimated there is one point per update of the variances, for each candidate:
    ``<candidate>/evidence``, ``<candidate>/objective``, ``<candidate>/variance/<kind>`` and, with trained
    gates, ``<candidate>/leaf/<id>/loss``; see :meth:`Callback.on_round`.

    Of several starts the median is in the folder itself, the lowest and highest value in subfolders ``min``
    and ``max``; one that no longer trains, or that has skipped a step, counts with its last value. What an
    earlier training wrote into the folder is hidden; each further training with the same object, such as that
    of the next competing cause, has a subfolder ``training-2``, ``training-3``, ...

    Args:
        folder: folder of the event files.
        runs: subfolders, one per split of the data if trees of several splits are trained as one batch.
    """

    def __init__(self, folder: str | os.PathLike[str], runs: Sequence[str] = ("",)) -> None:
        self.folder = Path(folder)
        self.runs = tuple(runs)
        self._writers: dict[str, SummaryWriter] = {}
        self._n_trainings = 0

    def writer(self, run: str = "") -> SummaryWriter:
        """The writer of a subfolder, for other texts, figures and scalars."""
        if run not in self._writers:
            # Loading TensorBoard takes a second, which training without it need not wait for.
            from torch.utils.tensorboard.writer import SummaryWriter

            # A writer whose queue was interrupted waits for its next flush before it can be closed.
            place = str(self.folder / run)
            self._writers[run] = SummaryWriter(place, purge_step=0, flush_secs=5)
        return self._writers[run]

    def close(self) -> None:
        """Write what is buffered and close the files; further writing opens new ones."""
        for writer in self._writers.values():
            writer.close()

    @override
    def on_train_begin(self, module: nn.Module, macro_iterations: int) -> None:
        self._n_problems = module.n_problems if isinstance(module, SoftTree) else 1
        if self._n_problems % len(self.runs):
            raise ConfigError(
                f"`runs` must name the splits of {self._n_problems} trees, got {len(self.runs)} names: "
                "leave it out where an estimator is fitted"
            )
        self._n_trainings += 1
        self._training = f"training-{self._n_trainings}" if self._n_trainings > 1 else ""
        self._last: dict[str, dict[int, float]] = {}  # of each tag, the last value of each problem

    @override
    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        newest, steps = history.last_macro_iteration(), history.steps
        steps = steps[steps["macro_iteration"] == macro_iteration]
        n_starts = self._n_problems // len(self.runs)
        for tag, problems, values in (*_of_pass(newest), *_of_steps(steps)):
            last = self._last.setdefault(tag, {})
            last.update(zip(problems.tolist(), values.tolist(), strict=True))
            for number in np.unique(problems // n_starts):
                own = [value for problem, value in last.items() if problem // n_starts == number]
                for name, curve in _CURVES.items():
                    if name and n_starts == 1:
                        continue
                    place = "/".join(filter(None, (self.runs[number], self._training, name)))
                    self.writer(place).add_scalar(tag, curve(own), macro_iteration)
        for writer in self._writers.values():
            writer.flush()

    @override
    def on_round(self, model: str, number: int, values: Mapping[str, Tensor]) -> None:
        for tag, of_splits in values.items():
            for run, value in zip(self.runs, of_splits.tolist(), strict=False):
                self.writer(run).add_scalar(f"{model.replace(' ', '_')}/{tag}", value, number)
        for writer in self._writers.values():
            writer.flush()

    @override
    def on_train_end(self, history: History) -> None:
        # Not closed: TensorBoard reads files of one second in the order of their names, ".10" before ".9".
        for writer in self._writers.values():
            writer.flush()


def _of_pass(newest: pd.DataFrame) -> Iterator[tuple[str, FloatArray, FloatArray]]:
    """Tags, problems and their values of the newest records of a pass."""
    problems = newest["problem"].to_numpy()
    tags = {name: tag for name, tag in _TAGS.items() if name in newest}
    leaves, gates = (
        [int(name.removeprefix(start)) for name in map(str, newest) if name.startswith(start)]
        for start in ("mass_", "gate_norm_")
    )
    tags |= {f"gate_norm_{node}": f"gate/{node}/norm" for node in gates}
    tags |= {f"mass_{leaf}": f"leaf/{leaf}/share" for leaf in leaves}
    for name, tag in tags.items():
        yield tag, problems, newest[name].to_numpy(float)
    for node in gates:
        left, right = (  # in binary digits the number of a node begins with those of the nodes above it
            newest[[f"mass_{leaf}" for leaf in leaves if f"{leaf:b}".startswith(f"{child:b}")]].sum(axis=1)
            for child in (2 * node, 2 * node + 1)
        )
        visited = (left + right > 0).to_numpy()  # a gate without rows has no share
        yield f"gate/{node}/left_share", problems[visited], (left / (left + right)).to_numpy()[visited]


def _of_steps(steps: pd.DataFrame) -> Iterator[tuple[str, FloatArray, FloatArray]]:
    """Tags, problems and their objectives of the steps of a pass; of repeated steps the last counts."""
    last = steps.drop_duplicates(["problem", "node", "step"], keep="last")
    for (node, step), rows in last.groupby(["node", "step"]):
        tag = f"node/{node}/{step}/" + ("log_loss" if step == "WLR" else "objective")
        yield tag, rows["problem"].to_numpy(), rows["objective_after"].to_numpy(float)
