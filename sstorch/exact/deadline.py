"""Time limit and progress of a search."""

from __future__ import annotations

import math
import sys
import time


class Deadline:
    """The time at which a search has to stop, `seconds` from now on; progress is printed if `verbose`."""

    def __init__(self, seconds: float | None = None, verbose: bool = False) -> None:
        self._time = math.inf if seconds is None else time.perf_counter() + seconds
        self._said = time.perf_counter() if verbose else math.inf

    @property
    def passed(self) -> bool:
        """True from when on the search has to stop."""
        return self._time < math.inf and time.perf_counter() > self._time

    def say(self, text: str) -> None:
        """Print progress, where that is wanted, at most once a second."""
        if self._said < math.inf and time.perf_counter() - self._said > 1.0:
            print(f"exact trees: {text}", file=sys.stderr, flush=True)
            self._said = time.perf_counter()


NEVER = Deadline()
