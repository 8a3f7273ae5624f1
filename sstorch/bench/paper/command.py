"""The ``sstorch-paper`` command: the draft of a paper from the folder of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sstorch.bench.paper.manuscript import manuscript
from sstorch.bench.reporting import read_run
from sstorch.data.file_arguments import CommandParser
from sstorch.document import to_html
from sstorch.document.word import check_word, to_docx
from sstorch.exceptions import ConfigError, SstorchError, exit_codes
from sstorch.files import write_whole

FORMATS = {"html": lambda document: to_html(document).encode(), "docx": to_docx}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``sstorch-paper`` command: exit code 0, or 2 if refused with one line."""
    parser = CommandParser(
        prog="sstorch-paper",
        description="Draft of a paper: methods, tables, figures, TRIPOD+AI checklist, references. What the "
        "run does not know is marked [to be completed: ...].",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a completed run")
    parser.add_argument("--out", type=Path, help="folder of the draft (default: RUN/paper)")
    parser.add_argument("--format", nargs="+", choices=FORMATS, default=list(FORMATS), help="default: both")
    with exit_codes("sstorch-paper", (SstorchError, OSError)):
        asked = parser.parse_args(arguments)
        if "docx" in asked.format:
            check_word()
        folder = asked.run.expanduser()
        if (make := read_run(folder, "sstorch-paper")) is None:
            raise ConfigError(f"{asked.run} is not the folder of a run: sstorch makes one")
        out = folder / "paper" if asked.out is None else asked.out.expanduser()
        out.mkdir(parents=True, exist_ok=True)
        document = manuscript(make())
        for name in dict.fromkeys(asked.format):
            write_whole(out / f"paper.{name}", FORMATS[name](document))
            print(out / f"paper.{name}")
        print(f"done: draft of a paper in {out}", flush=True)
