"""Binarizer: from columns of any kind to readable 0/1 features, chosen on the training rows only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import check_choice, check_columns_exist, check_integer
from sstorch.data.columns import as_frame, finite_values, kind_of, labels, numeric_values
from sstorch.exact.rows import check_weights, whole_weights
from sstorch.exceptions import DataError
from sstorch.packing import Packed

RuleKind = Literal["above", "between", "is", "other", "missing"]
Preset = Literal["surtree", "osst", "all", "quantiles"]


@dataclass(frozen=True)
class Rule:
    """A binary split on one column; false for a missing value, except ``"missing"``."""

    column: str
    kind: RuleKind  #: above: x > low; between: low < x <= high; is: values[0]; other: not in values; missing
    low: float = -np.inf
    high: float = np.inf
    values: tuple[str, ...] = ()  #: categories; of above the value 1 if the column has only 0 and 1

    @property
    def name(self) -> str:
        """The rule in words: ``"age > 45.5"``."""
        name, low, high = self.column, _number(self.low), _number(self.high)
        if self.values and self.kind != "other":
            return f"{name} is {self.values[0]}"
        if self.kind == "above" or (self.kind == "between" and self.high == np.inf):
            return f"{name} > {low}"
        if self.kind == "between":
            return f"{name} <= {high}" if self.low == -np.inf else f"{low} < {name} <= {high}"
        return f"{name} is {'another category' if self.kind == 'other' else 'missing'}"

    def __call__(self, column: pd.Series) -> BoolArray:
        """The answer for every cell, shape (n,) bool."""
        if self.kind == "missing":
            return column.isna().to_numpy(dtype=np.bool_)
        if self.kind in ("above", "between"):
            numbers = numeric_values(column, f"column {self.column!r}")
            return (numbers > self.low) & (numbers <= self.high)
        cells = labels(column)
        known: BoolArray = np.array([cell in self.values for cell in cells], dtype=np.bool_)
        if self.kind == "is":
            return known
        return ~known & ~column.isna().to_numpy(dtype=np.bool_)


def _number(value: float) -> str:
    texts = (f"{value:.{n}g}" for n in range(_DIGITS, 18))
    return next(text for text in texts if float(text) == value)


def _rounded(threshold: float, values: FloatArray) -> float:
    """A threshold of fewest digits, but ten or more, that divides increasing values as the given one does."""
    place = int(np.searchsorted(values, threshold, side="right"))
    low = values[place - 1] if place > 0 else -np.inf
    high = values[place] if place < len(values) else np.inf
    near = (float(f"{threshold:.{n}g}") for n in range(_DIGITS, 18))
    return next(number for number in near if low <= number < high)


# Digits of a threshold, and more where these do not divide the training rows as it does.
_DIGITS = 10
# Share of rows up to which "surtree" leaves features out.
_RARE = 0.01


class Binarizer(Packed, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Convert numbers and categories to binary features, each a `Rule` with a readable name.

    Numbers, by `preset`:

    * ``"surtree"``: x > t at up to `n_thresholds` quantiles of the midpoints between neighbouring sorted
      values (with repetitions, or weights), or all distinct midpoints if there are fewer. Features that are
      true in at most 1 %, or at least 99 %, of the training rows (by weight) are excluded.
    * ``"quantiles"``: the same, including rare features.
    * ``"all"``: x > t at every midpoint between distinct values.
    * ``"osst"``: `n_bins` bins of equal width, one feature each except the first; columns with at most
      `n_categories` distinct numbers are categories.

    Categories: one feature per category. With more than `n_categories` categories, the `n_categories` - 1
    most frequent and "another category". For two categories without missing values only the second;
    ``"osst"`` omits the first. Every rule is false for a missing value; a column with missing values also has
    the rule "is missing".

    Features that are constant on the training rows, or equal or complementary to another feature, are
    excluded. With `merge_columns=False` only features of the same column are compared.

    Args:
        preset: see above.
        n_thresholds: maximum number of thresholds per column.
        n_categories: see above.
        n_bins: see above.
        merge_columns: see above; False for trees with costs of columns.

    Attributes:
        rules_: list of `Rule`, one per feature; where no column varies one that all training rows answer no.
        feature_names_in_: names of the columns.

    References:
        Huisman, van der Linden and Demirović (2024), AAAI 38 (``"surtree"``); Zhang, Xin, Seltzer and Rudin
        (2024), AISTATS (``"osst"``).

    Examples:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"age": [31.0, 45.0, 52.0, 60.0], "sex": ["f", "m", "m", "f"]})
        >>> binarizer = Binarizer("all").fit(frame)
        >>> binarizer.get_feature_names_out().tolist()
        ['age > 38', 'age > 48.5', 'age > 56', 'sex is m']
        >>> binarizer.transform(frame).astype(int).tolist()
        [[0, 0, 0, 0], [1, 0, 0, 1], [1, 1, 0, 1], [1, 1, 1, 0]]
    """

    rules_: list[Rule]
    feature_names_in_: npt.NDArray[np.object_]

    def __init__(
        self,
        preset: Preset = "surtree",
        *,
        n_thresholds: int = 10,
        n_categories: int = 10,
        n_bins: int = 4,
        merge_columns: bool = True,
    ) -> None:
        self.preset = preset
        self.n_thresholds = n_thresholds
        self.n_categories = n_categories
        self.n_bins = n_bins
        self.merge_columns = merge_columns

    def fit(self, X: object, y: object = None, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Determine the rules.

        Args:
            X: DataFrame or array (n, p).
            y: not used.
            sample_weight: (n,), >= 0. Multiples of the smallest weight are counts of repeated rows.

        Raises:
            ConfigError: a setting out of range.
            DataError: an unreadable column, or invalid weights.
        """
        check_choice(self.preset, "preset", get_args(Preset))
        for name, least in (("n_thresholds", 1), ("n_categories", 2), ("n_bins", 2)):
            check_integer(name, getattr(self, name), least)
        frame = as_frame(X)
        if frame.empty:
            raise DataError(f"X has the shape {frame.shape}: there is nothing to binarize")
        weight = whole_weights(check_weights(sample_weight, len(frame)))[0]
        if not weight.all():
            frame, weight = frame[weight > 0.0], weight[weight > 0.0]
        candidates: list[Rule] = []
        for name in frame.columns:
            column = frame[name]
            if column.isna().any():
                candidates.append(Rule(str(name), "missing"))
            if self._is_number(column):
                candidates += self._number_rules(str(name), column, weight)
            else:
                candidates += self._category_rules(str(name), column, weight)
        self.rules_ = self._informative(candidates, frame, weight)
        if not self.rules_:  # a question that all rows answer no: trees have one leaf
            name = frame.columns[0]
            self.rules_ = [Rule(str(name), "other", values=tuple(sorted({*labels(frame[name])} - {None})))]
        self.feature_names_in_ = np.array(frame.columns, dtype=object)
        return self

    def transform(self, X: object) -> BoolArray:
        """Evaluate the rules, (n, F) bool.

        Raises:
            DataError: a column of the training frame is missing or cannot be read.
        """
        check_is_fitted(self)
        frame = as_frame(X)
        check_columns_exist(self.feature_names_in_, list(frame.columns))
        return np.column_stack([rule(frame[rule.column]) for rule in self.rules_])

    def get_feature_names_out(self, input_features: object = None) -> npt.NDArray[np.object_]:
        """Names of the rules, (F,)."""
        check_is_fitted(self)
        return np.array([rule.name for rule in self.rules_], dtype=object)

    def _is_number(self, column: pd.Series) -> bool:
        if kind_of(column) != "numeric":
            return False
        few = column.nunique() <= self.n_categories
        return not (self.preset == "osst" and few) and column.nunique() > 0

    def _number_rules(self, name: str, column: pd.Series, weight: FloatArray) -> list[Rule]:
        values = finite_values(column, f"column {name!r}")
        known = ~np.isnan(values)
        values, place = np.unique(values[known], return_inverse=True)
        if self.preset == "osst":
            even = np.linspace(values[0], values[-1], self.n_bins + 1)[1:-1].tolist()
            edges = [_rounded(edge, values) for edge in even]
            ends = zip(edges, [*edges[1:], np.inf], strict=True)
            return [Rule(name, "between", low, high) for low, high in ends]
        thresholds = _midpoints(values)
        if self.preset != "all":
            counts = np.bincount(place, weights=weight[known]) / weight.min()
            thresholds = self._quantiles(values, counts)
        one = ("1",) if np.array_equal(values, [0.0, 1.0]) else ()
        rounded = [_rounded(threshold, values) for threshold in thresholds.tolist()]
        return [Rule(name, "above", threshold, values=one) for threshold in rounded]

    def _quantiles(self, values: FloatArray, counts: FloatArray) -> FloatArray:
        """Thresholds among distinct values, each of which is repeated `counts` times, whole or not."""
        # Between two equal values there is a midpoint, too.
        distinct: FloatArray = np.unique(np.concatenate([_midpoints(values), values[counts >= 2.0]]))
        if len(distinct) > self.n_thresholds:
            # Of all midpoints the j-th is that of the repeated values j and j + 1; weights may round in sums.
            end = np.round(np.cumsum(counts), 6)
            at = np.rint((np.arange(self.n_thresholds) + 0.5) * (end[-1] - 2.0) / self.n_thresholds)
            low, high = (np.searchsorted(end, at + step, side="right") for step in (0.0, 1.0))
            distinct = np.unique((values[low] + values[high]) / 2.0)
        return distinct

    def _category_rules(self, name: str, column: pd.Series, weight: FloatArray) -> list[Rule]:
        known = column.notna().to_numpy()
        counts = pd.Series(weight[known]).groupby(np.asarray(labels(column))[known]).sum()
        present = sorted(counts.index)
        others = list[Rule]()
        # Where some are missing, "not the second" is not the first.
        if self.preset == "osst" or (len(present) == 2 and known.all()):
            present = present[1:]
        elif len(present) > self.n_categories:
            frequent = sorted(present, key=lambda category: (-counts[category], category))
            present = sorted(frequent[: self.n_categories - 1])
            others = [Rule(name, "other", values=(*present,))]
        return [Rule(name, "is", values=(category,)) for category in present] + others

    def _informative(self, candidates: list[Rule], frame: pd.DataFrame, weight: FloatArray) -> list[Rule]:
        """Those that are not rare or constant, and that neither repeat nor complement an earlier one."""
        share = _RARE if self.preset == "surtree" else 0.0
        seen: set[tuple[str, bytes]] = set()
        kept = []
        for rule in candidates:
            answers = rule(frame[rule.column])
            held = weight[answers].sum() / weight.sum()
            if held <= share or held >= 1.0 - share:
                continue
            key = ("" if self.merge_columns else rule.column, np.packbits(answers ^ answers[0]).tobytes())
            if key not in seen:
                seen.add(key)
                kept.append(rule)
        return kept


def _midpoints(values: FloatArray) -> FloatArray:
    return (values[1:] + values[:-1]) / 2.0
