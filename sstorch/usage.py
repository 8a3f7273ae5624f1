"""Answers that need no torch, whose import takes seconds: help, missing files, how to install packages."""

from __future__ import annotations

import json
import os
import shlex
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from sstorch.exceptions import DataError

# Default of a setting that must be given, in OmegaConf's spelling.
_MISSING = "???"
# Settings of every group and the choices that are made in code, as sstorch.bench.arguments writes them.
_FILE = "settings.json"

Setting = tuple[str, Any, str]


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


def known_settings() -> tuple[list[Setting], dict[str, list[str]]]:
    """Every setting, with default and meaning, and by group the choices that are made in code."""
    content = json.loads((configuration() / _FILE).read_text(encoding="utf-8"))
    return [(name, default, text) for name, default, text in content["settings"]], content["choices"]


def settings_text(settings: Iterable[Setting], choices: Mapping[str, Iterable[str]]) -> str:
    """The content of the file that :func:`known_settings` reads."""
    lines = [json.dumps(setting, ensure_ascii=False) for setting in settings]
    made = [f"{json.dumps(name)}: {json.dumps(sorted(own))}" for name, own in choices.items()]
    rows, groups = ",\n".join(lines), ",\n".join(made)
    return f'{{"settings": [\n{rows}\n],\n"choices": {{\n{groups}\n}}}}\n'


def help_text() -> str:
    """Every setting of the ``sstorch`` command with its meaning, its default and the choices of its group."""
    settings, choices = known_settings()
    lines = [
        "sstorch trains and cross-validates soft survival trees; without arguments, on GBSG2.",
        "",
        "  sstorch NAME=VALUE ...      one run; -m runs every combination of values with commas",
        "  sstorch --cfg job           every setting and its value",
        "  sstorch --version           version of the package",
        "  sstorch-report FOLDER       report of a run, a sweep or a study",
        "",
        "  sstorch dataset=csv dataset.path=cohort.csv dataset.time=days dataset.event=died",
    ]
    group = ""
    for name, default, text in settings:
        if name.partition(".")[0] != group:
            group = name.partition(".")[0]
            lines += ["", *([] if group == name else _choices_text(group, choices))]
        shown = "" if default == _MISSING else f" [{_default_text(default)}]"
        lines.append(f"  {name:<26} {text}{shown}")
    return "\n".join([*lines, "", *_choices_text("experiment", choices)])


def _choices_text(group: str, made: Mapping[str, Sequence[str]]) -> list[str]:
    """The group's choices, in lines."""
    folder, choices = configuration() / group, set(made.get(group, ()))
    if folder.is_dir():
        choices |= {path.name.removesuffix(".yaml") for path in folder.iterdir()}
    if not choices:
        return [group]
    indent = " " * (len(group) + 1)
    return textwrap.wrap(f"{group}={' '.join(sorted(choices))}", 100, subsequent_indent=indent)


def _default_text(default: object) -> str:
    if default is None:
        return "null"
    return str(default).lower() if isinstance(default, bool) else str(default)


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
