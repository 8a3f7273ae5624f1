"""TensorBoard: curves of a training run, pass by pass."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from torch import Tensor, nn
from typing_extensions import override

from sstorch._types import FloatArray
from sstorch.exceptions import ConfigError
from sstorch.monitoring.callbacks import Callback
from sstorch.monitoring.history import History
from sstorch.nn import SoftTree

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

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
        self.close()


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
