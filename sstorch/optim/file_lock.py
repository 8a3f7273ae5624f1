"""A lock between processes that ends with the process that holds it, however that ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sstorch.exceptions import ConfigError


class FileLock:
    """At most one holder of a path at a time, on systems with ``flock`` (elsewhere nothing is locked).

    Args:
        path: of the lock file, which is there as long as the lock is held.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            ConfigError: another process, or another holder in this one, has it.
            OSError: the lock file cannot be made.
        """
        if not self.try_acquire():
            raise ConfigError(
                f"another run is writing beside {self._path}; wait for its end, or name another place"
            )

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it.

        Returns:
            Whether it is ours now.

        Raises:
            OSError: the lock file cannot be made.
        """
        if sys.platform == "win32":
            return True
        import fcntl

        while self._descriptor is None:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Whoever held it before may have removed the file between our two calls.
                if os.path.samestat(os.fstat(descriptor), self._path.stat()):
                    self._descriptor = descriptor
            except FileNotFoundError:
                continue
            except BlockingIOError:
                return False
            finally:
                if self._descriptor is None:
                    os.close(descriptor)
        return True

    def release(self) -> None:
        """Give the lock back."""
        if self._descriptor is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None
