"""Threads of torch and of the linear algebra of numpy and scipy; progress of long computations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from threading import Lock
from typing import TypeVar

import torch
from threadpoolctl import ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")

# Numbers that an operation of training takes, below which a second thread gains nothing on two idle cores.
FEW = 2**19
# Contexts of all threads that are in one_blas_thread(), whose first and last one set the number and reset it.
_inside, _lock, _limit = [0], Lock(), ExitStack()


@cache
def _libraries(with_scipy: bool) -> ThreadpoolController:
    return ThreadpoolController()  # scipy, once it is loaded, has its own


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let linear algebra of numpy and scipy take one thread for a while: on small matrices others wait."""
    with _lock:
        _inside[0] += 1
        if _inside[0] == 1:
            _limit.enter_context(_libraries("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            _inside[0] -= 1
            if not _inside[0]:
                _limit.close()


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch compute on so many threads for a while."""
    before = torch.get_num_threads()
    if before == count:  # setting it takes a hundredth of a small search
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_for(n_numbers: int, few: int = FEW) -> AbstractContextManager[None]:
    """One thread of torch while operations take so many numbers, if that is less than `few`, else all."""
    return torch_threads(1) if n_numbers < few else nullcontext()


def on_threads(work: Callable[[T], R], items: Sequence[T], count: int) -> list[R]:
    """Results of a function for each item, by up to `count` threads on each of which torch takes one core."""
    count = min(count, len(items))
    if count < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(count, "sstorch", torch.set_num_threads, (1,)) as pool:
        return list(pool.map(work, items))


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
