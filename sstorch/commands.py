"""Entry points of the commands; nothing is imported before an interruption would be told in a line."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sstorch._version import __version__
from sstorch.exceptions import EXIT_INTERRUPTED


@contextmanager
def _interruptible(command: str) -> Iterator[None]:
    """End with one line where Ctrl-C comes while modules load, which takes seconds, or a command starts."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\n{command}: interrupted before it began; nothing was written", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def sstorch() -> None:
    """Train and cross-validate; see :mod:`sstorch.bench.cli`."""
    if "--version" in sys.argv[1:]:
        print(f"sstorch {__version__}")
        return
    with _interruptible("sstorch"):
        from sstorch.bench.cli import main

        main()


def report() -> None:
    """Write the report of a run or a study; see :mod:`sstorch.bench.report`."""
    with _interruptible("sstorch-report"):
        from sstorch.bench.report.report import main
        from sstorch.bench.reporting import report_of_run

        main(of_run=report_of_run)


def predict() -> None:
    """Predict with a saved tree; see :mod:`sstorch.prediction`."""
    with _interruptible("sstorch-predict"):
        from sstorch.prediction import main

        main()


def calculator() -> None:
    """Write a page in which one enters a patient; see :mod:`sstorch.calculator`."""
    with _interruptible("sstorch-calculator"):
        from sstorch.calculator import main

        main()


if __name__ == "__main__":
    sstorch()
