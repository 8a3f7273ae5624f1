"""Errors and warnings of the package; exit codes of its commands.

Every message names what was found, where (column, row numbers) and the remedy.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class SstorchError(Exception):
    """Base class of all errors raised on purpose by sstorch."""


class DataError(SstorchError, ValueError):
    """The data are invalid; the message names column, rows and remedy."""


class ConfigError(SstorchError, ValueError):
    """A setting is invalid or inconsistent with other settings."""


class TrainingError(SstorchError, RuntimeError):
    """Training ended without a usable result."""


class FormatError(SstorchError, ValueError):
    """A saved model is incomplete, altered or of an unknown format version."""


class JobError(SstorchError):
    """A job of a sweep has ended with the exit code ``args[0]`` and printed its error; other jobs go on."""


class DataWarning(UserWarning):
    """The data were changed or look suspicious; the message names the problem."""


def warn(text: str, category: type[Warning] = DataWarning) -> None:
    """Warn at the line that called this package, however many calls lie in between."""
    frame: FrameType | None = sys._getframe(1)
    level = caller = 2
    while frame is not None:
        level += 1
        if frame.f_globals["__name__"].startswith("sstorch."):
            caller = level
        frame = frame.f_back
    warnings.warn(text, category, stacklevel=caller)


@contextmanager
def named(what: str) -> Iterator[None]:
    """Begin the message of a `DataError` of the body with what it is of, such as ``"test"``, if anything."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{what}: {error}" if what else str(error)) from error


EXIT_FAILED = 1
EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141


def print_refusal(command: str, error: Exception | str, where: str = "") -> None:
    """Print in a line why a command or job stops, `where` first; after a `BrokenPipeError` end silently."""
    if isinstance(error, BrokenPipeError):
        # The reader of the output has seen enough; nor must Python complain when it flushes the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_PIPE_CLOSED)
    print(f"{command}: error: {where}{' '.join(str(error).split())}", file=sys.stderr)


@contextmanager
def exit_codes(command: str, refusals: tuple[type[Exception], ...]) -> Iterator[None]:
    """End a command with the code of the error in its body; `refusals` are printed without a trace."""
    _escape_output()
    try:
        yield
    except JobError as error:
        sys.exit(error.args[0])
    except refusals as error:
        print_refusal(command, error)
        sys.exit(EXIT_REFUSED)


def _escape_output() -> None:
    """Print characters that the output cannot encode as escapes, as the error stream does."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def show_warnings_as_notes(command: str) -> None:
    """From now on print a warning as one line, once, without its place in the code."""
    _escape_output()
    shown = set[str]()

    def show(message: Warning | str, *place: object, **options: object) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            print(f"{command}: note: {message}", file=sys.stderr)

    warnings.showwarning = show
