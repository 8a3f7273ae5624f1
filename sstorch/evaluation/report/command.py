"""The ``sstorch-report`` command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from sstorch.evaluation.report.averages import average_table
from sstorch.evaluation.report.document import Table
from sstorch.evaluation.report.report import write_report
from sstorch.evaluation.report.results import Results
from sstorch.evaluation.store import ResultStore
from sstorch.exceptions import SstorchError

EXIT_REFUSED = 2
EXIT_PIPE_CLOSED = 141


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        _refuse(f"{message}; see sstorch-report --help")


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``sstorch-report`` command: exit code 0, or 2 if refused with one line."""
    parser = _Parser(
        prog="sstorch-report",
        description="Tables, tests and figures of a study, as Markdown and as one HTML page.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of the study, which holds results/")
    parser.add_argument("--out", type=Path, help="folder of the report (default: RUN/report)")
    parser.add_argument("--metrics", nargs="+", metavar="NAME", help="report these metrics only")
    parser.add_argument(
        "--models",
        nargs="+",
        metavar="NAME",
        help="these models only, at all depths (sst_llog) or at one (sst_llog_d2)",
    )
    parser.add_argument("--datasets", nargs="+", metavar="NAME", help="these data sets only")
    asked = parser.parse_args(arguments)
    try:
        store = ResultStore(asked.run)
        results = Results(
            store.table(), store.facts(), metrics=asked.metrics, models=asked.models, datasets=asked.datasets
        )
        files = write_report(results, asked.run / "report" if asked.out is None else asked.out)
    except (SstorchError, OSError) as error:
        _refuse(str(error))
    for note in results.notes:
        print(f"sstorch-report: note: {note}", file=sys.stderr)
    n, k = len(results.datasets), len(results.models)
    try:
        print(f"{_text(average_table(results))}\n")
        print(f"{files.markdown} (with {len(files.figures)} figures)\n{files.html}")
        print(f"done: report of {n} data sets and {k} models (with depths); open {files.html}", flush=True)
    except BrokenPipeError:
        # Whoever read our output has seen enough; nor must Python complain when it flushes the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_PIPE_CLOSED)


def _text(table: Table) -> str:
    rows = [list(table.header), *([cell.text + "*" * cell.best for cell in row] for row in table.rows)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(table.header))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows
    ]
    return "\n".join([*lines, "* best; test means over the data sets in common (their number in brackets)"])


def _refuse(message: str) -> NoReturn:
    print(f"sstorch-report: error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(EXIT_REFUSED)


if __name__ == "__main__":
    main()
