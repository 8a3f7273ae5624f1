"""Search of exact estimators: its settings, the rows of a target, and binary splits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Self, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone
from sklearn.utils.validation import check_array, column_or_1d

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import (
    check_columns_exist,
    check_integer,
    check_same_order,
    check_weight,
    is_number_of,
    names_text,
)
from sstorch.data import Schema
from sstorch.data.columns import check_not_all_missing, clean_features
from sstorch.data.target import Groups, parse_groups
from sstorch.exact.binarize import Binarizer, Preset, Rule
from sstorch.exceptions import ConfigError, DataError
from sstorch.parameters import Parameters


@dataclass(repr=False)
class Search(Parameters):
    """Settings of exact search. They do not change the optimal tree, only the result of an incomplete search.

    Attributes:
        time_limit: seconds of each search, or None. If they do not suffice, the best tree found is kept, with
            its `gap_`.
        memory: bytes that the search may take.
        n_buckets: of integrated Brier scores: None for all observed times, or a number of buckets of equal
            width that times are put in for the search (not for the curves).
        verbose: 1 reports on standard error how far the search is, once a second.
    """

    time_limit: float | None = None
    memory: int = 4 * 2**30
    n_buckets: int | None = None
    verbose: int = 0

    def checked(self) -> Search:
        """Validate the values and convert them to plain types.

        Raises:
            ConfigError: a value is unknown or out of range.
        """
        limit, buckets = self.time_limit, self.n_buckets
        return Search(
            None if limit is None else finite("time_limit", limit, "seconds > 0 or None"),
            check_integer("memory", self.memory, 1),
            None if buckets is None else check_integer("n_buckets", buckets, 2),
            check_integer("verbose", self.verbose, 0),
        )


SEARCH = Search()


@dataclass(frozen=True)
class Questions:
    """The questions that a tree may ask about raw columns, and their answers in the training rows (N, F)."""

    schema: Schema
    rules: list[Rule]
    features: pd.DataFrame

    @classmethod
    def of(
        cls, binarizer: Any, frame: pd.DataFrame, target: object, weight: FloatArray | None, priced: bool
    ) -> Self:
        """Questions about cleaned columns, chosen from these rows, their target and weights alone.

        `binarizer` is a Binarizer, or False for columns of 0 and 1. Where columns are `priced`, of two
        questions with equal answers one may be cheaper: both are kept.

        Raises:
            DataError: the columns cannot be read or, without a binarizer, are not binary.
        """
        names = list(frame.columns)
        if binarizer is False:
            check_binary_columns(frame, names)
            rules = [Rule(name, "above", 0.5) for name in names]
        else:
            own: Binarizer = clone(binarizer)
            if priced:
                own.set_params(merge_columns=False)
            rules = own.fit(frame, target, weight).rules_
            names = [rule.name for rule in rules]
        return cls(Schema.of(frame), rules, pd.DataFrame(answers(rules, frame), columns=names))


def answers(rules: Sequence[Rule], frame: pd.DataFrame, used: set[int] | None = None) -> BoolArray:
    """Answers of the rules on cleaned columns, (n, F); False for rules that are not in ``used``."""
    out = np.zeros((len(frame), len(rules)), dtype=np.bool_)
    for j, rule in enumerate(rules):
        if used is None or j in used:
            out[:, j] = rule(frame[rule.column])
    return out


def check_binary_columns(frame: pd.DataFrame, names: list[str]) -> None:
    """Check that columns hold 0 and 1 only. Raises DataError: names all columns that do not."""
    bad = [name for name in names if not _is_binary(frame[name])]
    if bad:
        raise DataError(
            f"column {names_text(bad)} does not hold 0 and 1 only, which binarize=False asks for; "
            "use binarize='surtree', or drop it"
        )


def _is_binary(column: pd.Series) -> bool:
    return not isinstance(column.dtype, pd.CategoricalDtype) and bool(column.isin([0, 1]).all())


def finite(name: str, value: Any, wanted: str, *, zero: bool = False) -> float:
    """A finite number above 0, or 0 if that is allowed."""
    if not is_number_of(value, Real) or not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise ConfigError(f"{name} must be {wanted}, got {value!r}")
    return float(value)


def binarizer_of(binarize: object) -> Any:
    """The Binarizer of a preset, or False for columns of 0 and 1. Raises ConfigError: it is neither."""
    if binarize is False or isinstance(binarize, Binarizer):
        return binarize
    for preset in get_args(Preset):
        if binarize == preset:
            return Binarizer(preset)
    raise ConfigError(
        f"binarize must be one of {', '.join(get_args(Preset))}, a Binarizer, or False for columns of 0 and "
        f"1, got {binarize!r}"
    )


@dataclass(frozen=True)
class TargetRows:
    """Training rows that passed all checks; rows of weight 0 are excluded.

    `frame` (n, p) is as `clean_features` gives it, `target` (n,) or (n, K), `weight` (n,) > 0. `every` is the
    target of all rows, and `kept` (N,) marks those that have weight.
    """

    frame: pd.DataFrame
    target: npt.NDArray[Any]
    weight: FloatArray
    every: npt.NDArray[Any]
    kept: BoolArray
    groups: Groups | None = None

    @classmethod
    def check(cls, X: object, y: object, target: npt.NDArray[Any], sample_weight: object = None) -> Self:
        """Bring features, `y` as an array, `target`, and weights together; `y` itself shows its index.

        Raises:
            DataError: the data are invalid; the message names column, rows and remedy.
        """
        frame = clean_features(X)
        n = len(frame)
        if len(target) != n:
            raise DataError(f"X has {n} rows but y has {len(target)}; give one target for every row")
        if n < 2:
            raise DataError(f"at least two rows are needed, the data have n_samples = {n}")
        check_same_order(X=X, y=y, sample_weight=sample_weight)
        check_not_all_missing(frame)
        given = check_weight(sample_weight, n)
        weight = np.ones(n) if given is None else given
        kept = weight > 0.0
        if not kept.all():
            frame = frame[kept].reset_index(drop=True)
        return cls(frame, target[kept], weight[kept], target, kept)

    @property
    def classes(self) -> npt.NDArray[Any]:
        """All classes, also those of rows of weight 0, sorted, (K,)."""
        return np.unique(self.every)

    def with_groups(self, sensitive: object) -> Self:
        """The rows with their groups, given by row (n,) or as the name of a column, which is then dropped.

        Raises:
            DataError: groups that cannot be read, or no other feature.
        """
        if sensitive is None:
            return self
        if not isinstance(sensitive, str):
            groups = parse_groups(sensitive, len(self.kept))
            return replace(self, groups=groups.subset(np.flatnonzero(self.kept)))
        check_columns_exist((sensitive,), list(self.frame.columns))
        groups = parse_groups(self.frame[sensitive], len(self.frame), sensitive)
        if self.frame.shape[1] == 1:
            raise DataError(f"no feature column is left apart from the sensitive column {sensitive!r}")
        return replace(self, frame=self.frame.drop(columns=sensitive), groups=groups)


def number_target(y: object) -> FloatArray:
    """Numbers, (n,). Raises DataError: no list of finite numbers."""
    check_given(y)
    try:
        flat = column_or_1d(y, warn=True)
        numbers = check_array(flat, ensure_2d=False, dtype=np.float64, input_name="y", ensure_min_samples=0)
    except (TypeError, ValueError) as error:
        raise DataError(str(error)) from error
    return np.asarray(numbers)


def check_given(y: object) -> None:
    """Refuse a fit without a target. Raises DataError: it is None."""
    if y is None:
        raise DataError("this estimator requires y to be passed, but the target y is None")
