"""Callbacks of a training run: their base class, and a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from tqdm import tqdm
from typing_extensions import override

from sstorch.exceptions import ConfigError
from sstorch.monitoring.history import History
from sstorch.nn import SoftTree


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
    """Base class of callbacks without effect; override methods.

    A run resumed from a checkpoint calls ``on_macro_iteration`` again for earlier macro iterations, in order
    and with the history at that time, but not ``on_step``.
    """

    def on_compile(self) -> None:
        """Before compilation of machine code, which takes about ten seconds, once per machine."""

    def on_train_begin(self, module: nn.Module, macro_iterations: int) -> None:
        """Before the first step, with the starting values and the maximum number of macro iterations.

        The module is the batch of trees, a :class:`~sstorch.nn.SoftTree`, or the network of a
        :class:`~sstorch.TorchSurvival`.
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
    """One tick per macro iteration: a bar on a terminal, plain lines elsewhere."""

    @override
    def on_compile(self) -> None:
        print("making machine code: about 10 seconds, once on this machine", file=sys.stderr, flush=True)

    @override
    def on_train_begin(self, module: nn.Module, macro_iterations: int) -> None:
        self._title = f"{module.n_problems} trees" if isinstance(module, SoftTree) else type(module).__name__
        self._total, terminal = macro_iterations, sys.stderr.isatty()
        self._bar = (
            tqdm(total=self._total, desc=self._title, unit="pass", file=sys.stderr) if terminal else None
        )

    @override
    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        newest = history.last_macro_iteration()
        text = f"objective {newest['best_objective'].mean():.4f}, {len(newest)} training"
        if self._bar is None:
            line = f"pass {macro_iteration}/{self._total} of {self._title}: {text}"
            print(line, file=sys.stderr, flush=True)
        else:
            self._bar.set_postfix_str(text)
            self._bar.update(int(macro_iteration > 0))

    @override
    def on_train_end(self, history: History) -> None:
        if self._bar is not None:
            self._bar.close()
