"""Time limit, interrupts and progress of a search."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from sstorch.exceptions import DataWarning

# Seconds of searches that are not interrupted: to listen for Ctrl-C takes a twentieth of the smallest ones.
_INSTANT = 0.02


class Deadline:
    """The time at which a search has to stop, `seconds` from now on, or at which the user interrupts it."""

    def __init__(self, seconds: float | None = None, verbose: bool = False) -> None:
        self._time = None if seconds is None else time.perf_counter() + seconds
        self._said = time.perf_counter() if verbose else math.inf
        self.interrupted = False  # whether Ctrl-C was pressed while `listening`

    @property
    def passed(self) -> bool:
        """True from when on the search has to stop."""
        return self.interrupted or (self._time is not None and time.perf_counter() > self._time)

    def say(self, text: str) -> None:
        """Print progress, where that is wanted, at most once a second."""
        if not math.isinf(self._said) and time.perf_counter() - self._said > 1.0:
            print(f"exact trees: {text}", file=sys.stderr, flush=True)
            self._said = time.perf_counter()

    @contextmanager
    def listening(self, seconds: float = math.inf) -> Iterator[None]:
        """Take Ctrl-C for the end of the time, and a second one for what it is elsewhere.

        Only where a search takes more than an instant by the estimate of its `seconds`, where Python's own
        reaction to Ctrl-C is in force, and in the main thread, which signals reach.
        """
        ours = seconds > _INSTANT and threading.current_thread() is threading.main_thread()
        if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            if self.interrupted:
                signal.default_int_handler(number, frame)
            self.interrupted = True

        signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def warn(self, certificate: Callable[[], str]) -> None:
        """Warn if the search was interrupted, with what its result is worth."""
        if self.interrupted:
            text = f"the search was interrupted: the best tree so far is {certificate()}"
            warnings.warn(text, DataWarning, stacklevel=3)


NEVER = Deadline()
