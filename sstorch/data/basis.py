"""Basis of features: the functions of columns that encodings and interactions make, in numpy and in torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import blocks
from sstorch.data.encodings import (
    MIN_DISTINCT,
    Combination,
    Encodings,
    Log,
    NumericEncoding,
    Pairs,
    cubed,
    logarithm,
)

FeatureKind = Literal["column", "curve", "product"]


@dataclass(frozen=True)
class Feature:
    """A feature that a basis makes."""

    name: str  # such as ``"age"``, ``"grade=II"``, ``"log(size)"``, ``"age~2"`` or ``"age:grade=II"``
    columns: tuple[str, ...]  # the raw column it is made of, or two
    base: tuple[int, ...]  # positions among the scaled columns and categories of what it is made of
    # ``"column"``, a number or category itself; ``"curve"``, a function of a number; ``"product"``
    kind: FeatureKind = "column"
    curved: bool = False  # whether the penalty on roughness acts on it instead of the ridge
    # Whether it is a product with the logarithm of a column, and so has no original unit
    logged: bool = False


@dataclass(frozen=True)
class Basis:
    """Functions of scaled columns and categories: the features that gates and leaves see.

    Gates see the first ``n_gates`` of all features, leaves the last ``n_leaves``; products are the last of
    all. Positions are those among the p columns and categories and the l logarithms behind them.

    Attributes:
        features: what they are.
        n_gates, n_leaves: how many of them gates and leaves see.
        log_column, log_scale: columns and scales of their logarithms, (l,).
        hinge_column, hinge_knot: (z_j - knot)+, positions j and knots.
        cube_column, cube_knot, cube_end: (min(z_j, end) - knot)+^3.
        mixing: features but the products as combinations of 1, columns, logarithms, hinges and cubes,
            (1 + p + l + e, q - k).
        center: where the factors of products count from: means of numbers, zeros of categories, (p + l,).
        first, second, factor: k products, factor (z_i - center_i) (z_j - center_j).
    """

    features: tuple[Feature, ...]
    n_gates: int
    n_leaves: int
    log_column: IntArray
    log_scale: FloatArray
    hinge_column: IntArray
    hinge_knot: FloatArray
    cube_column: IntArray
    cube_knot: FloatArray
    cube_end: FloatArray
    mixing: FloatArray
    center: FloatArray
    first: IntArray
    second: IntArray
    factor: FloatArray

    @classmethod
    def fit(
        cls,
        encodings: Encodings,
        origins: Sequence[tuple[str, str | None]],
        names: Sequence[str],
        z: FloatArray,
        given: IntArray | None = None,
    ) -> Self:
        """Take knots and scales from rows; features without information in these rows are zero.

        Args:
            encodings: of the columns, on which alone the number of features depends.
            origins: column and category, None for a number, of each base feature.
            names: of the base features.
            z: the rows' base features, scaled to [0, 1], (n, p).
            given: positions of those that are given, all if None; the others are categories without products.
        """
        given = np.arange(len(names)) if given is None else given
        return cls(**_Builder(encodings, origins, names, z, given).fields())

    @property
    def informative(self) -> BoolArray:
        """True for features that are more than a constant zero, or that are columns, (q,)."""
        columns = np.array([feature.kind == "column" for feature in self.features])
        out: BoolArray = columns | np.r_[self.mixing.any(axis=0), self.factor != 0]
        return out

    def keep(self, chosen: BoolArray) -> Self:
        """The basis with some of its features, boolean (q,)."""
        n_all, mixed = len(self.features), self.mixing.shape[1]
        products = chosen[mixed:]
        return replace(
            self,
            features=tuple(np.array(self.features, dtype=object)[chosen]),
            n_gates=int(chosen[: self.n_gates].sum()),
            n_leaves=int(chosen[n_all - self.n_leaves :].sum()),
            # In the order that a file gives it back: products of matrices round by it.
            mixing=np.ascontiguousarray(self.mixing[:, chosen[:mixed]]),
            first=self.first[products],
            second=self.second[products],
            factor=self.factor[products],
        )

    def of_columns(self, given: IntArray) -> Basis:
        """The features of some base features, at ascending positions (p',), as a basis of these alone."""
        n_base, p = len(self.center), len(self.center) - len(self.log_column)
        kept = np.array([set(feature.base) <= set(given.tolist()) for feature in self.features])
        of_logs = np.isin(self.log_column, given)
        base = np.r_[given, p + np.flatnonzero(of_logs)]
        at = np.full(n_base, -1)
        at[base] = np.arange(len(base))
        hinges, cubes = at[self.hinge_column] >= 0, at[self.cube_column] >= 0
        rows = np.r_[True, at >= 0, hinges, cubes]
        basis, mixed = self.keep(kept), self.mixing.shape[1]
        products = kept[mixed:]
        return replace(
            basis,
            features=tuple(
                replace(feature, base=tuple(int(at[j]) for j in feature.base)) for feature in basis.features
            ),
            log_column=at[self.log_column[of_logs]],
            log_scale=self.log_scale[of_logs],
            hinge_column=at[self.hinge_column[hinges]],
            hinge_knot=self.hinge_knot[hinges],
            cube_column=at[self.cube_column[cubes]],
            cube_knot=self.cube_knot[cubes],
            cube_end=self.cube_end[cubes],
            mixing=np.ascontiguousarray(basis.mixing[rows]),
            center=self.center[base],
            first=at[self.first[products]],
            second=at[self.second[products]],
        )

    def transform(self, z: FloatArray) -> FloatArray:
        """Features of rows, (n, p) -> (n, q)."""
        if len(z) * self.mixing.size <= _LARGE:
            return self._features_of(z, self.mixing)
        # Most entries of the mixing are zero.
        out, mixing = np.empty((len(z), len(self.features))), scipy.sparse.csr_array(self.mixing)
        for rows in blocks(len(z), sum(self.mixing.shape), _BLOCK):
            out[rows] = self._features_of(z[rows], mixing)
        return out

    def _features_of(self, z: FloatArray, mixing: Any) -> FloatArray:
        base = np.concatenate([z, logarithm(z[:, self.log_column], self.log_scale)], axis=1)
        functions = [
            np.ones((len(z), 1)),
            base,
            np.maximum(base[:, self.hinge_column] - self.hinge_knot, 0),
            cubed(np.maximum(np.minimum(base[:, self.cube_column], self.cube_end) - self.cube_knot, 0)),
        ]
        mixed, away = np.concatenate(functions, axis=1) @ mixing, base - self.center
        products = self.factor * away[:, self.first] * away[:, self.second]
        return np.concatenate([mixed, products], axis=1)

    def slopes(self, j: int) -> FloatArray:
        """Derivatives of the features by a column, once in each piece of its broken line, (pieces, q).

        The column is linear, a logarithm, whose slope at zero is given, or piecewise, without interactions.
        """
        knots = np.sort(self.hinge_knot[self.hinge_column == j])
        z = np.r_[(knots[1:] + knots[:-1]) / 2, knots[-1:] + 1, knots[:1] - 1] if len(knots) else np.zeros(1)
        p = len(self.center) - len(self.log_column)
        functions = [
            np.zeros((len(z), 1)),
            np.tile(np.arange(p) == j, (len(z), 1)),
            np.tile((self.log_column == j) / self.log_scale, (len(z), 1)),
            (z[:, None] > self.hinge_knot) & (self.hinge_column == j),
            np.zeros((len(z), len(self.cube_knot))),
        ]
        mixed = np.concatenate(functions, axis=1) @ self.mixing
        return np.concatenate([mixed, np.zeros((len(z), len(self.factor)))], axis=1)


class BasisModule(torch.nn.Module):
    """:meth:`Basis.transform` in torch, (n, p) -> (n, q) float64."""

    log_column: Tensor
    log_scale: Tensor
    hinge_column: Tensor
    hinge_knot: Tensor
    cube_column: Tensor
    cube_knot: Tensor
    cube_end: Tensor
    mixing: Tensor
    center: Tensor
    first: Tensor
    second: Tensor
    factor: Tensor

    def __init__(self, basis: Basis) -> None:
        super().__init__()
        for item in fields(basis):
            value = getattr(basis, item.name)
            if isinstance(value, np.ndarray) and value.size:  # torch.export cannot save empty tensors
                self.register_buffer(item.name, torch.as_tensor(value))

    def forward(self, z: Tensor) -> Tensor:
        """Features of rows."""
        base = z
        if hasattr(self, "log_column"):
            logged = z[:, self.log_column]
            logs = torch.log1p(logged.clamp(min=0) / self.log_scale) + logged.clamp(max=0) / self.log_scale
            base = torch.cat([z, logs], dim=1)
        functions = [torch.ones_like(z[:, :1]), base]
        if hasattr(self, "hinge_column"):
            functions.append((base[:, self.hinge_column] - self.hinge_knot).clamp(min=0))
        if hasattr(self, "cube_column"):
            side = torch.minimum(base[:, self.cube_column], self.cube_end) - self.cube_knot
            functions.append(side.clamp(min=0) ** 3)
        mixed = torch.cat(functions, dim=1) @ self.mixing
        if not hasattr(self, "first"):
            return mixed
        away = base - self.center
        return torch.cat([mixed, self.factor * away[:, self.first] * away[:, self.second]], dim=1)


# Fields of a basis that define the functions of each kind: positions, then numbers.
_FIELDS: dict[str, tuple[list[str], list[str]]] = {
    "log": (["log_column"], ["log_scale"]),
    "hinge": (["hinge_column"], ["hinge_knot"]),
    "cube": (["cube_column"], ["cube_knot", "cube_end"]),
    "product": (["first", "second"], ["factor"]),
}
# Elements of the products with the mixing from which on its zeros are left out, and of a block of rows.
_LARGE, _BLOCK = 2**27, 2**18
# A feature, and its coefficients by kind of function and number among those of this kind.
_Made = tuple[Feature, dict[tuple[str, int], float]]


class _Builder:
    """Collects features and the functions they are combinations of."""

    def __init__(
        self,
        encodings: Encodings,
        origins: Sequence[tuple[str, str | None]],
        names: Sequence[str],
        z: FloatArray,
        given: IntArray,
    ) -> None:
        self._p, self._z = len(names), z
        self._logs: dict[int, FloatArray] = {}
        self._at = dict(zip(given.tolist(), range(len(given)), strict=True))
        # Functions of each kind and their numbers.
        self._functions: dict[str, dict[tuple[float, ...], int]] = {kind: {} for kind in _FIELDS}
        # Of gates alone, of both, and of leaves alone; and the straight features of leaves, by column.
        sides: tuple[list[_Made], list[_Made], list[_Made]] = ([], [], [])
        straight: dict[str, list[_Made]] = {}
        for j, (column, category) in enumerate(origins):
            if category is not None:
                sides[1].append((Feature(names[j], (column,), (j,)), {("base", j): 1.0}))
                straight.setdefault(column, []).append(sides[1][-1])
                continue
            of_gates, of_leaves = encodings.gates[column], encodings.leaves[column]
            leaves = self._numeric(j, column, of_leaves)
            straight[column] = leaves[:1]
            if of_gates == of_leaves:
                sides[1].extend(leaves)
                continue
            gates = self._numeric(j, column, of_gates)
            if not isinstance(of_gates, Log) and not isinstance(of_leaves, Log):
                sides[1].append(gates.pop(0))
                leaves.pop(0)
            sides[0].extend(gates)
            sides[2].extend(leaves)
        self._made = [*sides[0], *sides[1], *sides[2]]
        of_logs = [int(j) for j, _ in self._functions["log"]]
        self._center = np.zeros(self._p + len(of_logs))
        numbers = [j for j, (_, category) in enumerate(origins) if category is None]
        means = z.mean(axis=0)
        self._center[numbers] = [means[self._at[j]] for j in numbers]
        for place in range(self._p, len(self._center)):
            self._center[place] = self._base(place).mean()
        products = self._products(encodings.pairs(list(straight)), straight)
        self._features = [*(feature for feature, _ in self._made), *products]
        self._n_gates = len(sides[0]) + len(sides[1])
        self._n_leaves = len(self._features) - len(sides[0])

    def fields(self) -> dict[str, Any]:
        """Fields of a :class:`Basis`."""
        state: dict[str, Any] = {
            "features": tuple(self._features),
            "n_gates": self._n_gates,
            "n_leaves": self._n_leaves,
            "center": self._center,
        }
        starts, place = {"one": 0, "base": 1}, 1 + len(self._center)
        for kind, (positions, numbers) in _FIELDS.items():
            made = np.array(list(self._functions[kind])).reshape(-1, len(positions) + len(numbers))
            if kind in ("hinge", "cube"):
                starts[kind], place = place, place + len(made)
            for name, values in zip((*positions, *numbers), made.T, strict=True):
                state[name] = values.astype(np.int64 if name in positions else np.float64)
        mixing = np.zeros((place, len(self._made)))
        for k, (_, coefficients) in enumerate(self._made):
            for (kind, number), value in coefficients.items():
                mixing[starts[kind] + number, k] += value
        return state | {"mixing": mixing}

    def _numeric(self, j: int, column: str, encoding: NumericEncoding) -> list[_Made]:
        """Features of a number: the straight one, and as many curved ones as the encoding may have."""
        z = self._base(j)
        straight: Combination | None = None
        curved: list[Combination] = []
        if len(np.unique(z)) >= MIN_DISTINCT:
            straight, curved = encoding.functions(z)
        made: list[_Made] = [(Feature(column, (column,), (j,)), {("base", j): 1.0})]
        if straight is not None:
            made = [(Feature(f"log({column})", (column,), (j,), "curve"), self._coefficients(j, straight))]
        for k in range(encoding.n_curved):
            coefficients = self._coefficients(j, curved[k]) if k < len(curved) else {}
            made.append((Feature(f"{column}~{k + 1}", (column,), (j,), "curve", curved=True), coefficients))
        return made

    def _coefficients(self, j: int, combination: Combination) -> dict[tuple[str, int], float]:
        if combination.log_scale is not None:
            j = self._p + self._place("log", j, combination.log_scale)[1]
        coefficients = {("one", 0): combination.constant, ("base", j): combination.slope}
        for kind, terms in (("hinge", combination.hinges), ("cube", combination.cubes)):
            for *numbers, value in terms:
                coefficients[self._place(kind, j, *numbers)] = value
        return coefficients

    def _place(self, kind: str, *function: float) -> tuple[str, int]:
        """Where a function stands among those of its kind, once."""
        known = self._functions[kind]
        return kind, known.setdefault(function, len(known))

    def _base(self, place: int) -> FloatArray:
        """A base feature of the rows, or a logarithm, (n,)."""
        if place < self._p:
            return np.asarray(self._z[:, self._at[place]])
        if place not in self._logs:
            j, scale = list(self._functions["log"])[place - self._p]
            self._logs[place] = logarithm(self._base(int(j)), scale)
        return self._logs[place]

    def _products(self, pairs: Pairs, straight: Mapping[str, Sequence[_Made]]) -> list[Feature]:
        """Products of the straight features of two columns, as they are counted from their centers."""
        made = []
        for pair in pairs:
            for (one, of_one), (other, of_other) in product(*(straight.get(name, ()) for name in pair)):
                # A straight feature is a column, or a multiple of its logarithm.
                (i, first), (j, second) = (
                    next((number, value) for (kind, number), value in each.items() if kind == "base")
                    for each in (of_one, of_other)
                )
                # Without information in these rows it is zero.
                away = [self._base(k) - self._center[k] for k in (i, j)]
                seen = bool((away[0] * away[1]).any())
                self._place("product", i, j, first * second * seen)
                name, logged = f"{one.name}:{other.name}", max(i, j) >= self._p
                made.append(Feature(name, pair, one.base + other.base, "product", logged=logged))
        return made
