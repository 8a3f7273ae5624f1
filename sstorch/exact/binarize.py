"""Binarizer: from columns of any kind to readable 0/1 features, chosen on the training rows only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import check_choice, check_columns_exist
from sstorch.data.columns import as_frame, check_size, kind_of, labels, numeric_values
from sstorch.data.target import parse_target
from sstorch.exact.hazards import martingale_residuals
from sstorch.exact.rows import check_weights, weighted_rows, whole_weights
from sstorch.exceptions import ConfigError, DataError
from sstorch.packing import Packed

RuleKind = Literal["above", "between", "is", "other", "missing"]

Preset = Literal["surtree", "osst", "all", "quantiles", "boosted"]


@dataclass(frozen=True)
class Rule:
    """A binary split on one column.

    It is false for a missing value, except ``"missing"``.

    Attributes:
        column: name of the column.
        kind: ``"above"``, x > low; ``"between"``, low < x <= high, infinite at the ends; ``"is"``, the
            category `values[0]`; ``"other"``, a category not in `values`; ``"missing"``.
        low, high, values: see `kind`; for ``"above"`` the value 1 if the column has only 0 and 1.
    """

    column: str
    kind: RuleKind
    low: float = -np.inf
    high: float = np.inf
    values: tuple[str, ...] = ()

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
    """A threshold of fewest digits, but ten or more, that divides increasing values as the given one does.

    Rules are printed with all digits of their thresholds, so that a reader sends rows where the tree does.
    """
    place = int(np.searchsorted(values, threshold, side="right"))
    low = values[place - 1] if place > 0 else -np.inf
    high = values[place] if place < len(values) else np.inf
    near = (float(f"{threshold:.{n}g}") for n in range(_DIGITS, 18))
    return next(number for number in near if low <= number < high)


# Digits of a threshold, and more where these do not divide the training rows as it does.
_DIGITS = 10
# Boosting rounds of "boosted"; share of rows up to which "surtree" leaves features out.
_BOOSTING_ROUNDS, _RARE = 50, 0.01


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
    * ``"boosted"``: x > t at the thresholds of gradient-boosted stumps, fitted to log-rank scores of times
      and events, or to numbers; needs y.

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
        (2024), AISTATS (``"osst"``); McTavish et al. (2022), AAAI 36 (thresholds of boosted trees).

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
            y: only for ``"boosted"``: times and events as in `SoftSurvivalTree.fit`, or an array of numbers
                (n,) or (n, m), such as indicators of classes.
            sample_weight: weights (n,), >= 0, for quantiles, frequencies, shares and boosting. Multiples of
                the smallest weight are counts of repeated rows; None for 1.

        Raises:
            ConfigError: a setting out of range, or ``"boosted"`` without y.
            DataError: an unreadable column, or invalid weights.
        """
        self._check_settings()
        frame = as_frame(X)
        if frame.empty:
            raise DataError(f"X has the shape {frame.shape}: there is nothing to binarize")
        weight = whole_weights(check_weights(sample_weight, len(frame)))[0]
        boosted = self._boosted(frame, y, weight) if self.preset == "boosted" else {}
        if not weight.all():
            frame, weight = frame[weight > 0.0], weight[weight > 0.0]
        candidates: list[Rule] = []
        for name in frame.columns:
            column = frame[name]
            if column.isna().any():
                candidates.append(Rule(str(name), "missing"))
            if self._is_number(column):
                candidates += self._number_rules(str(name), column, boosted, weight)
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

    def _check_settings(self) -> None:
        check_choice(self.preset, "preset", get_args(Preset))
        for name, least in (("n_thresholds", 1), ("n_categories", 2), ("n_bins", 2)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, got {getattr(self, name)}")

    def _is_number(self, column: pd.Series) -> bool:
        if kind_of(column) != "numeric":
            return False
        few = column.nunique() <= self.n_categories
        return not (self.preset == "osst" and few) and column.nunique() > 0

    def _number_rules(
        self, name: str, column: pd.Series, boosted: dict[str, list[float]], weight: FloatArray
    ) -> list[Rule]:
        values = numeric_values(column, f"column {name!r}")
        check_size(values, f"column {name!r}")
        known = ~np.isnan(values)
        values, place = np.unique(values[known], return_inverse=True)
        if self.preset == "osst":
            even = np.linspace(values[0], values[-1], self.n_bins + 1)[1:-1].tolist()
            edges = [_rounded(edge, values) for edge in even]
            ends = zip(edges, [*edges[1:], np.inf], strict=True)
            return [Rule(name, "between", low, high) for low, high in ends]
        if self.preset == "boosted":
            thresholds = boosted.get(name, [])
        elif self.preset == "all":
            thresholds = _midpoints(values).tolist()
        else:
            counts = np.bincount(place, weights=weight[known]) / weight.min()
            thresholds = self._quantiles(values, counts)
        one = ("1",) if np.array_equal(values, [0.0, 1.0]) else ()
        return [Rule(name, "above", _rounded(threshold, values), values=one) for threshold in thresholds]

    def _quantiles(self, values: FloatArray, counts: FloatArray) -> list[float]:
        """Thresholds among distinct values, each of which is repeated `counts` times, whole or not."""
        # Between two equal values there is a midpoint, too.
        distinct = np.unique(np.concatenate([_midpoints(values), values[counts >= 2.0]]))
        if len(distinct) > self.n_thresholds:
            # Of all midpoints the j-th is that of the repeated values j and j + 1; weights may round in sums.
            end = np.round(np.cumsum(counts), 6)
            at = np.rint((np.arange(self.n_thresholds) + 0.5) * (end[-1] - 2.0) / self.n_thresholds)
            low, high = (np.searchsorted(end, at + step, side="right") for step in (0.0, 1.0))
            distinct = np.unique((values[low] + values[high]) / 2.0)
        thresholds: list[float] = distinct.tolist()
        return thresholds

    def _category_rules(self, name: str, column: pd.Series, weight: FloatArray) -> list[Rule]:
        known = column.notna().to_numpy()
        counts = pd.Series(weight[known]).groupby(np.asarray(labels(column))[known]).sum()
        present = sorted(counts.index)
        if self.preset == "osst":
            return [Rule(name, "is", values=(category,)) for category in present[1:]]
        if len(present) == 2 and known.all():  # where some are missing, "not the second" is not the first
            return [Rule(name, "is", values=(present[1],))]
        if len(present) > self.n_categories:
            frequent = sorted(present, key=lambda category: (-counts[category], category))
            present = sorted(frequent[: self.n_categories - 1])
            return [
                *(Rule(name, "is", values=(c,)) for c in present),
                Rule(name, "other", values=(*present,)),
            ]
        return [Rule(name, "is", values=(category,)) for category in present]

    def _boosted(self, frame: pd.DataFrame, y: object, weight: FloatArray) -> dict[str, list[float]]:
        """Thresholds of stumps that are boosted on the outcome, by column."""
        if y is None:
            raise ConfigError('preset "boosted" chooses thresholds by the outcome: give fit(X, y)')
        is_survival = not isinstance(y, np.ndarray) or y.dtype.names is not None
        given: Any = parse_target(y) if is_survival else y
        n = len(given[0]) if is_survival else len(given)
        if n != len(weight):
            raise DataError(f"X has {len(weight)} rows, y has {n}")
        outcomes = martingale_residuals(weighted_rows(given, weight)) if is_survival else given
        counted = weight > 0.0
        frame, weight, outcomes = frame[counted], weight[counted], outcomes.reshape(n, -1)[counted]
        numeric = [str(name) for name in frame.columns if self._is_number(frame[name])]
        by_name: dict[str, set[float]] = {name: set() for name in numeric}
        if not numeric:
            return {}
        from sklearn.ensemble import GradientBoostingRegressor  # loads much of scikit-learn

        matrix = np.column_stack([numeric_values(frame[name], f"column {name!r}") for name in numeric])
        filled = np.where(np.isnan(matrix), np.nanmedian(matrix, axis=0), matrix)
        for outcome in outcomes.astype(np.float64).T:
            stumps = GradientBoostingRegressor(n_estimators=_BOOSTING_ROUNDS, max_depth=1, random_state=0)
            model = stumps.fit(filled, outcome, sample_weight=weight / weight.min())
            for (stump,) in model.estimators_:
                feature = int(stump.tree_.feature[0])
                if feature >= 0:
                    by_name[numeric[feature]].add(float(stump.tree_.threshold[0]))
        return {name: sorted(thresholds) for name, thresholds in by_name.items()}

    def _informative(self, candidates: list[Rule], frame: pd.DataFrame, weight: FloatArray) -> list[Rule]:
        """Without features that are rare, constant, or repeat or complement an earlier one.

        Those of another column count as another question where columns are not merged.
        """
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
