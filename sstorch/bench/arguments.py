"""Arguments of the ``sstorch`` command: what is typed, as Hydra takes it, and its refusals in plain words."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import fields, is_dataclass

from hydra.errors import HydraException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException, ValidationError

from sstorch.bench.config import DatasetConfig, no_setting_text, setting_names
from sstorch.checks import nearest_text
from sstorch.exceptions import ConfigError

# Settings that are text, which is taken as it stands: blanks, umlauts and the signs of Hydra's grammar.
_FOLDERS = ("dataset.path", "study.folder", "hydra.run.dir", "hydra.sweep.dir")
_TEXTS = {f"dataset.{item.name}" for item in fields(DatasetConfig) if str(item.type).startswith("str")}
_LISTS = ("dataset.drop", "model.columns.missing")
# Signs of Hydra's grammar in texts.
_SIGNS = set("~,'\"[]{}$\\")
# Options without and with a word that follows.
_PLAIN = ["--help", "-h", "--version", "--hydra-help", "--multirun", "-m", "--run", "-r", "--resolve"]
_PLAIN += ["--shell-completion", "-sc"]
_WITH_WORD = ["--cfg", "-c", "--package", "-p", "--info", "-i", "--config-dir", "-cd", "--config-path", "-cp"]
_WITH_WORD += ["--config-name", "-cn", "--experimental-rerun"]
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
            option, _, value = word.partition("=")
            if option not in _PLAIN + _WITH_WORD:
                raise ConfigError(f"unknown option {option}.{nearest_text(option, _PLAIN + _WITH_WORD)}")
            options.append(word)
            if option in _WITH_WORD and not value:
                if (follows := next(words, None)) is None:
                    raise ConfigError(f"{option} needs a value, such as --cfg job")
                options.append(follows)
        elif _DELETION.fullmatch(word):
            out.append(word)
        elif match := _SETTING.fullmatch(word):
            name, value = match["name"], match["value"]
            out.append(f"{name}={_hydra_value(name.lstrip('+'), value, sweeps)}")
        else:
            near = nearest_text(word.lstrip("~+").partition("=")[0], setting_names())
            raise ConfigError(f"{word!r} is no setting; write NAME=VALUE, such as model.depth=1.{near}")
    return [*options, *out]  # argparse takes no option between settings


def _hydra_value(name: str, value: str, sweeps: bool) -> str:
    if name in _LISTS and value != "null":
        inner = value[1:-1] if value.startswith("[") and value.endswith("]") else value
        items = re.findall(r"""\s*("(?:\\.|[^"])*"|'(?:\\.|[^'])*'|[^,]+)""", inner)
        return f"[{','.join(_quoted(item.strip()) for item in items)}]"
    swept = sweeps and "," in value.strip(",")
    if name not in _TEXTS.union(_FOLDERS) or value in ("", "null") or "${" in value or swept:
        return value
    return _quoted(os.path.expanduser(value) if name in _FOLDERS else value)


def _quoted(text: str) -> str:
    """Text in quotes of Hydra's grammar, unless it has some."""
    has_quotes = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text if has_quotes else _hydra_quoted(text)


def _hydra_quoted(text: str) -> str:
    return '"' + re.sub(r'(\\*)("|$)', lambda m: 2 * m[1] + (r"\"" if m[2] else ""), text) + '"'


def setting_word(name: str, value: str) -> str:
    """A setting as one word of a shell, which sets this very text."""
    plain = value == value.strip() and value.casefold() not in ("", "null") and not _SIGNS & set(value)
    return shlex.quote(f"{name}={value if plain else _hydra_quoted(value)}")


# ---------------------------------------------------------------------- refusals


def refusal_text(error: HydraException) -> str:
    """Convert errors of Hydra to messages about settings."""
    if text_of_override := _override_text(error.__cause__):
        return text_of_override
    text = " ".join(str(error).split())
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
        end = r"(?=missing|no viable|token|extraneous|mismatched|Lexer|$)"
        what = re.search(rf"parsing override '(.*?)' {end}", text)
        where = f"{what[1]} cannot be read" if what else "a value cannot be read"
        return f"{where}: put it in quotes within those of the shell, 'name=\"value\"'"
    return re.split(r" (?:See https|Config search path|To append)", text)[0]


def _override_text(cause: BaseException | None) -> str | None:
    """Name the unknown setting or the value of a wrong type."""
    if not isinstance(cause, OmegaConfBaseException) or not cause.full_key:
        return None
    if isinstance(cause, ValidationError):
        return f"{cause.full_key}: {str(cause.msg).splitlines()[0]}"
    group, missing = cause.object_type, isinstance(cause, ConfigAttributeError | ConfigKeyError)
    if missing and isinstance(group, type) and is_dataclass(group):
        return no_setting_text(cause.full_key, group)
    return None
