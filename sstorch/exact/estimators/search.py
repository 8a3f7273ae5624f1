"""The search that all exact estimators share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from sklearn.base import clone

from sstorch._types import BoolArray
from sstorch.checks import check_device, check_integer, names_text
from sstorch.data import Schema, SurvivalData
from sstorch.exact.binarize import Binarizer, Preset, Rule
from sstorch.exact.solve import Solution, solve
from sstorch.exact.survival_tasks import IntegratedBrier, LogLikelihood
from sstorch.exact.task import Task
from sstorch.exact.tree import LeafCurveKind
from sstorch.exceptions import ConfigError, DataError


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """The checked parameters that all exact trees share; build it with :meth:`common`."""

    max_depth: int
    max_nodes: int | None
    leaf_penalty: float
    min_leaf: int
    binarize: Binarizer | None
    device: str
    time_limit: float | None
    memory: int

    @staticmethod
    def common(
        *,
        max_depth: object,
        max_nodes: object,
        leaf_penalty: object,
        min_leaf: object,
        binarize: str | bool | Binarizer,
        device: str,
        time_limit: object,
        memory: object,
    ) -> dict[str, Any]:
        """Check every value and bring it to its plain type.

        Raises:
            ConfigError: a value does not exist or is out of range; the message says what would do.
        """
        check_device(device)
        return {
            "max_depth": check_integer("max_depth", max_depth, 0),
            "max_nodes": None if max_nodes is None else check_integer("max_nodes", max_nodes, 0),
            "leaf_penalty": _number("leaf_penalty", leaf_penalty, "a finite number >= 0", zero=True),
            "min_leaf": check_integer("min_leaf", min_leaf, 1),
            "binarize": _binarizer(binarize),
            "device": str(device),
            "time_limit": None
            if time_limit is None
            else _number("time_limit", time_limit, "seconds > 0 or None"),
            "memory": check_integer("memory", memory, 1),
        }

    @property
    def is_priced(self) -> bool:
        """Whether columns have prices: of two questions that tell the same, one may be cheaper."""
        return False

    def search_frame(
        self,
        frame: pd.DataFrame,
        make_task: Callable[[list[Rule]], Task],
        target: object,
        min_events: int = 0,
    ) -> TreeSearch:
        """Binarize and solve, from these rows alone.

        Args:
            frame: cleaned columns.
            make_task: the objective on these rows, given the questions.
            target: what the binarizer may look at.
            min_events: least number of events of a leaf.

        Raises:
            DataError: the columns cannot be read or, without a binarizer, are not binary; or no leaf could be
                large enough.
            ConfigError: too many binary features for the depth.
        """
        rules, features = self.questions(frame, target)
        solution = solve(
            features,
            make_task(rules),
            self.max_depth,
            self.max_nodes,
            leaf_penalty=self.leaf_penalty,
            min_leaf=self.min_leaf,
            min_events=min_events,
            time_limit=self.time_limit,
            memory=self.memory,
            device=self.device,
        )
        return TreeSearch(self, Schema.of(frame), rules, features.to_numpy(), solution)

    def questions(self, frame: pd.DataFrame, target: object) -> tuple[list[Rule], pd.DataFrame]:
        """The questions, and their answers (N, F) with names.

        Args:
            frame: cleaned columns.
            target: what the binarizer may look at.

        Raises:
            DataError: the columns cannot be read or, without a binarizer, are not binary.
        """
        if self.binarize is None:
            check_binary_columns(frame, list(frame.columns))
            rules = [Rule(name, "above", 0.5) for name in frame.columns]
            names = list(frame.columns)
        else:
            binarizer = clone(self.binarize)
            if self.is_priced:
                binarizer.set_params(merge_columns=False)
            rules = binarizer.fit(frame, target).rules_
            names = [rule.name for rule in rules]
        return rules, pd.DataFrame(answers(rules, frame), columns=names)


@dataclass(frozen=True)
class TreeSearch:
    """A finished search and what it was made of.

    Attributes:
        settings: of the search.
        schema: of the raw columns.
        rules: the binary features.
        features: their answers, shape (N, F).
        solution: the trees of all budgets.
    """

    settings: SearchSettings
    schema: Schema
    rules: list[Rule]
    features: BoolArray
    solution: Solution


def answers(rules: list[Rule], frame: pd.DataFrame, used: set[int] | None = None) -> BoolArray:
    """Answers of the rules on cleaned columns, (n, F); False for rules that are not in ``used``."""
    out = np.zeros((len(frame), len(rules)), dtype=np.bool_)
    for j, rule in enumerate(rules):
        if used is None or j in used:
            out[:, j] = rule(frame[rule.column])
    return out


def check_binary_columns(frame: pd.DataFrame, names: list[str]) -> None:
    """Make sure that columns hold 0 and 1 only.

    Raises:
        DataError: names all columns that do not.
    """
    bad = [name for name in names if not _is_binary(frame[name])]
    if bad:
        raise DataError(
            f"column {names_text(bad)} does not hold 0 and 1 only, which binarize=False asks for; "
            "use binarize='surtree', or drop it"
        )


def _is_binary(column: pd.Series) -> bool:
    return not isinstance(column.dtype, pd.CategoricalDtype) and bool(column.isin([0, 1]).all())


def _number(name: str, value: object, wanted: str, *, zero: bool = False) -> float:
    """A finite number above 0, or 0 where that is allowed."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ConfigError(f"{name} must be {wanted}, got {value!r}")
    number = float(value)
    if number < 0.0 or (number == 0.0 and not zero):
        raise ConfigError(f"{name} must be {wanted}, got {value!r}")
    return number


