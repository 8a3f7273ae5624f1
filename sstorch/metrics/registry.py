"""The registry of metrics: what `evaluate`, scorers, studies and reports read of a metric by its name.

A metric is declared once, by `metric` above the function that reads it off scored rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from sstorch.checks import check_choice
from sstorch.data import Surv
from sstorch.data.target import no_intervals
from sstorch.exceptions import ConfigError

# Outcomes that metrics distinguish: one event (right-censored or counting), competing causes.
Kind = Literal["event", "competing"]
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Metric:
    """A metric by its name."""

    name: str  # as in tables and options
    title: str  # in words
    short: str  # title where there is little room
    higher_is_better: bool | None  # direction; None where neither is, as of a p-value
    source: str = ""  # publication of the definition
    # Outcomes that it is defined for; none if it is a score of something other than predictions
    outcomes: tuple[Kind, ...] = ()
    # From scored rows and the number of a cause, 1 for one event; None if `evaluate` asks the model
    value: Callable[[Any, Any], float] | None = None
    entry: bool = False  # whether rows with entry times (left truncation) may be scored
    censoring_weights: bool = False  # whether weights 1 / G enter
    # The times at which 1 / G weighs the rows that a floor under G may hold down; None if no floor enters
    weighted_times: Callable[[Any], Any] | None = None
    needs: str | None = None  # method that the model has to have; None if predictions suffice
    # Selections that it belongs to, such as ``"study"``; with ``"asked"`` it is computed only where it is
    # named, as another convention of a metric that is
    tags: frozenset[str] = frozenset()
    averaged: bool = True  # whether a mean over data sets makes sense
    rejection: bool = False  # whether values are p-values, of which reports give the share below .05
    alias: str | None = None  # another name, in the published tables of the paper

    @property
    def published(self) -> str | None:
        """Name in the published tables of the paper; None if it is not there."""
        return (self.alias or self.name) if "published" in self.tags else None

    @property
    def direction(self) -> str:
        """The direction in words."""
        if self.higher_is_better is None:
            return "no direction"
        return "higher is better" if self.higher_is_better else "lower is better"


METRICS: dict[str, Metric] = {}
# Tag of metrics that are computed only where they are named.
ASKED = "asked"


def declare(name: str, *, tags: Iterable[str] = (), **facts: Any) -> Metric:
    """Enter a metric; arguments are the attributes of `Metric`.

    A function that is defined again, as in a notebook, replaces the previous one.
    """
    if name in METRICS and not _is_again(METRICS[name].value, facts.get("value")):
        raise ConfigError(f"the metric {name!r} is declared already")
    METRICS[name] = Metric(name, tags=frozenset(tags), **facts)
    return METRICS[name]


def _is_again(known: Callable[..., Any] | None, new: Callable[..., Any] | None) -> bool:
    """True if two functions have the same place in code, module and name."""
    if known is None or new is None:
        return False
    return (known.__module__, known.__qualname__) == (new.__module__, new.__qualname__)


def metric(
    short: str,
    higher_is_better: bool | None,
    *,
    outcomes: tuple[Kind, ...] = ("event",),
    tags: str = "",
    **facts: Any,
) -> Callable[[Function], Function]:
    """Declare a metric under the name of the function that reads it off scored rows.

    The first line of its docstring is the title, the rest the publication. `tags` are words; the others are
    attributes of `Metric`.
    """

    def enter(function: Function) -> Function:
        title, _, source = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
        declare(
            function.__name__,
            title=title.rstrip("."),
            short=short,
            higher_is_better=higher_is_better,
            source=" ".join(source.split()).rstrip("."),
            value=function,
            outcomes=outcomes,
            tags=tags.split(),
            **facts,
        )
        return function

    return enter


def kind_of(y: Surv) -> Kind:
    """The kind of an outcome, as metrics distinguish it; DataError for interval-censored times."""
    if y.intervals is not None:
        raise no_intervals("a score of predictions")
    return "event" if y.causes is None else "competing"


def names_of(kind: Kind | None = None, tag: str | None = None) -> list[str]:
    """Names of metrics of an outcome, or of a selection, in the order of their declaration.

    Without a selection those that are computed only where they are named are excluded.
    """
    return [
        name
        for name, known in METRICS.items()
        if (kind is None or kind in known.outcomes)
        and (tag in known.tags if tag is not None else ASKED not in known.tags)
    ]


def check_names(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Names of metrics, in the given order."""
    given, there = ([names] if isinstance(names, str) else list(names)), list(known)
    for name in given:
        check_choice(name, "metrics", there)
    if not given or len(set(given)) < len(given):
        raise ConfigError(f"metrics must be one or more different names, got {given!r}.")
    return given
