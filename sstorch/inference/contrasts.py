"""Contrasts of columns: differences of the linear predictor between values, the others at a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sstorch.checks import check_columns_exist
from sstorch.data import Preprocessor
from sstorch.data.columns import numeric_values
from sstorch.exceptions import DataError

# Text of the contrast of a line.
_PER_UNIT = "per unit"


@dataclass(frozen=True)
class TermFacts:
    """Facts about the training values of one column, or of a product of two, for tables."""

    places: tuple[int, ...]  # positions of its features among those of the leaves
    # 5 %, 50 % and 95 % quantile of numbers, of distinct ones where the outer two are equal; else empty
    values: tuple[float, ...]


def term_facts(preprocessor: Preprocessor, frame: pd.DataFrame) -> dict[str, TermFacts]:
    """Facts about each column and each product of the training rows, such as ``"age"`` or ``"age:horTh"``."""
    places: dict[str, list[int]] = {}
    for place, feature in enumerate(preprocessor.leaf_features):
        if feature.columns in ((preprocessor.offset,), (preprocessor.strata,)):
            continue  # no covariates
        places.setdefault(":".join(feature.columns), []).append(place)
    facts, frame = {}, preprocessor.schema.frame_of(frame)
    for name, own in places.items():
        facts[name] = TermFacts(tuple(own), ())
        if name not in preprocessor.schema.columns or name in preprocessor.schema.categories:
            continue
        values = numeric_values(frame[name], f"column {name!r}")
        if len(known := values[~np.isnan(values)]):
            found = np.quantile(known, [0.05, 0.5, 0.95], method="lower")
            if found[0] == found[2]:
                found[[0, 2]] = np.quantile(np.unique(known), [0.05, 0.95], method="nearest")
            facts[name] = TermFacts(tuple(own), tuple(found.tolist()))
    return facts


def known_categories(preprocessor: Preprocessor, column: str) -> list[str]:
    """Categories of a column that training rows had, in order."""
    origins = zip(preprocessor.schema.origins, preprocessor.scale_, strict=True)
    return [word for (name, word), scale in origins if name == column and word is not None and scale]


class Contrast(NamedTuple):
    """A difference of linear predictors, linear in the slopes."""

    term: str  # column, or two of them, ``"a:b"``
    text: str  # the values that are compared, ``"10 vs 1"``, ``"II vs I"`` or ``"per unit"``
    features: Tensor  # difference of the encoded features of leaves, (p,)


class Values(NamedTuple):
    """Two values of a column that are compared."""

    text: str  # of the comparison
    first: float | str  # the reference
    second: float | str

    @classmethod
    def of(cls, first: float | str, second: float | str) -> Self:
        """With their text."""
        one, other = (
            v if isinstance(v, str) else f"{v:.{4 if abs(v) < 1e3 else 6}g}" for v in (first, second)
        )
        return cls(f"{other} vs {one}", first, second)


class Contrasts:
    """Contrasts of columns, the others at their reference: the median or the most frequent category."""

    def __init__(self, preprocessor: Preprocessor, facts: Mapping[str, TermFacts]) -> None:
        self._preprocessor, self._facts = preprocessor, facts
        schema = preprocessor.schema
        self.reference: dict[str, float | str | None] = {
            name: preprocessor.mode_[name]
            if name in schema.categories
            else facts[name].values[1]
            if name in facts and facts[name].values
            else preprocessor.fill_[name]
            for name in schema.columns
        }
        features = preprocessor.leaf_features
        self.curves = {feature.columns[0] for feature in features if feature.kind == "curve"}
        # Columns of products are centred on means: their own effect is one at the reference of the others.
        self.products = [name for name in facts if ":" in name and name not in schema.columns]
        self.factors = {name for term in self.products for name in self._pair(term)}

    def kind(self, term: str) -> str:
        """``"line"``, ``"curve"``, ``"category"`` or ``"interaction"``."""
        if term in self.products:
            return "interaction"
        if term in self._preprocessor.schema.categories:
            return "category"
        return "curve" if term in self.curves else "line"

    def levels(self, column: str) -> list[str]:
        """Categories of a column that training rows had, but the reference."""
        known = known_categories(self._preprocessor, column)
        return [word for word in known if word != self.reference[column]]

    @property
    def baselines(self) -> dict[str, dict[str, float | str]]:
        """Strata by text such as ``"sex = f"``, and the value of their column; one without a text if none."""
        column = self._preprocessor.strata
        if column is None:
            return {"": {}}
        words = known_categories(self._preprocessor, column)
        return {f"{column} = {word}": {column: word} for word in words}

    def comparisons(self, term: str) -> list[Values]:
        """Contrasts of tables: as :meth:`outer`, but a line per unit."""
        usual = self.reference.get(term)
        if self.kind(term) == "line" and isinstance(usual, float):
            return [Values(_PER_UNIT, usual, usual + 1.0)]
        return self.outer(term)

    def outer(self, term: str) -> list[Values]:
        """The 95 % against the 5 % quantile of a number; every category against the reference."""
        if self.kind(term) == "category":
            return [Values.of(str(self.reference[term] or ""), word) for word in self.levels(term)]
        values = self._facts[term].values
        return [Values.of(values[0], values[2])] if values else []

    def rows(self, terms: Sequence[str]) -> list[Contrast]:
        """Contrasts of the tables of coefficients."""
        wanted = []
        for term in terms:
            columns = self._pair(term) if term in self.products else (term,)
            for pairs in product(*map(self.comparisons, columns)):
                text = " x ".join(dict.fromkeys(each.text for each in pairs if each.text != _PER_UNIT))
                wanted.append((term, text or _PER_UNIT, dict(zip(columns, pairs, strict=True))))
        return self._encoded(wanted)

    def between(self, column: str, pairs: Sequence[Values]) -> list[Contrast]:
        """Contrasts between two values of a column each."""
        return self._encoded([(column, each.text, {column: each}) for each in pairs])

    def checked(self, column: str, value: object) -> float | str:
        """A value of a column; a DataError if the column does not exist or has no such value."""
        schema = self._preprocessor.schema
        check_columns_exist([column], list(schema.columns))
        if column in schema.categories:
            word, known = str(value), known_categories(self._preprocessor, column)
            if word not in known:
                raise DataError(f"column {column!r} has no category {word!r}; training rows had {known}")
            return word
        number = float(numeric_values(pd.Series([value]), f"value of {column!r}")[0])
        if np.isnan(number):
            raise DataError(f"value of {column!r} must be a number, got {value!r}")
        return number

    def encoded(self, changes: Sequence[Mapping[str, float | str]]) -> Tensor:
        """Features of leaves of the reference row with some of its values changed, (n, p)."""
        columns = {}
        for name, usual in self.reference.items():
            cells = pd.Series([change.get(name, usual) for change in changes], dtype=object)
            columns[name] = cells if isinstance(usual, str | None) else cells.astype(np.float64)
        x = torch.as_tensor(self._preprocessor.transform(pd.DataFrame(columns)))
        return x[:, x.shape[1] - len(self._preprocessor.leaf_features) :].double()

    def _pair(self, term: str) -> tuple[str, str]:
        feature = self._preprocessor.leaf_features[self._facts[term].places[0]]
        return feature.columns[0], feature.columns[1]

    def _encoded(self, wanted: Sequence[tuple[str, str, Mapping[str, Values]]]) -> list[Contrast]:
        """Differences between the values of each column, of several columns differences of differences."""
        changes, signs = [], []
        for _, _, values in wanted:
            for second in product((True, False), repeat=len(values)):
                sides = zip(values.items(), second, strict=True)
                changes.append({name: pair.second if side else pair.first for (name, pair), side in sides})
                signs.append((-1.0) ** second.count(False))
        if not wanted:
            return []
        signed = torch.tensor(signs, dtype=torch.float64)[:, None] * self.encoded(changes)
        parts = signed.split([2 ** len(values) for _, _, values in wanted])
        return [Contrast(*each[:2], part.sum(0)) for each, part in zip(wanted, parts, strict=True)]
