"""The history on disk while a run goes on."""

from __future__ import annotations

from pathlib import Path

from sstorch.monitoring.callbacks import Callback
from sstorch.monitoring.history import History


class HistoryWriter(Callback):
    """Rewrites the history files after every macro iteration, so that a run cut short leaves its records.

    Args:
        folder: made if missing.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        """Write what there is so far."""
        history.save(self._folder)
