"""Entry points of the commands.

Help, versions, missing files and Ctrl-C are answered before torch loads, which takes seconds.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sstorch._version import __version__
from sstorch.exceptions import EXIT_INTERRUPTED, DataError, exit_codes
from sstorch.usage import check_data_file, check_places, help_text


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
    if "torch" in sys.modules:  # a process with garbage of its own, which must not last for ever
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
    with _interruptible("sstorch"):
        words = sys.argv[1:]
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


def check() -> None:
    """Look at a file before a run; see :mod:`sstorch.checking`."""
    with _interruptible("sstorch-check"):
        with _loading():
            from sstorch.checking import main
        main()


def report() -> None:
    """Write the report of a run or a study; see :mod:`sstorch.bench.report`."""
    with _interruptible("sstorch-report"):
        check_places(sys.argv[1:2])
        with _loading():
            from sstorch.bench.report.report import main
            from sstorch.bench.reporting import report_of_run
        main(of_run=report_of_run)


def paper() -> None:
    """Write the draft of a paper from a run; see :mod:`sstorch.bench.paper`."""
    with _interruptible("sstorch-paper"):
        check_places(sys.argv[1:2])
        with _loading():
            from sstorch.bench.paper.command import main
        main()


def predict() -> None:
    """Predict with a saved tree; see :mod:`sstorch.prediction`."""
    with _interruptible("sstorch-predict"):
        check_places(sys.argv[1:3])
        with _loading():
            from sstorch.prediction import main
        main()


def calculator() -> None:
    """Write a page in which one enters a patient; see :mod:`sstorch.calculator`."""
    with _interruptible("sstorch-calculator"):
        check_places(sys.argv[1:2])
        with _loading():
            from sstorch.calculator import main
        main()


if __name__ == "__main__":
    sstorch()
