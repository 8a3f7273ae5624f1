"""Options of files as arguments of commands."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NoReturn

import yaml

from sstorch.data.file_options import FileOptions
from sstorch.exceptions import ConfigError

_NUMBER = re.compile(r"-\d+(\.\d*)?")
_SETTING = re.compile(r"dataset\.(\w+)=(.*)", re.DOTALL)
_KINDS = {item.name: str(item.type) for item in fields(FileOptions)}
# Options that describe the outcome, which a prediction does not need.
OF_OUTCOME = (
    *("time", "event", "event_coding", "event_value", "cause", "causes", "entry", "id", "weight"),
    *("lower", "upper", "censored_at", "time_unit", "strict", "drop"),
)


class CommandParser(argparse.ArgumentParser):
    """Parser that raises `ConfigError`, and takes lists behind an equals sign, ``--missing=-9 unknown``.

    Options of files are also taken as settings of a run, ``dataset.missing=[-9,unknown]``.
    """

    def error(self, message: str) -> NoReturn:
        """Raise the error."""
        raise ConfigError(f"{message}; see {self.prog} --help")

    def add_file_options(self, *without: str) -> None:
        """Add an argument for each option of a file, but some."""
        for item in fields(FileOptions):
            if item.name in without:
                continue
            text = item.metadata["text"].replace("%", "%%")
            more: dict[str, Any] = {"help": text, "default": argparse.SUPPRESS, "metavar": "VALUE"}
            if _KINDS[item.name].startswith("list"):
                more |= {"action": "extend", "nargs": "+"}
            self.add_argument(f"--{item.name}", **more)

    def parse_words(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse arguments."""
        lists = {
            option for action in self._actions if action.nargs == "+" for option in action.option_strings
        }
        out: list[str] = []
        for word in words:
            name, equals, value = word.partition("=")
            if (setting := _SETTING.fullmatch(word)) and setting[1] in _KINDS:
                out += _setting_words(setting[1], setting[2])
            elif equals and name in lists and (_NUMBER.fullmatch(value) or not value.startswith("-")):
                out += [name, value]
            else:
                out.append(word)
        return self.parse_args(out)


def _setting_words(name: str, value: str) -> list[str]:
    if _KINDS[name].startswith("list"):
        items = [item.strip() for item in value.removeprefix("[").removesuffix("]").split(",")]
        return [f"--{name}", *filter(None, items)] if any(items) else []
    return [] if value == "null" else [f"--{name}={value}"]


def given_options(asked: argparse.Namespace, known: FileOptions) -> FileOptions:
    """Options of a file that are known already, with those of the parsed arguments in their place."""
    given = {name: value for name, value in vars(asked).items() if name in _KINDS and value is not None}
    return replace(known, **{name: _value(name, value) for name, value in given.items()})


def _value(name: str, value: Any) -> Any:
    kind = _KINDS[name]
    if not isinstance(value, str) or kind.startswith("str"):
        return value
    read = yaml.safe_load(value)
    wanted: dict[str, tuple[type, ...]] = {
        "bool": (bool,),
        "float | None": (int, float),
        "dict[str, str]": (dict,),
    }
    if not isinstance(read, wanted.get(kind, (object,))):
        raise ConfigError(f"--{name} must be {kind}, got {value!r}")
    return read
