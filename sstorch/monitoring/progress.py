"""Progress on the terminal."""

from __future__ import annotations

import sys

from tqdm import tqdm

from sstorch.monitoring.callbacks import Callback
from sstorch.monitoring.history import History
from sstorch.nn import SoftTree


class ProgressBar(Callback):
    """One tick per macro iteration: a bar on a terminal, plain lines elsewhere."""

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
