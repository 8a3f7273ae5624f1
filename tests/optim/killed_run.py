"""A run that halts at a given moment, there to be killed; the command is in test_resume.py."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import Self

import torch

from sstorch.monitoring import Callback, History, StepContext
from sstorch.nn import SoftTree
from sstorch.objective import TrainingObjective
from sstorch.optim import Joint, Nodec, NodecJoint, Trainer
from sstorch.optim.starts.clusters import initialize_random, problem_seed
from tests.batches import blank_tree, random_sample

CASES: dict[str, Trainer] = {
    "nodec": Nodec(macro_iterations=5, patience=4),
    "nodec+joint": NodecJoint(Nodec(macro_iterations=3, patience=3)),
    "joint": Joint(),
}


def train(
    case: str, path: str | None, callbacks: Sequence[Callback] = (), leaf: str = "weibull"
) -> tuple[SoftTree, History]:
    """Train eight trees from the same start, every time."""
    torch.set_num_threads(1)
    sample = random_sample(8, n_splits=2, n_rows=120, seed=4)
    tree = blank_tree(3, 2, leaf, (8,))
    initialize_random(tree, sample, [problem_seed(1, 0, k) for k in range(8)])
    objective = TrainingObjective(1e-3, 1e-3)
    return tree, CASES[case].train(tree, objective, sample, callbacks, path)


class Halt(Callback):
    """Says so and sleeps for ever: in a pass, at its inner step ``step`` or else where it is recorded."""

    def __init__(self, number: int, step: int | None) -> None:
        self._at = number, step
        self._seen = 0

    @classmethod
    def at(cls, moment: str) -> Self:
        """``3.2`` is the second inner step of pass 3, ``3`` its record."""
        number, _, step = moment.partition(".")
        return cls(int(number), int(step) if step else None)

    def on_step(self, context: StepContext) -> None:
        if context.macro_iteration == self._at[0]:
            self._seen += 1
            if self._seen == self._at[1]:
                self._halt()

    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        if (macro_iteration, None) == self._at:
            self._halt()

    def _halt(self) -> None:
        print("halted", flush=True)
        while True:
            signal.pause()


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[3], [Halt.at(sys.argv[2])])
