"""Moments of a training run at which others may look on."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

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
    """Does nothing; override the moments of interest.

    A run that is resumed from a checkpoint tells once more of the macro iterations that were done before, in
    order and with the history as it was then, but not of their steps.
    """

    def on_train_begin(self, tree: SoftTree, macro_iterations: int) -> None:
        """Before the first step, with the initial solutions and the most macro iterations there can be."""

    def on_step(self, context: StepContext) -> None:
        """After an inner step."""

    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        """After a macro iteration; 0 is the initial solution."""

    def on_train_end(self, history: History) -> None:
        """After the last macro iteration."""
