"""One page in which a patient is entered: one file, which needs no network."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from importlib import resources

import numpy as np

from sstorch._types import FloatArray
from sstorch.checks import nearest_text, sentence_case
from sstorch.data.time_unit import duration
from sstorch.deploy.expression import Formula
from sstorch.deploy.script import JAVASCRIPT
from sstorch.exceptions import ConfigError

# Texts of the page by key: ``"code"`` is the language tag (BCP 47), ``"decimal"`` the decimal mark,
# ``"time_unit"`` one unit of time and several. Values replace the names in braces.
PAGE_TEXTS: Mapping[str, str] = json.loads(
    resources.files("sstorch.deploy").joinpath("calculator.json").read_text("utf-8")
)
_GAP = re.compile(r"\{(\w+)\}")

# Points of a curve, and of a group's curve at most.
_POINTS, _GROUP_POINTS = 121, 250


@dataclass(frozen=True)
class Field:
    """A column as one enters it."""

    name: str
    label: str  # as the page calls it
    unit: str | None = None  # of the numbers
    categories: tuple[str, ...] | None = None  # of a column of categories
    low: float | None = None  # smallest number of the training rows; None if not known
    high: float | None = None  # likewise the largest
    typical: float | str | None = None  # value of a typical patient; None leaves it unknown
    binary: bool = False  # whether all numbers are 0 or 1
    span: tuple[float, float] | None = None  # 5 % and 95 % quantile of the numbers; None if not known


@dataclass(frozen=True)
class PageNode:
    """A node of the tree: the condition that leads there, its children, or the group that it is."""

    rule: str  # empty of the root
    children: tuple[int, ...] = ()
    group: int | None = None


@dataclass(frozen=True)
class PageGroup:
    """A group: its number, facts on it, and step functions of its rows."""

    number: int  # as the formula gives it
    rows: int  # how many training rows it has
    text: str  # facts
    times: Sequence[float] = ()  # of the steps
    curves: Sequence[Sequence[float]] = ()  # Kaplan-Meier, or Aalen-Johansen of each cause
    # of Kaplan-Meier, the lower and the upper 95 % confidence limit at the times
    limits: Sequence[Sequence[float]] = ()


def page(
    title: str,
    subtitle: str,  # what the model was trained on, and what is supposed of a patient
    fields: Sequence[Field],
    horizons: Sequence[float],  # increasing
    last_time: float,
    time_unit: str | None,
    outcome: str,  # the name of survival
    texts: Mapping[str, str],  # as PAGE_TEXTS
    formula: Formula,
    nodes: Sequence[PageNode],
    groups: Sequence[PageGroup],
) -> str:
    """The page: fields in order, curves up to `last_time`, the root of the nodes first."""
    labels = {each.name: each.label for each in fields}
    data = {
        "texts": {key: text for key, text in texts.items() if "|" not in text},
        "columns": [asdict(each) for each in fields],
        "nodes": [
            {
                "text": labelled(each.rule, labels) or texts["all_patients"],
                "children": each.children,
                "group": each.group,
            }
            for each in nodes
        ],
        "groups": [asdict(each) for each in groups],
        "causes": [*formula.causes],
        "horizons": [*horizons],
        "times": np.linspace(0.0, last_time, _POINTS).tolist(),
        "ticks": _ticks(last_time),
        "lastTime": last_time,
        "timeUnit": unit_texts(texts, time_unit),
        "outcome": outcome,
    }
    # Inside a script no text may end it.
    code = (JAVASCRIPT.source(formula, title) + JAVASCRIPT.gates(formula)).replace("</", "<\\/")
    curve = say(texts, "incidence_curve" if formula.causes else "curve", outcome=outcome)
    parts = {key: escape(text) for key, text in texts.items()} | {
        "TITLE": escape(title),
        "SUBTITLE": escape(subtitle),
        "CURVE": escape(sentence_case(curve)),
        "CODE": code,
        "DATA": json.dumps(data, allow_nan=False, ensure_ascii=False).replace("</", "<\\/"),
    }
    template = resources.files("sstorch.deploy").joinpath("calculator.html").read_text("utf-8")
    return re.sub("@([A-Za-z_]+)@", lambda found: parts[found[1]], template)


def page_texts(texts: Mapping[str, str] | None) -> dict[str, str]:
    """Texts of a page: those given, checked, and the default ones of all other keys."""
    given = dict(texts or {})
    for key, text in given.items():
        if key not in PAGE_TEXTS:
            known = f"{nearest_text(key, list(PAGE_TEXTS))} sstorch.deploy.calculator.PAGE_TEXTS has all keys"
            raise ConfigError(f"texts has no key {key!r}.{known}")
        default = PAGE_TEXTS[key]
        gaps = set(_GAP.findall(default))
        if not isinstance(text, str) or not gaps >= set(_GAP.findall(text)):
            names = ", ".join(sorted(gaps)) or "none"
            raise ConfigError(f"texts[{key!r}] must be a text, in braces {names}, got {text!r}")
        if text.count("|") != default.count("|"):
            raise ConfigError(f"texts[{key!r}] must have as many bars as {default!r}, got {text!r}")
    return {**PAGE_TEXTS, **given}


def say(texts: Mapping[str, str], key: str, **values: str | int) -> str:
    """The text of a key with values in place of its names in braces."""
    return _GAP.sub(lambda found: str(values[found[1]]), texts[key])


def counted_text(texts: Mapping[str, str], key: str, n: int) -> str:
    """A number of things: ``"1 row"``, ``"2 rows"``; the text has both, with a bar between them."""
    return f"{n} {texts[key].split('|')[n != 1]}"


def unit_texts(texts: Mapping[str, str], unit: str | None) -> list[str]:
    """The unit of time of the page, of one and of several."""
    unit = unit or ""
    return say(texts, "time_unit", one=unit.removesuffix("s"), several=unit).split("|")


def duration_text(texts: Mapping[str, str], value: float, unit: str | None) -> str:
    """A time with its unit if that is known, of four digits."""
    number = duration(value, None).replace(".", texts["decimal"])
    return f"{number} {unit_texts(texts, unit)[value != 1]}".rstrip()


def labelled(rule: str, labels: Mapping[str, str]) -> str:
    """A rule with labels of columns in place of their names; categories of the same name stay."""
    names = "|".join(re.escape(name) for name in sorted(labels, key=len, reverse=True))
    before = r"^|[(:]|and |or |< |\d "
    after = r"[=):]| (?:is |in |not in |<=|>|always |never |[-+(])"
    return re.sub(f"({before})({names})(?={after})", lambda found: found[1] + labels[found[2]], rule)


def _ticks(last: float) -> list[float]:
    """Four to eight round times."""
    step = 10.0 ** math.floor(math.log10(last / 4))
    step *= next(k for k in (1, 2, 2.5, 5, 10) if last / (step * k) <= 8)
    return [k * step for k in range(int(last / step + 1e-9) + 1)]


def thinned_steps(times: FloatArray, values: FloatArray) -> tuple[list[float], list[list[float]]]:
    """Step functions, one a row of the values, with few enough steps to be drawn."""
    chosen = np.unique(np.linspace(0, len(times) - 1, min(len(times), _GROUP_POINTS)).round().astype(int))
    return times[chosen].tolist(), np.round(values[:, chosen], 6).tolist()