def _binarizer(binarize: object) -> Binarizer | None:
    if binarize is False or binarize is None:
        return None
    if isinstance(binarize, Binarizer):
        return binarize
    for preset in get_args(Preset):
        if binarize == preset:
            return Binarizer(preset)
    raise ConfigError(
        f"binarize must be one of {', '.join(get_args(Preset))}, a Binarizer, or False for columns of 0 and "
        f"1, got {binarize!r}"
    )


Objective = Literal["log_likelihood", "integrated_brier"]

# Curves that the leaves can have, by objective: those that it is, or can be, the loss of.
CURVES: dict[str, tuple[str, ...]] = {
    "log_likelihood": ("kaplan_meier", "proportional_hazards"),
    "integrated_brier": ("kaplan_meier", "ipcw"),
}


@dataclass(frozen=True, kw_only=True)
class ExactSettings(SearchSettings):
    """The checked parameters of exact survival trees; build it with :meth:`check`."""

    objective: Objective
    min_events: int
    leaf_curve: LeafCurveKind
    n_buckets: int | None

    @classmethod
    def check(
        cls,
        *,
        objective: Objective,
        min_events: object,
        leaf_curve: LeafCurveKind,
        n_buckets: object,
        **common: Any,
    ) -> ExactSettings:
        """Check every value and bring it to its plain type.

        Raises:
            ConfigError: a value does not exist or is out of range; the message says what would do.
        """
        if objective not in get_args(Objective):
            raise ConfigError(f"objective must be one of {', '.join(get_args(Objective))}, got {objective!r}")
        if leaf_curve not in CURVES[objective]:
            raise ConfigError(
                f"leaf_curve must be one of {', '.join(CURVES[objective])} with objective={objective!r}, "
                f"got {leaf_curve!r}"
            )
        if n_buckets is not None and objective != "integrated_brier":
            raise ConfigError("n_buckets is for objective='integrated_brier'; leave it None")
        return cls(
            **cls.common(**common),
            objective=objective,
            min_events=check_integer("min_events", min_events, 0),
            leaf_curve=leaf_curve,
            n_buckets=None if n_buckets is None else check_integer("n_buckets", n_buckets, 2),
        )

    def task(self, data: SurvivalData) -> Task:
        """The objective on some rows."""
        if self.objective == "log_likelihood":
            return LogLikelihood(data.time, data.event)
        curve: Literal["kaplan_meier", "ipcw"] = "ipcw" if self.leaf_curve == "ipcw" else "kaplan_meier"
        return IntegratedBrier(data.time, data.event, leaf_curve=curve, n_buckets=self.n_buckets)

    def search(self, data: SurvivalData) -> Search:
        """Binarize and solve, from these rows alone; errors as in `search_frame`."""
        target = (data.time, data.event)
        found = self.search_frame(data.frame, lambda _: self.task(data), target, self.min_events)
        return Search(self, found.schema, found.rules, found.features, found.solution, data)


@dataclass(frozen=True)
class Search(TreeSearch):
    """A finished search for survival trees and what it was made of.

    Attributes:
        data: its rows.
    """

    settings: ExactSettings
    data: SurvivalData
