"""Entry points of the commands.

Help, versions, missing files and Ctrl-C are answered before torch loads, which takes seconds.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sstorch._version import __version__
from sstorch.exceptions import EXIT_INTERRUPTED, DataError, exit_codes
from sstorch.usage import check_data_file, check_place, help_text


@contextmanager
def _interruptible(command: str) -> Iterator[None]:
    """End with one line where a file is missing, or Ctrl-C comes while modules load or a command starts."""
    try:
        with exit_codes(command, (DataError, BrokenPipeError)):
            yield
    except KeyboardInterrupt:
        print(f"\n{command}: interrupted before it began; nothing was written", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


@contextmanager
def _loading() -> Iterator[None]:
    """Load modules without searching them for garbage, now or later: a quarter of the time they take."""
    if "torch" in sys.modules:  # a process with garbage of its own, which must not last forever
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def sstorch() -> None:
    """Train and cross-validate; see :mod:`sstorch.bench.cli`."""
    words = sys.argv[1:]
    with _interruptible("sstorch"):
        if {"--help", "-h"} & set(words):
            print(help_text(), flush=True)
            return
        if "--version" in words:
            print(f"sstorch {__version__}", flush=True)
            return
        check_data_file(words)
        with _loading():
            from sstorch.bench.cli import main
        main()


def report() -> None:
    """Write the report of a run or a study; see :mod:`sstorch.bench.reporting`."""
    with _interruptible("sstorch-report"):
        check_place(sys.argv[1:])
        with _loading():
            from sstorch.bench.reporting import main
        main()


if __name__ == "__main__":
    sstorch()
