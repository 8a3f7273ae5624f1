"""Arguments of the ``sstorch`` command: what is typed, as Hydra takes it, and its refusals in plain words."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import fields

from hydra.errors import HydraException

from sstorch.bench.config import DatasetConfig, override_text, setting_names
from sstorch.checks import nearest_text
from sstorch.exceptions import ConfigError

# Settings that are text, which is taken as it stands: blanks, umlauts and the signs of Hydra's grammar.
_FOLDERS = ("dataset.path", "study.folder", "hydra.run.dir", "hydra.sweep.dir")
_TEXTS = {
    *(f"dataset.{item.name}" for item in fields(DatasetConfig) if str(item.type).startswith("str")),
    *_FOLDERS,
}
_LISTS = ("dataset.drop", "model.columns.missing")
# Signs of Hydra's grammar in texts.
_SIGNS = set("~,'\"[]{}$\\")
# Options, and whether a word follows.
_OPTIONS = {
    **dict.fromkeys(("--help", "-h", "--version", "--hydra-help", "--multirun", "-m", "--run", "-r"), False),
    **dict.fromkeys(("--resolve", "--shell-completion", "-sc"), False),
    **dict.fromkeys(("--cfg", "-c", "--package", "-p", "--info", "-i", "--config-dir", "-cd"), True),
    **dict.fromkeys(("--config-path", "-cp", "--config-name", "-cn", "--experimental-rerun"), True),
}
_SETTING = re.compile(r"(?P<name>\+{0,2}[\w/.@:-]+)=(?P<value>.*)", re.DOTALL)
# Of an entry that is excluded, such as ~study.models.sst_po; whole groups are not.
_DELETION = re.compile(r"~[\w-]+(\.[\w-]+)+(=.*)?", re.DOTALL)


def as_hydra_takes(arguments: Sequence[str]) -> list[str]:
    """The arguments, options first, with text in quotes and ``~`` written out.

    Raises:
        ConfigError: an option does not exist, or an argument is no setting.
    """
    sweeps = bool({"-m", "--multirun"} & set(arguments))
    words, options, out = iter(arguments), [], []
    for word in words:
        if word.startswith("-"):
            option = word.partition("=")[0]
            if option not in _OPTIONS:
                raise ConfigError(f"unknown option {option}.{nearest_text(option, list(_OPTIONS))}")
            options.append(word)
            if _OPTIONS[option] and "=" not in word:
                follows = next(words, None)
                if follows is None:
                    raise ConfigError(f"{option} needs a value, such as --cfg job")
                options.append(follows)
            continue
        if _DELETION.fullmatch(word):
            out.append(word)
            continue
        if (match := _SETTING.fullmatch(word)) is None:
            what = word.lstrip("~+").partition("=")[0]
            raise ConfigError(
                f"{word!r} is no setting; write NAME=VALUE, such as model.depth=1."
                f"{nearest_text(what, setting_names())}"
            )
        name, value = match["name"], match["value"]
        out.append(f"{name}={_hydra_value(name.lstrip('+'), value, sweeps)}")
    return [*options, *out]  # argparse takes no option between settings


def _hydra_value(name: str, value: str, sweeps: bool) -> str:
    if name in _LISTS and value != "null":
        inner = value[1:-1] if value.startswith("[") and value.endswith("]") else value
        items = re.findall(r"""\s*("(?:\\.|[^"])*"|'(?:\\.|[^'])*'|[^,]+)""", inner)
        return f"[{','.join(_quoted(item.strip()) for item in items)}]"
    swept = sweeps and "," in value.strip(",")
    if name not in _TEXTS or value in ("", "null") or "${" in value or swept:
        return value
    if name in _FOLDERS:
        value = os.path.expanduser(value)
    return _quoted(value)


def _quoted(text: str) -> str:
    """Text in quotes of Hydra's grammar, unless it has some."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text
    return hydra_quoted(text)


def setting_word(name: str, value: str) -> str:
    """A setting as one word of a shell, which sets this very text."""
    plain = value == value.strip() and value.casefold() not in ("", "null") and not _SIGNS & set(value)
    return shlex.quote(f"{name}={value if plain else hydra_quoted(value)}")


def hydra_quoted(text: str) -> str:
    """Text in quotes of Hydra's grammar."""
    return '"' + re.sub(r'(\\*)("|$)', lambda m: 2 * m[1] + (r"\"" if m[2] else ""), text) + '"'


# ---------------------------------------------------------------------- refusals


def refusal_text(error: HydraException) -> str:
    """Convert errors of Hydra to messages about settings."""
    text = " ".join(str(error).split())
    if text_of_override := override_text(error):
        return text_of_override
    if match := re.search(
        r"Could not find '([^']+)'( Available options in '[^']+': (.*?) Config search)?", text
    ):
        group, _, name = match[1].rpartition("/")
        known = (match[3] or "").split()
        choices = f"; choose one of {', '.join(known)}.{nearest_text(name, known)}" if known else ""
        return f"there is no {group}={name}{choices}" if group else f"there is no configuration {name}"
    if match := re.search(r"Could not override '([^']+)'", text):
        return f"there is no setting {match[1]}; --cfg job shows those there are"
    if match := re.search(r"Ambiguous value for argument '(.*?)' 1\.", text):
        return f"{match[1]} has several values: -m runs each of them, and a list stands in brackets, [a,b]"
    if match := re.search(r"Multiple values for ([\w/]+)", text):
        return f"{match[1]} is chosen twice; write {match[1]}=NAME once, without a plus"
    if "override_grammar" in text:
        what = re.search(
            r"parsing override '(.*?)' (?=missing|no viable|token|extraneous|mismatched|Lexer|$)", text
        )
        where = f"{what[1]} cannot be read" if what else "a value cannot be read"
        return f"{where}: put it in quotes within those of the shell, 'name=\"value\"'"
    return re.split(r" (?:See https|Config search path|To append)", text)[0]
