"""Number of threads of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from operator import itemgetter
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


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


def on_threads(work: Callable[[T], R], items: Sequence[T], count: int) -> list[R]:
    """Results of a function for each item, by up to `count` threads on each of which torch takes one core.

    For many tensors that are too small for torch to divide, where it takes one core itself.
    """
    count = min(count, len(items))
    if count < 2:
        return [work(item) for item in items]
    queue = enumerate(items)

    def share() -> list[tuple[int, R]]:
        return [(number, work(item)) for number, item in queue]

    with ThreadPoolExecutor(count - 1, "sstorch", torch.set_num_threads, (1,)) as pool:
        helpers = [pool.submit(share) for _ in range(count - 1)]
        done = share()
        for helper in helpers:
            done += helper.result()
    return [result for _, result in sorted(done, key=itemgetter(0))]
