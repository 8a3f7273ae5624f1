"""Progress of long computations: phase, completed share and memory.

Code that works reports with :func:`report`, without knowing whether anything listens; :class:`Watch` listens.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, replace
from typing import Self

from sstorch.memory import resident_memory

# Phase whose passes are shown by sstorch.monitoring.ProgressBar.
TRAINING = "training"
# Seconds between two signs of life.
_EVERY = 5.0


@dataclass(frozen=True)
class Progress:
    """State of a long computation."""

    phase: str  # current phase
    done: float  # number of completed steps; the current step can count partially
    total: int  # number of steps

    def __str__(self) -> str:
        memory = resident_memory()
        taken = "" if memory is None else f", {memory / 2**20:.0f} MiB in memory"
        return f"{self.phase}: {100 * self.done / max(self.total, 1):.0f} % done{taken}"


_watch: ContextVar[Watch | None] = ContextVar("sstorch_progress", default=None)


def report(phase: str, done: int, total: int) -> None:
    """Report that `done` of `total` steps of a phase are done."""
    if (watch := _watch.get()) is not None:
        watch.update(Progress(phase, done, total))


def report_part(share: float) -> None:
    """Report the share, in [0, 1], that is done of the step at work."""
    if (watch := _watch.get()) is not None and (at := watch.progress) is not None:
        watch.update(replace(at, done=int(at.done) + min(share, 0.999)))


@contextmanager
def silenced() -> Iterator[None]:
    """Keep the phase at work as it is: what is done in a ``with`` block is a step of it."""
    token = _watch.set(None)
    try:
        yield
    finally:
        _watch.reset(token)


class Watch:
    """Call a function at each new phase and every few seconds.

    Args:
        note: called with the current state, by the working thread or another thread, never concurrently. An
            error that it raises is raised again at the next report.
        every: seconds between two calls.

    >>> seen = []
    >>> with Watch(lambda progress: seen.append(progress.phase)):
    ...     report("encoding", 0, 2); report("encoding", 1, 2); report("scoring", 0, 1)
    >>> seen
    ['encoding', 'scoring']
    """

    def __init__(self, note: Callable[[Progress], None], every: float = _EVERY) -> None:
        self.progress: Progress | None = None
        self._note, self._every = note, every
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._beat, name="sstorch-progress", daemon=True)
        self._failure: Exception | None = None
        self._token: Token[Watch | None] | None = None

    def __enter__(self) -> Self:
        self._token = _watch.set(self)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        assert self._token is not None
        _watch.reset(self._token)

    def update(self, progress: Progress) -> None:
        """Take note of the present moment."""
        if self._failure is not None:
            raise self._failure
        is_new = self.progress is None or progress.phase != self.progress.phase
        self.progress = progress
        if is_new:
            with self._lock:
                self._note(progress)

    def _beat(self) -> None:
        while not self._ended.wait(self._every):
            if self.progress is None:
                continue
            try:
                with self._lock:
                    self._note(self.progress)
            except Exception as error:
                self._failure = error
                return


class Lines:
    """Prints a line when a phase has lasted some seconds, and again when more of it is done."""

    def __init__(self, every: float = _EVERY) -> None:
        self._every, self._begin = every, time.monotonic()
        self._last: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        """Print the moment, if it is time for a line."""
        early = time.monotonic() - self._begin < self._every
        if early or progress.phase == TRAINING or progress == self._last:
            return
        self._begin, self._last = time.monotonic(), progress
        print(progress, file=sys.stderr, flush=True)
