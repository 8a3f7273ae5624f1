"""Arguments of the ``sstorch`` command: text as Hydra takes it, and its refusals in one line."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass

from hydra.errors import HydraException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException, ValidationError

from sstorch.bench.config import DatasetConfig, no_setting_text

# Settings that are text, taken as it stands like columns to drop: blanks, umlauts, signs of Hydra's grammar.
_FOLDERS = {"dataset.path", "study.folder", "hydra.run.dir", "hydra.sweep.dir"}
_TEXTS = _FOLDERS | {f"dataset.{item.name}" for item in fields(DatasetConfig) if str(item.type)[:3] == "str"}


def as_hydra_takes(arguments: Sequence[str]) -> list[str]:
    """The arguments, with the values of text settings in quotes, and ``~`` written out."""
    sweep = [word for word in arguments if word in ("-m", "--multirun")]  # first: not between settings
    return [*sweep, *(_quoted(word, bool(sweep)) for word in arguments if word not in sweep)]


def _quoted(word: str, sweeps: bool) -> str:
    setting, _, value = word.partition("=")
    name, listed = setting.lstrip("+"), re.fullmatch(r"\[?([^][]+)\]?", value)
    if name == "dataset.drop" and listed and value != "null":
        items = re.findall(r"""\s*("(?:\\.|[^"])*"|'(?:\\.|[^'])*'|[^,]+)""", listed[1])
        return f"{setting}=[{','.join(_in_quotes(item.strip()) for item in items)}]"
    if name not in _TEXTS or value in ("", "null") or "${" in value or (sweeps and "," in value.strip(",")):
        return word
    return f"{setting}={_in_quotes(os.path.expanduser(value) if name in _FOLDERS else value)}"


def _in_quotes(text: str) -> str:
    """Text in quotes of Hydra's grammar, unless it has some."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text
    return '"' + re.sub(r'(\\*)("|$)', lambda match: 2 * match[1] + r"\"" * bool(match[2]), text) + '"'


def refusal_text(error: HydraException) -> str:
    """An error of Hydra in one line; an unknown setting with the nearest, a wrong type with the setting."""
    cause = error.__cause__
    if isinstance(cause, OmegaConfBaseException) and cause.full_key:
        if isinstance(cause, ValidationError):
            return f"{cause.full_key}: {str(cause.msg).splitlines()[0]}"
        group, missing = cause.object_type, isinstance(cause, ConfigAttributeError | ConfigKeyError)
        if missing and isinstance(group, type) and is_dataclass(group):
            return no_setting_text(cause.full_key, group)
    text = " ".join(str(error).split())
    remedy = ": write NAME=VALUE, or 'NAME=\"VALUE\"' with signs" if "override_grammar" in text else ""
    return re.split(r" (?:See https|Config search path|To append)", text)[0] + remedy
