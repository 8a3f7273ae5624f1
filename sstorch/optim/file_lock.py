"""Locks between processes, each of which ends with the process that holds it, however that ends."""

from __future__ import annotations

import sys
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from sstorch.exceptions import ConfigError


def try_lock(path: Path) -> BaseFileLock | None:
    """Take the lock of a path, without waiting for it.

    Args:
        path: of the lock file, which is there as long as the lock is held.

    Returns:
        The lock, which :func:`unlock` gives back; None if somebody has it, in this process or another.

    Raises:
        OSError: the lock file cannot be made.
    """
    lock = FileLock(path, blocking=False, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        return None
    return lock


def take_lock(path: Path) -> BaseFileLock:
    """Take the lock of a path, or refuse.

    Raises:
        ConfigError: somebody has it, in this process or another.
        OSError: the lock file cannot be made.
    """
    lock = try_lock(path)
    if lock is None:
        raise ConfigError(f"another run is writing beside {path}; wait for its end, or name another place")
    return lock


def unlock(lock: BaseFileLock) -> None:
    """Give a lock back and remove its file."""
    if sys.platform != "win32":  # where the release removes it
        # While it is held: who has opened the file already finds that it has no name, and does not take it.
        Path(lock.lock_file).unlink(missing_ok=True)
    lock.release()
