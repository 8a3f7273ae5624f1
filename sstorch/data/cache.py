"""The folder in which downloads are kept, so that they are needed once."""

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """Return the cache folder; it need not exist.

    The environment variable ``SSTORCH_CACHE``, else the folder ``sstorch`` where the system keeps caches:
    ``%LOCALAPPDATA%`` on Windows, ``~/Library/Caches`` on macOS, ``$XDG_CACHE_HOME`` or ``~/.cache``
    elsewhere.
    """
    if chosen := os.environ.get("SSTORCH_CACHE"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "sstorch"
