"""From checked rows to the search for exact trees over readable binary features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone

from sstorch.data import Schema, SurvivalData
from sstorch.data.wording import names_text
from sstorch.estimators.settings import check_device
from sstorch.exceptions import ConfigError, DataError
from sstorch.optimal import Binarizer, IntegratedBrier, LogLikelihood, Rule, Solution, Task, solve
from sstorch.optimal.binarize import Preset
from sstorch.optimal.leaf_curves import Curve

BoolArray = npt.NDArray[np.bool_]
Objective = Literal["log_likelihood", "integrated_brier"]

# Curves that the leaves can have, by objective: those that it is, or can be, the loss of.
CURVES: dict[str, tuple[str, ...]] = {
    "log_likelihood": ("kaplan_meier", "proportional_hazards"),
    "integrated_brier": ("kaplan_meier", "ipcw"),
}


@dataclass(frozen=True)
class ExactSettings:
    """The checked parameters of exact trees; build it with :meth:`check`."""

    max_depth: int
    max_nodes: int | None
    objective: Objective
    leaf_penalty: float
    min_leaf: int
    min_events: int
    binarize: Binarizer | None
    leaf_curve: Curve
    n_buckets: int | None
    device: str
    time_limit: float | None
    memory: int

    @classmethod
    def check(
        cls,
        *,
        max_depth: object,
        max_nodes: object,
        objective: Objective,
        leaf_penalty: object,
        min_leaf: object,
        min_events: object,
        binarize: str | bool | Binarizer,
        leaf_curve: Curve,
        n_buckets: object,
        device: str,
        time_limit: object,
        memory: object,
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
        check_device(device)
        return cls(
            max_depth=check_integer("max_depth", max_depth, 0),
            max_nodes=None if max_nodes is None else check_integer("max_nodes", max_nodes, 0),
            objective=objective,
            leaf_penalty=_number("leaf_penalty", leaf_penalty, "a finite number >= 0", zero=True),
            min_leaf=check_integer("min_leaf", min_leaf, 1),
            min_events=check_integer("min_events", min_events, 0),
            binarize=_binarizer(binarize),
            leaf_curve=leaf_curve,
            n_buckets=None if n_buckets is None else check_integer("n_buckets", n_buckets, 2),
            device=str(device),
            time_limit=None
            if time_limit is None
            else _number("time_limit", time_limit, "seconds > 0 or None"),
            memory=check_integer("memory", memory, 1),
        )

    def task(self, data: SurvivalData) -> Task:
        """The objective on some rows."""
        if self.objective == "log_likelihood":
            return LogLikelihood(data.time, data.event)
        curve: Literal["kaplan_meier", "ipcw"] = "ipcw" if self.leaf_curve == "ipcw" else "kaplan_meier"
        return IntegratedBrier(data.time, data.event, leaf_curve=curve, n_buckets=self.n_buckets)

    def search(self, data: SurvivalData) -> Search:
        """Binarize and solve, from these rows alone.

        Raises:
            DataError: the columns cannot be read or, without a binarizer, are not binary.
            ConfigError: too many binary features for the depth.
        """
        if self.binarize is None:
            check_binary_columns(data.frame, data.feature_names)
            rules = [Rule(name, "above", 0.5) for name in data.feature_names]
            names = data.feature_names
        else:
            binarizer = clone(self.binarize).fit(data.frame, (data.time, data.event))
            rules = binarizer.rules_
            names = [rule.name for rule in rules]
        features = answers(rules, data.frame)
        solution = solve(
            pd.DataFrame(features, columns=names),
            self.task(data),
            self.max_depth,
            self.max_nodes,
            leaf_penalty=self.leaf_penalty,
            min_leaf=self.min_leaf,
            min_events=self.min_events,
            time_limit=self.time_limit,
            memory=self.memory,
            device=self.device,
        )
        return Search(self, data, Schema.of(data.frame), rules, features, solution)


@dataclass(frozen=True)
class Search:
    """A finished search and what it was made of.

    Attributes:
        settings: of the search.
        data: its rows.
        schema: of the raw columns.
        rules: the binary features.
        features: their answers, shape (N, F).
        solution: the trees of all budgets.
    """

    settings: ExactSettings
    data: SurvivalData
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


def check_integer(name: str, value: object, least: int) -> int:
    """Return an integer setting.

    Raises:
        ConfigError: no integer, or below ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ConfigError(f"{name} must be at least {least}, an integer, got {value!r}")
    return int(value)


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
