"""Interface of fitted trees for exports."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sstorch._types import IntArray
from sstorch.base import SurvivalEstimator
from sstorch.checks import check_tree
from sstorch.deploy.calculator import PAGE_TEXTS, Field, PageNode, counted_text, duration_text, say
from sstorch.deploy.expression import Formula
from sstorch.exceptions import ConfigError


@dataclass(frozen=True)
class Counts:
    """Counts of a tree or a group.

    Attributes:
        rows: number of rows.
        events: number of events by cause; an empty name for a single event.
        median: predicted median of the event-free time, not finite if not reached; None if not reported.
    """

    rows: int
    events: Mapping[str, int]
    median: float | None = None

    def text(self, texts: Mapping[str, str], unit: str | None = None) -> str:
        """Format the counts, such as ``"92 rows, 56 events, median 2 years"``.

        Args:
            texts: texts of the page by key.
            unit: unit of the median.
        """
        if not self.rows:
            return texts["no_rows"]
        facts = [counted_text(texts, "rows", self.rows)]
        for name, n in self.events.items():
            facts.append(f"{n} {name}" if name else counted_text(texts, "events", n))
        if self.median is not None:
            key = "median" if "" in self.events else "free_median"
            reached = math.isfinite(self.median)
            time = duration_text(texts, self.median, unit) if reached else ""
            facts.append(say(texts, key if reached else f"{key}_unreached", time=time))
        return ", ".join(facts)


@dataclass(frozen=True)
class Deployed:
    """Reported facts about a tree, apart from its formula.

    Attributes:
        kind: what it is, such as "Soft survival tree of depth 2".
        counts: rows that it was trained, or recalibrated, on.
        fields: columns with ranges and typical values as far as the tree knows them.
        nodes: the tree as one reads it, the root first.
        groups: rows of each group, by its number.
        time_unit: of the times; None if unknown.
        recalibrated: whether the rows are those of a recalibration.
    """

    kind: str
    counts: Counts
    fields: Sequence[Field]
    nodes: Sequence[PageNode]
    groups: Mapping[int, Counts]
    time_unit: str | None = None
    recalibrated: bool = False

    def subtitle(self, texts: Mapping[str, str]) -> str:
        """The kind of tree and its rows."""
        rows = self.counts.text(texts)
        rows = say(texts, "of_recalibration", counts=rows) if self.recalibrated else rows
        return f"{self.kind}, {rows}"


class Deployable(SurvivalEstimator):
    """Base class of fitted trees that can be exported: the interface used by this package."""

    @abstractmethod
    def _formula(self) -> Formula:
        """The tree as a formula."""

    @abstractmethod
    def _deployed(self, medians: bool) -> Deployed:
        """Facts for the page and the head of the code, with or without medians of the groups."""

    def _write_program(self, path: Path, after: float | None) -> None:
        """Write the prediction as a program of torch; `after` is checked."""
        raise ConfigError(
            f"export_program is for soft trees, which torch computes, got {type(self).__name__}; export_code "
            "writes every tree"
        )

    @abstractmethod
    def apply(self, X: object) -> IntArray:
        """Group of each row, shape (n,)."""


def conditional_formula(tree: Deployable, after: float | None) -> Formula:
    """The formula of S(t), or of S(after + t) / S(after).

    Raises ConfigError if `tree` cannot be exported, or `after` is not a time, or None if the model has
    time-varying covariates.
    """
    check_tree(tree, "_deployed")
    formula = tree._formula()
    tree._refuse_unknown_future(after)
    return formula.conditional(after)


def headline(tree: Deployable) -> str:
    """Description of the tree in one line, for the head of the code."""
    facts = tree._deployed(medians=False)
    unit = f" Time is in {facts.time_unit}." if facts.time_unit else ""
    return f"{facts.subtitle(PAGE_TEXTS)}.{unit}"
