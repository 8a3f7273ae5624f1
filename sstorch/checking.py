"""The ``sstorch-check`` command: roles and oddities of a file, and the command that runs it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sstorch.data.file_arguments import CommandParser, given_options
from sstorch.data.file_check import check
from sstorch.data.file_options import FileOptions
from sstorch.exceptions import SstorchError, exit_codes


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: exit code 0, 1 if something in the file stops a run, or 2 if it cannot be read."""
    parser = CommandParser(
        prog="sstorch-check",
        description="Roles and oddities of a file, its columns, and the command that runs it. Exit "
        "code 1: something stops a run with the options given. Also taken: dataset.NAME=VALUE.",
    )
    parser.add_argument("file", metavar="FILE", help="a file of any kind, or the URL of a database")
    parser.add_file_options()
    with exit_codes("sstorch-check", (SstorchError, OSError)):
        asked = parser.parse_words(sys.argv[1:] if arguments is None else arguments)
        found = check(asked.file, **given_options(asked, FileOptions()).to_dict())
        print(found, flush=True)
        sys.exit(found.exit_code)
