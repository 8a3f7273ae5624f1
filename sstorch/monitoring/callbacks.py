"""Callbacks of a training run: their base class, and a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from typing_extensions import override

from sstorch.exceptions import ConfigError
from sstorch.monitoring.history import History
from sstorch.nn import SoftTree


@dataclass(frozen=True)
class StepContext:
    """An inner step that has just ended, before its result is written back into the batch.

    ``macro_iteration`` counts from 1, ``step`` is ``BN``, ``LN`` or ``WLR`` at ``node``; ``tree`` is the
    sub-batch that took it, frozen but for its working set, of the ``problems`` (K,) of the whole batch.
    """

    macro_iteration: int
    node: int
    step: str
    tree: SoftTree
    problems: Tensor


class Callback:
    """Base class of callbacks without effect; override methods.

    A run resumed from a checkpoint calls ``on_macro_iteration`` again for earlier macro iterations, in order
    and with the history at that time, but not ``on_step``.
    """

    def on_train_begin(self, module: nn.Module, macro_iterations: int) -> None:
        """Before the first step, with the maximum number of macro iterations.

        The module is the batch of trees with starting values, a :class:`~sstorch.nn.SoftTree`, or the network
        of a :class:`~sstorch.TorchSurvival`.
        """

    def on_step(self, context: StepContext) -> None:
        """After an inner step."""

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
