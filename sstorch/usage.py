"""Where this package runs from, and how packages are installed; loaded without torch, which takes seconds."""

from __future__ import annotations

import shlex
import sys
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from pathlib import Path


def checkout() -> Path | None:
    """The repository that this package runs from; None if it was installed without it."""
    root = Path(__file__).parents[1]
    complete = (root / "pyproject.toml").is_file() and (root / "configs" / "config.yaml").is_file()
    return root if complete else None


def configuration() -> Traversable:
    """Folder of the configuration: in the checkout around this package, else in the package."""
    root = checkout()
    return resources.files("sstorch.configs") if root is None else root / "configs"


def pip_install(*requirements: str) -> str:
    """The command that installs something for the Python that runs, active environment or not."""
    return shlex.join([sys.executable, "-m", "pip", "install", *requirements])


def install_extra(extra: str) -> str:
    """The command that installs an extra: from the checkout, else its packages by name."""
    root = checkout()
    if root is not None:
        return pip_install("-e", f"{root}[{extra}]")
    split = (line.replace('"', "'").partition(";") for line in metadata.requires("sstorch") or ())
    return pip_install(*(name.strip() for name, _, marker in split if f"extra == '{extra}'" in marker))
