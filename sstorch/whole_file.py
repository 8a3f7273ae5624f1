"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Write a file aside, then move it to its place in one step.

    Whoever reads ``path`` at any moment, also after a crash or a power failure, finds what was there before
    or all of the new content. Several processes may write the same file: the last one wins.

    Args:
        path: of the file, in an existing folder.
        content: all of it.

    Raises:
        OSError: it cannot be written; what was there is left as it was, and nothing beside it.
    """
    # Random, since processes of several machines can have one number.
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name of a file last through a power failure, where folders can be opened."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
