"""Answers that need no torch, whose import takes seconds: help, missing files, how to install packages."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from pathlib import Path

from sstorch.exceptions import DataError

_HELP = """sstorch trains and cross-validates soft survival trees; without arguments, on GBSG2.

  sstorch NAME=VALUE ...      one run; -m runs every combination of values with commas
  sstorch --cfg job           the settings and their values
  sstorch --version           version of the package
  sstorch-report FOLDER       report of a run, a sweep or a study

  sstorch dataset=csv dataset.path=cohort.csv dataset.time=days dataset.event=died
  sstorch model.depth=1 model.leaf=weibull model.trainer.macro_iterations=5
  sstorch model=custom model._target_=my_module.MyTree 'imports=[my_module]'

Choices of the groups:
{groups}

Settings of a model are the parameters of its class, such as sstorch.SoftSurvivalTree."""


def checkout() -> Path | None:
    """The repository that this package runs from; None if it was installed without it."""
    root = Path(__file__).parents[1]
    complete = (root / "pyproject.toml").is_file() and (root / "configs" / "config.yaml").is_file()
    return root if complete else None


def pip_install(*requirements: str) -> str:
    """The command that installs something for the Python that runs, active environment or not."""
    return shlex.join([sys.executable, "-m", "pip", "install", *requirements])


def install_extra(extra: str) -> str:
    """The command that installs what an extra of this package adds.

    From a checkout it names its folder, otherwise the packages of the extra: an index need not have this one.
    """
    root = checkout()
    if root is not None:
        return pip_install("-e", f"{root}[{extra}]")
    split = (line.replace('"', "'").partition(";") for line in metadata.requires("sstorch") or ())
    return pip_install(*(name.strip() for name, _, marker in split if f"extra == '{extra}'" in marker))


def configuration() -> Traversable:
    """Folder of the configuration: in the checkout around this package, else in the package.

    A package that was installed elsewhere must not lend its configuration to a checkout.
    """
    root = checkout()
    return resources.files("sstorch.configs") if root is None else root / "configs"


def help_text() -> str:
    """Usage of the ``sstorch`` command, and the choices of its groups."""
    groups = {"dataset": ("csv", "NAME"), "model": (), "cv": (), "logger": (), "experiment": ()}
    lines = []
    for group, more in groups.items():
        folder = configuration() / group
        files = [path.name.removesuffix(".yaml") for path in folder.iterdir()] if folder.is_dir() else []
        lines.append(f"  {group + '=':<12} {' '.join([*sorted(files), *more])}")
    return _HELP.format(groups="\n".join(lines))


def check_place(words: Sequence[str]) -> None:
    """Check that the file or folder that leads the arguments exists, if one does."""
    if words and not words[0].startswith("-"):
        place = os.path.expanduser(words[0])
        if not os.path.exists(place):
            raise DataError(f"{place}: no such file or folder")


def check_data_file(words: Sequence[str]) -> None:
    """Check that the file of ``dataset.path=FILE`` among the settings of a run exists."""
    # With an option it is a sweep over files, or no run; and another data set takes no file.
    if any(word.startswith("-") for word in words) or "dataset=csv" not in words:
        return
    for word in words:
        setting, _, value = word.lstrip("+").partition("=")
        path = os.path.expanduser(value.strip("'\""))
        named = setting == "dataset.path" and value not in ("", "null") and "${" not in value
        if named and not os.path.exists(path):
            raise DataError(f"{path}: no such file")
