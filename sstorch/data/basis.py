"""Basis of features: the functions of columns that encodings and interactions make, in numpy and in torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.data.encodings import MIN_DISTINCT, Combination, Encodings, Log, NumericEncoding
from sstorch.exceptions import FormatError

FeatureKind = Literal["column", "curve", "product"]


@dataclass(frozen=True)
class Feature:
    """A feature that a basis makes.

    Attributes:
        name: such as ``"age"``, ``"grade=II"``, ``"log(size)"``, ``"age~2"`` or ``"age:grade=II"``.
        columns: the raw column it is made of, or two.
        base: positions among the scaled columns and categories of what it is made of.
        kind: ``"column"``, a number or category itself; ``"curve"``, a function of a number; ``"product"``.
        curved: whether the penalty on roughness acts on it instead of the ridge.
    """

    name: str
    columns: tuple[str, ...]
    base: tuple[int, ...]
    kind: FeatureKind = "column"
    curved: bool = False


@dataclass(frozen=True)
class Basis:
    """Functions of scaled columns and categories: the features that gates and leaves see.

    Gates see the first ``n_gates`` of all features, leaves the last ``n_leaves``.

    Attributes:
        features: what they are.
        n_gates, n_leaves: how many of them gates and leaves see.
        hinge_column, hinge_knot: (z_j - knot)+, positions j and knots.
        cube_column, cube_knot, cube_end: (min(z_j, end) - knot)+^3.
        log_column, log_scale: log(1 + z_j+ / scale) + min(z_j, 0) / scale.
        first, second: z_i z_j, positions.
        mixing: features as combinations of 1, the columns and these functions, (1 + p + e, q).
    """

    features: tuple[Feature, ...]
    n_gates: int
    n_leaves: int
    hinge_column: IntArray
    hinge_knot: FloatArray
    cube_column: IntArray
    cube_knot: FloatArray
    cube_end: FloatArray
    log_column: IntArray
    log_scale: FloatArray
    first: IntArray
    second: IntArray
    mixing: FloatArray

    @classmethod
    def fit(
        cls,
        encodings: Encodings,
        origins: Sequence[tuple[str, str | None]],
        names: Sequence[str],
        z: FloatArray,
    ) -> Self:
        """Take knots and scales from rows.

        How many features there are depends on the encodings alone; those without information in these rows
        are zero.

        Args:
            encodings: of the columns.
            origins: column and category, None for a number, of each base feature.
            names: of the base features.
            z: the rows' base features, scaled to [0, 1], (n, p).
        """
        return cls(**_Builder(encodings, origins, names, z).fields())

    @property
    def informative(self) -> BoolArray:
        """True for features that are more than a constant zero, or that are columns, (q,)."""
        return np.array([feature.kind == "column" for feature in self.features]) | self.mixing.any(axis=0)

    def keep(self, chosen: BoolArray) -> Self:
        """The basis with some of its features, boolean (q,)."""
        n_all = len(self.features)
        state = {item.name: getattr(self, item.name) for item in fields(self)}
        return type(self)(
            **state
            | {
                "features": tuple(np.array(self.features, dtype=object)[chosen]),
                "n_gates": int(chosen[: self.n_gates].sum()),
                "n_leaves": int(chosen[n_all - self.n_leaves :].sum()),
                # In the order that a file gives it back: products of matrices round by it.
                "mixing": np.ascontiguousarray(self.mixing[:, chosen]),
            }
        )

    def transform(self, z: FloatArray) -> FloatArray:
        """Features of rows, (n, p) -> (n, q)."""
        parts = [
            np.ones((len(z), 1)),
            z,
            np.maximum(z[:, self.hinge_column] - self.hinge_knot, 0),
            np.maximum(np.minimum(z[:, self.cube_column], self.cube_end) - self.cube_knot, 0) ** 3,
            np.log1p(np.maximum(z[:, self.log_column], 0) / self.log_scale)
            + np.minimum(z[:, self.log_column], 0) / self.log_scale,
            z[:, self.first] * z[:, self.second],
        ]
        out: FloatArray = np.concatenate(parts, axis=1) @ self.mixing
        return out

    def slopes(self, j: int) -> FloatArray:
        """Derivatives of the features by a column, once in each piece of its broken line, (pieces, q).

        Args:
            j: position of a column that is linear, a logarithm, whose slope at zero is given, or piecewise.
        """
        knots = np.sort(self.hinge_knot[self.hinge_column == j])
        z = np.r_[(knots[1:] + knots[:-1]) / 2, knots[-1:] + 1, knots[:1] - 1] if len(knots) else np.zeros(1)
        functions = [
            np.zeros((len(z), 1)),
            np.tile(np.arange(len(self.mixing) - 1 - self._n_functions) == j, (len(z), 1)),
            (z[:, None] > self.hinge_knot) & (self.hinge_column == j),
            np.zeros((len(z), len(self.cube_knot))),
            np.tile((self.log_column == j) / self.log_scale, (len(z), 1)),
            np.zeros((len(z), len(self.first))),
        ]
        out: FloatArray = np.concatenate(functions, axis=1) @ self.mixing
        return out

    @property
    def _n_functions(self) -> int:
        return sum(len(part) for part in (self.hinge_knot, self.cube_knot, self.log_scale, self.first))

    def module(self) -> BasisModule:
        """The same for torch, float64."""
        return BasisModule(self)

    def to_dict(self) -> dict[str, Any]:
        """As a dictionary that JSON can hold without loss."""
        state = {item.name: getattr(self, item.name) for item in fields(self)}
        state["features"] = [[f.name, list(f.columns), list(f.base), f.kind, f.curved] for f in self.features]
        return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in state.items()}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], p: int) -> Self:
        """Rebuild a basis of p columns and categories from :meth:`to_dict`.

        Raises:
            FormatError: an entry is missing or altered.
        """
        try:
            values: dict[str, Any] = {}
            for item in fields(cls):
                dtype = {"IntArray": np.int64, "FloatArray": np.float64}.get(str(item.type))
                values[item.name] = np.array(state[item.name], dtype=dtype) if dtype else state[item.name]
            values["features"] = tuple(
                Feature(str(name), tuple(map(str, columns)), tuple(map(int, base)), kind, bool(curved))
                for name, columns, base, kind, curved in state["features"]
            )
            new = cls(**values)
            pairs = (
                (new.hinge_column, new.hinge_knot),
                (new.cube_column, new.cube_knot),
                (new.cube_column, new.cube_end),
                (new.log_column, new.log_scale),
                (new.first, new.second),
            )
            q = len(new.features)
            fits = (
                all(a.shape == b.shape and a.ndim == 1 for a, b in pairs)
                and all(((a >= 0) & (a < p)).all() for a in (*(a for a, _ in pairs), new.second))
                and new.mixing.reshape(-1, q).shape == (1 + p + new._n_functions, q)
                and np.isfinite(new.mixing).all()
                and all(feature.kind in get_args(FeatureKind) for feature in new.features)
                and all(0 <= j < p for feature in new.features for j in feature.base)
                and max(new.n_gates, new.n_leaves) <= q <= new.n_gates + new.n_leaves
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"the saved encodings are incomplete or altered: {error!r}") from error
        if not fits:
            raise FormatError("the saved encodings are altered: their entries do not fit together")
        return new


class BasisModule(torch.nn.Module):
    """:meth:`Basis.transform` in torch, (n, p) -> (n, q) float64."""

    hinge_column: Tensor
    hinge_knot: Tensor
    cube_column: Tensor
    cube_knot: Tensor
    cube_end: Tensor
    log_column: Tensor
    log_scale: Tensor
    first: Tensor
    second: Tensor
    mixing: Tensor

    def __init__(self, basis: Basis) -> None:
        super().__init__()
        for item in fields(basis):
            value = getattr(basis, item.name)
            if isinstance(value, np.ndarray) and value.size:  # torch.export cannot save empty tensors
                self.register_buffer(item.name, torch.as_tensor(value))

    def forward(self, z: Tensor) -> Tensor:
        """Features of rows."""
        parts = [torch.ones_like(z[:, :1]), z]
        if hasattr(self, "hinge_column"):
            parts.append((z[:, self.hinge_column] - self.hinge_knot).clamp(min=0))
        if hasattr(self, "cube_column"):
            side = torch.minimum(z[:, self.cube_column], self.cube_end) - self.cube_knot
            parts.append(side.clamp(min=0) ** 3)
        if hasattr(self, "log_column"):
            log_z = z[:, self.log_column]
            parts.append(
                torch.log1p(log_z.clamp(min=0) / self.log_scale) + log_z.clamp(max=0) / self.log_scale
            )
        if hasattr(self, "first"):
            parts.append(z[:, self.first] * z[:, self.second])
        return torch.cat(parts, dim=1) @ self.mixing


# Fields of a basis that say what the functions of a kind are: positions of columns, then numbers.
_FIELDS: dict[str, tuple[Any, ...]] = {
    "hinge": ("hinge_column", ["hinge_knot"]),
    "cube": ("cube_column", ["cube_knot", "cube_end"]),
    "log": ("log_column", ["log_scale"]),
    "product": ("first", "second", []),
}


class _Builder:
    """Collects features and the functions they are combinations of."""

    def __init__(
        self,
        encodings: Encodings,
        origins: Sequence[tuple[str, str | None]],
        names: Sequence[str],
        z: FloatArray,
    ) -> None:
        self._p, self._z = z.shape[1], z
        self._functions: dict[str, list[tuple[float, ...]]] = {
            kind: [] for kind in ("hinge", "cube", "log", "product")
        }
        # Of gates alone, of both, and of leaves alone; each with its coefficients by place.
        sides: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
        for j, (column, category) in enumerate(origins):
            if category is not None:
                sides[1].append(self._column(j, names[j], column))
                continue
            of_gates, of_leaves = encodings.gates[column], encodings.leaves[column]
            if of_gates == of_leaves:
                sides[1].extend(self._numeric(j, column, of_leaves))
                continue
            gates, leaves = self._numeric(j, column, of_gates), self._numeric(j, column, of_leaves)
            if not isinstance(of_gates, Log) and not isinstance(of_leaves, Log):
                sides[1].append(gates.pop(0))
                leaves.pop(0)
            sides[0].extend(gates)
            sides[2].extend(leaves)
        for pair in encodings.interactions:
            sides[2].extend(self._interaction(pair, origins, names))
        self._made = [*sides[0], *sides[1], *sides[2]]
        self._n_gates, self._n_leaves = len(sides[0]) + len(sides[1]), len(sides[1]) + len(sides[2])

    def fields(self) -> dict[str, Any]:
        """Fields of a :class:`Basis`."""
        state: dict[str, Any] = {
            "features": tuple(feature for feature, _ in self._made),
            "n_gates": self._n_gates,
            "n_leaves": self._n_leaves,
        }
        starts, place = {"one": 0, "column": 1}, 1 + self._p
        for kind, (*positions, numbers) in _FIELDS.items():
            made = np.array(self._functions[kind]).reshape(-1, len(positions) + len(numbers))
            starts[kind], place = place, place + len(made)
            for k, name in enumerate(positions):
                state[name] = made[:, k].astype(np.int64)
            for k, name in enumerate(numbers):
                state[name] = made[:, len(positions) + k].astype(np.float64)
        mixing = np.zeros((place, len(self._made)))
        for k, (_, coefficients) in enumerate(self._made):
            for (kind, number), value in coefficients.items():
                mixing[starts[kind] + number, k] += value
        return state | {"mixing": mixing}

    def _column(self, j: int, name: str, column: str) -> tuple[Feature, dict[tuple[str, int], float]]:
        return Feature(name, (column,), (j,)), {("column", j): 1.0}

    def _numeric(self, j: int, column: str, encoding: NumericEncoding) -> list[Any]:
        """Features of a number: the straight one, and as many curved ones as the encoding may have."""
        z = self._z[:, j]
        straight: Combination | None = None
        curved: list[Combination] = []
        if len(np.unique(z)) >= MIN_DISTINCT:
            straight, curved = encoding.functions(z)
        made: list[Any] = [self._column(j, column, column)]
        if straight is not None:
            made = [(Feature(f"log({column})", (column,), (j,), "curve"), self._coefficients(j, straight))]
        for k in range(encoding.n_curved):
            coefficients = self._coefficients(j, curved[k]) if k < len(curved) else {}
            made.append((Feature(f"{column}~{k + 1}", (column,), (j,), "curve", curved=True), coefficients))
        return made

    def _coefficients(self, j: int, combination: Combination) -> dict[tuple[str, int], float]:
        coefficients = {("one", 0): combination.constant, ("column", j): combination.slope}
        functions = {"hinge": combination.hinges, "cube": combination.cubes}
        if combination.logarithm is not None:
            functions["log"] = (combination.logarithm,)
        for kind, terms in functions.items():
            for *numbers, value in terms:
                coefficients[self._place(kind, j, *numbers)] = value
        return coefficients

    def _place(self, kind: str, *function: float) -> tuple[str, int]:
        """Where a function stands among those of its kind, once."""
        known = self._functions[kind]
        if function not in known:
            known.append(function)
        return kind, known.index(function)

    def _interaction(
        self, pair: tuple[str, str], origins: Sequence[tuple[str, str | None]], names: Sequence[str]
    ) -> list[Any]:
        """Products of two columns; a number counts from its mean, so that the columns keep their effects."""
        places = [[j for j, (column, _) in enumerate(origins) if column == name] for name in pair]
        made = []
        for i in places[0]:
            for j in places[1]:
                means = [self._z[:, k].mean() if origins[k][1] is None else 0.0 for k in (i, j)]
                coefficients = {
                    self._place("product", i, j): 1.0,
                    ("column", i): -means[1],
                    ("column", j): -means[0],
                    ("one", 0): means[0] * means[1],
                }
                made.append((Feature(f"{names[i]}:{names[j]}", pair, (i, j), "product"), coefficients))
        return made
