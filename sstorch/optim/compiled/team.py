"""Threads that share the problems of a call."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from torch import Tensor


class Team:
    """The thread that calls, and size - 1 helpers who wait for the next call; results depend on neither."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._helpers = ThreadPoolExecutor(size, thread_name_prefix="sstorch")

    def run(self, kernel: Callable[..., None], problems: Any, positions: Tensor, *arguments: Any) -> None:
        """Call a kernel once a thread: each takes the next of the positions (K,) from a common queue."""
        queue = np.zeros(1, dtype=np.int64)
        given = (problems, positions.numpy(), queue, *arguments)
        helpers = [self._helpers.submit(kernel, *given) for _ in range(min(self.size, len(positions)) - 1)]
        kernel(*given)
        for helper in helpers:
            helper.result()
