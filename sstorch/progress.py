"""Progress of long computations: work reports its phases, without knowing whether anything listens."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Called with a phase, and the numbers of steps that are done and that it has.
Listener = Callable[[str, int, int], None]
_listener: ContextVar[Listener | None] = ContextVar("sstorch_progress", default=None)


def report(phase: str, done: int, total: int) -> None:
    """Report that `done` of `total` steps of a phase are done."""
    if (listener := _listener.get()) is not None:
        listener(phase, done, total)


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Call a function at each report within a ``with`` block; None keeps the phase at work as it is."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
