"""Exit codes of the commands, and the one line that a refusal prints."""

from __future__ import annotations

import os
import sys

EXIT_FAILED = 1
EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141


def print_refusal(command: str, error: Exception | str, where: str = "") -> None:
    """Print in one line why a command stops; the caller ends it with `EXIT_REFUSED`.

    Args:
        command: its name, which begins the line.
        error: the reason; after a `BrokenPipeError` the process ends here, without a word.
        where: text in front of the reason, such as the job of a sweep.
    """
    if isinstance(error, BrokenPipeError):
        # The reader of the output has seen enough; nor must Python complain when it flushes the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_PIPE_CLOSED)
    print(f"{command}: error: {where}{' '.join(str(error).split())}", file=sys.stderr)
