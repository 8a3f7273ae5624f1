"""Memory: what is free, or a limit, determines the size of blocks of rows or problems.

``SSTORCH_MEMORY=2GiB`` in the environment limits blocks: rows that are predicted, scored or compared, and
problems that are trained together. Results of a requested size, such as curves at given times, and the data
are not limited. Training that cannot keep the limit, with the memory already in use, raises before it begins.
Without a limit a block uses at most a quarter of the free memory, and grids of times
(`sstorch.metrics.grids.thinned`) depend only on rows and times; a limit can make these grids coarser.
What is free is what Linux reports of the machine: set a limit where a container or job has less, and on other
systems, which refuse nothing without one.
"""

from __future__ import annotations

import os
import re
import time
from functools import lru_cache
from pathlib import Path

from sstorch.exceptions import ConfigError

# The environment variable that sets the limit in every process, workers included.
VARIABLE = "SSTORCH_MEMORY"
# Without a limit blocks take a quarter of what is free, where the system reports it.
_SHARE, _UNKNOWN = 4, 2**62
# Bytes of a block for each of its elements: a step of float64 work has about so many arrays of its size.
_BYTES_PER_ELEMENT = 4 * 8
# Bytes of a result that is allocated without asking what is free.
_SMALL = 2**26
# Seconds for which what is free is not asked again.
_KNOWN_FOR = 10
_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def set_limit() -> int | None:
    """The limit in bytes; None if blocks depend on the free memory. ConfigError: no positive number."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    found = re.fullmatch(r"([\d.e+]+) ?([kmg]i?b)?", text.strip().lower())
    try:
        amount = int(float(found[1]) * _UNITS[found[2] or ""]) if found else 0
    except (ValueError, OverflowError):
        amount = 0
    if amount <= 0:
        raise ConfigError(f"{VARIABLE} is {text!r}; give bytes, such as 2000000000, '500MB' or '2GiB'")
    return amount


def at_once(width: int, most: int) -> int:
    """Number of rows or problems of `width` elements per block of at most `most` elements, at least one."""
    limit = set_limit() or _free(int(time.monotonic() / _KNOWN_FOR)) // _SHARE
    return max(1, min(most, limit // _BYTES_PER_ELEMENT) // max(1, width))


def check_room(n_rows: int, n_times: int) -> None:
    """Refuse float64 curves that memory cannot hold; a limit does not limit them."""
    what, remedy = f"{n_rows} rows at {n_times} times", "ask for fewer times, or for fewer rows at a time"
    check_fits(8 * n_rows * n_times, what, remedy, limited=False)


def check_fits(n_bytes: int, what: str, remedy: str, limited: bool = True) -> None:
    """Refuse work that memory, or the limit of the process if `limited`, cannot hold, before it begins."""
    if n_bytes <= _SMALL:
        return
    free, held, limit = free_memory(), resident_memory(), set_limit() if limited else None
    if n_bytes > free or (limit is not None and held + n_bytes > limit):
        there = f"{free / 2**30:.1f} GiB are free"
        if limit is not None:
            there += f", and the limit is {limit / 2**30:.1f} GiB, of which {held / 2**30:.1f} are in use"
        raise ConfigError(f"{what} take {n_bytes / 2**30:.1f} GiB; {there}: {remedy}")


@lru_cache(maxsize=1)
def _free(moment: int) -> int:
    del moment  # the key: another moment, another answer
    return free_memory()


def free_memory() -> int:
    """Bytes that the machine has left, as Linux reports them."""
    try:
        found = re.search(r"MemAvailable: *(\d+)", Path("/proc/meminfo").read_text())
    except OSError:
        found = None
    return int(found[1]) * 2**10 if found else _UNKNOWN


def resident_memory() -> int:
    """Bytes of memory that this process takes, as Linux reports them, else 0."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
