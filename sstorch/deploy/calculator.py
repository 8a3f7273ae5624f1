"""One page in which a patient is entered: one file, which needs no network."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from html import escape
from importlib import resources

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray
from sstorch.checks import as_numbers
from sstorch.deploy.expression import Formula
from sstorch.deploy.javascript import JavaScript
from sstorch.exceptions import ConfigError
from sstorch.language import Language

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


@dataclass(frozen=True)
class Front:
    """Texts, fields and horizons of a page."""

    title: str  # of the page
    subtitle: str  # what the model was trained on, and what is supposed of a patient
    fields: Sequence[Field]  # one a column, in order
    horizons: Sequence[float]  # times at which probabilities are shown, increasing
    last_time: float  # until which curves are drawn
    time_unit: str | None  # of the times; None if not known
    outcome: str  # what survival is called
    language: Language  # of the texts


@dataclass(frozen=True)
class Calculator:
    """Contents of the page."""

    front: Front  # texts, fields and horizons
    formula: Formula  # of the model
    nodes: Sequence[PageNode]  # the root first
    groups: Sequence[PageGroup]  # of the tree

    def html(self) -> str:
        """The page."""
        front, say = self.front, self.front.language
        labels = {each.name: each.label for each in front.fields}
        data = {
            "texts": {key: text for key, text in say.texts.items() if "|" not in text},
            "columns": [asdict(each) for each in front.fields],
            "nodes": [
                {
                    "text": labelled(each.rule, labels) or say("all_patients"),
                    "children": each.children,
                    "group": each.group,
                }
                for each in self.nodes
            ],
            "groups": [asdict(each) for each in self.groups],
            "causes": [*self.formula.causes],
            "horizons": [*front.horizons],
            "times": np.linspace(0.0, front.last_time, _POINTS).tolist(),
            "ticks": _ticks(front.last_time),
            "lastTime": front.last_time,
            "timeUnit": say.unit(front.time_unit),
            "outcome": front.outcome,
        }
        # Inside a script no text may end it.
        printer = JavaScript()
        code = printer.source(self.formula, front.title) + printer.gates(self.formula)
        code = code.replace("</", "<\\/")
        curve = say("incidence_curve" if data["causes"] else "curve", outcome=front.outcome)
        parts = {key: escape(text) for key, text in say.texts.items()} | {
            "TITLE": escape(front.title),
            "SUBTITLE": escape(front.subtitle),
            "CURVE": escape(sentence_case(curve)),
            "CODE": code,
            "DATA": json.dumps(data, allow_nan=False, ensure_ascii=False).replace("</", "<\\/"),
        }
        return re.sub("@([A-Za-z_]+)@", lambda found: parts[found[1]], _template())


def labelled(rule: str, labels: Mapping[str, str]) -> str:
    """A rule with labels of columns in place of their names; categories of the same name stay."""
    names = "|".join(re.escape(name) for name in sorted(labels, key=len, reverse=True))
    before = r"^|[(:]|where |and |or |< |\d "
    after = r"[=):]| (?:is |in |not in |<=|>|always |never |[-+(])"
    return re.sub(f"({before})({names})(?={after})", lambda found: found[1] + labels[found[2]], rule)


def sentence_case(text: str) -> str:
    """A text that begins with a capital letter, the others as they are."""
    return text[:1].upper() + text[1:]


@cache
def _template() -> str:
    return resources.files("sstorch.deploy").joinpath("calculator.html").read_text("utf-8")


def _ticks(last: float) -> list[float]:
    """Four to eight round times."""
    step = 10.0 ** math.floor(math.log10(last / 4))
    step *= next(k for k in (1, 2, 2.5, 5, 10) if last / (step * k) <= 8)
    return [k * step for k in range(int(last / step + 1e-9) + 1)]


def check_horizons(horizons: npt.ArrayLike | None, default: FloatArray, last_time: float) -> list[float]:
    """Times at which the page shows probabilities, increasing, each in (0, last event]."""
    if horizons is None:
        return [*map(float, default)]
    times = np.unique(as_numbers(horizons, "horizons"))
    if times.size == 0 or not ((times > 0) & (times <= last_time)).all():
        raise ConfigError(
            f"horizons must be times above 0 and up to the last event of the training rows, {last_time:g}; "
            f"got {horizons!r}"
        )
    return [*map(float, times)]


def check_names(given: Mapping[str, str] | None, columns: Sequence[str], what: str) -> Mapping[str, str]:
    """Texts by column; a ConfigError if a column is not there."""
    texts = dict(given or {})
    if strange := [name for name in texts if name not in columns]:
        raise ConfigError(f"{what} names {strange[0]!r}; the columns are {', '.join(columns)}")
    return texts


def thinned_steps(times: FloatArray, values: FloatArray) -> tuple[list[float], list[list[float]]]:
    """Step functions, one a row of the values, with few enough steps to be drawn."""
    chosen = np.unique(np.linspace(0, len(times) - 1, min(len(times), _GROUP_POINTS)).round().astype(int))
    return times[chosen].tolist(), np.round(values[:, chosen], 6).tolist()
