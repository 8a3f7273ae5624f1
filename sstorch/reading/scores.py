"""Linear scores of gates and leaves in original units, by column, and tables of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.data import Preprocessor
from sstorch.data.basis import Feature
from sstorch.fitted.tree import FittedTree

# Points in which the curve of a column is looked at.
_CURVE_POINTS = 201


@dataclass(frozen=True)
class Term:
    """A part of a linear score as it is written: a number, a category, a curve of a number, or a product."""

    name: str  # such as ``"age"``, ``"grade=II"``, ``"s(age)"``, ``"log(size)"`` or ``"age:grade=II"``
    columns: tuple[str, ...]  # the raw column; of a product both
    category: str | None
    base: tuple[int, ...]  # positions of its columns among the scaled columns and categories
    places: tuple[int, ...]  # of its features among those of the score
    is_curve: bool = False
    logged: bool = False  # whether it is a product with the logarithm of a column


def terms_of(preprocessor: Preprocessor, features: Sequence[Feature]) -> list[Term]:
    """The terms of scores on the features of gates or of leaves, in order; those of a curve are one term."""
    curves = {feature.columns for feature in features if feature.kind == "curve"}
    terms: dict[tuple[object, ...], Term] = {}
    for place, feature in enumerate(features):
        known = terms.get(feature.columns)
        if feature.columns not in curves or feature.kind == "product":
            category = preprocessor.schema.origins[feature.base[0]][1] if feature.kind == "column" else None
            terms[feature.columns, place] = Term(
                feature.name, feature.columns, category, feature.base, (place,), logged=feature.logged
            )
        elif known is None:
            terms[feature.columns] = Term(
                feature.name, feature.columns, None, feature.base, (place,), is_curve=True
            )
        else:
            name = f"s({feature.columns[0]})"
            terms[feature.columns] = replace(known, name=name, places=(*known.places, place))
    return list(terms.values())


@dataclass(frozen=True)
class Score:
    """A linear score on encoded features: the sum of weight x value over the terms, plus the bias."""

    # A curve is one value, which spans one unit over the training range; its weight is the most that it
    # changes the score there, negative where it falls.

    terms: list[Term]  # T of them
    weight: FloatArray  # (T,)
    bias: float
    # units of a value in an original unit, (T,); of curves and logarithms 1, without information 0
    scale: FloatArray
    offset: FloatArray  # the original number where the value is zero, (T,)
    # of each curve, by its position, the weights of its features and their sum at the smallest training value
    curves: Mapping[int, tuple[FloatArray, float]]

    @classmethod
    def of_node(cls, tree: FittedTree, node: int, cause: str | None = None) -> Score:
        """Score of a gate, or linear predictor of a leaf, by heap number; that of the first cause if None."""
        module, preprocessor, first = tree.hazards[cause or tree.causes[0]], tree.preprocessor, 0
        if node in module.topology.branches:
            gate, features = module.gate(node), preprocessor.gate_features
            weight, bias = to_numbers(gate.weight), float(gate.bias.detach())
        else:
            leaf, features = module.leaf(node), preprocessor.leaf_features
            weight, bias = to_numbers(leaf.slope), float(leaf.intercept.detach())
            first = len(preprocessor.features) - len(features)
        terms, curves = terms_of(preprocessor, features), {}
        weights, scale, offset = np.zeros((3, len(terms)))
        for k, term in enumerate(terms):
            weights[k] = weight[term.places[0]]
            scale[k] = preprocessor.scale_[list(term.base)].prod()
            if term.is_curve or term.logged:
                scale[k] = float(scale[k] != 0)
            if term.is_curve:
                part = weight[list(term.places)]
                curve = _curve(preprocessor, [first + place for place in term.places], term.base[0]) @ part
                curves[k] = part, float(curve[0])
                bias += float(curve[0])
                weights[k] = np.ptp(curve) if curve.argmax() > curve.argmin() else -np.ptp(curve)
            elif len(term.base) == 1:
                offset[k] = preprocessor.offset_[term.base[0]]
        return cls(terms, weights, bias, scale, offset, curves)

    @property
    def constant(self) -> float:
        """Value of the score where all original numbers are zero and no category applies."""
        return self.bias - float((self.weight * self.scale) @ self.offset)

    def of_used_columns(self) -> Score:
        """The same score without the terms of columns that have no effect."""
        columns = {
            name for term, w in zip(self.terms, self.weight, strict=True) if w for name in term.columns
        }
        used = [k for k, term in enumerate(self.terms) if not columns.isdisjoint(term.columns)]
        curves = {at: self.curves[k] for at, k in enumerate(used) if k in self.curves}
        terms = [self.terms[k] for k in used]
        return Score(terms, self.weight[used], self.bias, self.scale[used], self.offset[used], curves)

    def values(self, x: FloatArray) -> FloatArray:
        """Values of the terms, (n, T), from the features that the gate or leaf sees, (n, q)."""
        if not self.curves:
            return x
        columns = [x[:, term.places[0]] for term in self.terms]
        for k, (part, low) in self.curves.items():
            curve = x[:, list(self.terms[k].places)] @ part - low
            columns[k] = np.divide(curve, self.weight[k], out=np.zeros(len(x)), where=self.weight[k] != 0)
        return np.stack(columns, axis=1)

    def table(self) -> pd.DataFrame:
        """Informative terms by effect, which is the coefficient of curves and products with logarithms."""
        table = pd.DataFrame(
            {
                "column": [":".join(term.columns) for term in self.terms],
                "coefficient": self.weight * self.scale,
                # After scaling every feature spans one unit, so the weight is the effect of the whole range.
                "effect": self.weight,
            },
            index=pd.Index([term.name for term in self.terms], name="feature"),
        )
        order = np.argsort(-np.abs(self.weight), kind="stable")
        informative: pd.DataFrame = table.iloc[order[self.scale[order] != 0]]
        return informative

    def with_modes(self, modes: Mapping[str, str]) -> Score:
        """The same score of rows without missing categories; `modes` has weight zero in each column."""
        weight, bias = self.weight.copy(), self.bias
        for column, mode in modes.items():
            block = [j for j, term in enumerate(self.terms) if term.columns == (column,)]
            reference = sum(weight[j] for j in block if self.terms[j].category == mode)
            weight[block] -= reference
            bias += float(reference)
        return replace(self, weight=weight, bias=bias)


def _curve(preprocessor: Preprocessor, places: list[int], base: int) -> FloatArray:
    """Some features, those of a curve, over the training range of its column, (k, their number)."""
    basis = preprocessor.basis_
    assert basis is not None
    even = np.linspace(0, 1, _CURVE_POINTS)
    # Evenly on the logarithm, too: most rows of a skewed column may be between the first two even points.
    of_logs = [
        (scale * np.expm1(even * np.log1p(1 / scale))).clip(0, 1)
        for scale in basis.log_scale[basis.log_column == base]
    ]
    values = np.unique(np.concatenate([even, *of_logs]))
    own = basis.of_columns(np.array([base]))
    kept = [place for place, feature in enumerate(basis.features) if set(feature.base) <= {base}]
    return own.transform(values[:, None])[:, np.searchsorted(kept, places)]


def to_numbers(tensor: Tensor) -> FloatArray:
    """A tensor as an array of float64."""
    return tensor.detach().cpu().double().numpy()


def against_modes(tree: FittedTree, node: int, cause: str | None = None) -> pd.DataFrame:
    """The table of a score, categories compared with the most frequent one, which is excluded."""
    score = Score.of_node(tree, node, cause)
    modes = {column: mode for column, mode in tree.preprocessor.mode_.items() if mode is not None}
    references = [
        term.name
        for term in score.terms
        if len(term.columns) == 1
        and term.category is not None
        and modes.get(term.columns[0]) == term.category
    ]
    return score.with_modes(modes).table().drop(index=references, errors="ignore")


def leaf_slopes(tree: FittedTree) -> pd.DataFrame:
    """Coefficients of the leaves by group and feature: see :func:`sstorch.reading.leaf_coefficients`."""
    found, leaves = {}, tree.module.topology.leaves
    for cause, module in tree.hazards.items():
        order = enumerate(tree.group_numbers.argsort().tolist(), 1)
        table = pd.concat(
            {group: against_modes(tree, leaves[place], cause) for group, place in order}, names=["group"]
        )
        if module.family.constant_ratio is not None:
            table[module.family.constant_ratio] = np.exp(table["coefficient"])
        found[cause] = table
    return pd.concat(found, names=["cause"]) if tree.competing else found[tree.causes[0]]
