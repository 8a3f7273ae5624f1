"""Basis of features: the functions of columns that encodings and interactions make, in numpy and in torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import blocks
from sstorch.data.encodings import (
    MIN_DISTINCT,
    STRAIGHT,
    Curves,
    Encodings,
    Log,
    NumericEncoding,
    function_values,
    logarithm,
)

# Elements of the functions of a block of rows.
_BLOCK = 2**18


@dataclass(frozen=True)
class Feature:
    """A feature that a basis makes."""

    name: str  # such as ``"age"``, ``"grade=II"``, ``"log(size)"``, ``"age~2"`` or ``"age:grade=II"``
    columns: tuple[str, ...]  # the raw column it is made of, or two
    base: tuple[int, ...]  # positions among the scaled columns and categories of what it is made of
    # ``"column"``, a number or category itself; ``"curve"``, a function of a number; ``"product"``
    kind: Literal["column", "curve", "product"] = "column"
    curved: bool = False  # whether the penalty on roughness acts on it instead of the ridge
    # Whether it is a product with the logarithm of a column, and so has no original unit
    logged: bool = False


@dataclass(frozen=True)
class Basis:
    """Functions of scaled columns and categories; positions count these p, then the l logarithms."""

    features: tuple[Feature, ...]
    n_gates: int  # how many features, the first, gates see
    n_leaves: int  # and leaves, the last; products are at the end
    log_column: IntArray  # (l,)
    log_scale: FloatArray  # (l,)
    hinge_column: IntArray  # positions j of (z_j - knot)+
    hinge_knot: FloatArray
    cube_column: IntArray  # positions j of (min(z_j, end) - knot)+^3
    cube_knot: FloatArray
    cube_end: FloatArray
    # Features but the k products as combinations of 1, columns, logarithms, hinges and cubes.
    mixing: FloatArray  # (1 + p + l + e, q - k)
    center: FloatArray  # where factors of products count from: means of numbers, zeros else, (p + l,)
    first: IntArray  # k products, factor (z_i - center_i) (z_j - center_j)
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
        """Take knots and scales from base features in [0, 1], (n, p'); uninformative ones give zeros."""
        # `origins`: column and category, None for numbers. Those not `given` are categories without products.
        column_of = {int(j): z[:, k] for k, j in enumerate(range(len(names)) if given is None else given)}
        # Features of gates alone, of both, and of leaves alone; and the straight ones of leaves, by column.
        sides: tuple[list[_Made], list[_Made], list[_Made]] = ([], [], [])
        straight: dict[str, list[_Made]] = {}
        for j, (column, category) in enumerate(origins):
            if category is not None:
                sides[1].append(_Made(Feature(names[j], (column,), (j,)), j, STRAIGHT))
                straight.setdefault(column, []).append(sides[1][-1])
                continue
            of_gates, of_leaves = encodings.gates[column], encodings.leaves[column]
            leaves = _of_number(column, j, column_of[j], of_leaves)
            straight[column] = leaves[:1]
            if of_gates == of_leaves:
                sides[1].extend(leaves)
                continue
            gates = _of_number(column, j, column_of[j], of_gates)
            if not isinstance(of_gates, Log) and not isinstance(of_leaves, Log):
                sides[1].append(gates.pop(0))
                leaves.pop(0)
            sides[0].extend(gates)
            sides[2].extend(leaves)
        made = [*sides[0], *sides[1], *sides[2]]
        scales = ((each.j, each.curves.log_scale) for each in made)
        logs = list(dict.fromkeys((j, scale) for j, scale in scales if scale is not None))
        place_of = {log: len(names) + k for k, log in enumerate(logs)}

        def base_of(each: _Made) -> int:
            """Position of the column, or of its logarithm."""
            return place_of.get((each.j, each.curves.log_scale or 0.0), each.j)

        column_of |= {place: logarithm(column_of[j], scale) for (j, scale), place in place_of.items()}
        numbers = [j for j, (_, category) in enumerate(origins) if category is None]
        center = np.zeros(len(names) + len(logs))
        for place in (*numbers, *place_of.values()):
            center[place] = column_of[place].mean()
        curved = list({id(each.curves): each for each in made if each.curves.hinges.size}.values())
        hinges = [(each, knot) for each in curved for knot in each.curves.hinges]
        cubes = [
            (each, knot, end)
            for each in curved
            for knot, end in zip(each.curves.cubes, each.curves.ends, strict=True)
        ]
        owners = [each.curves for each, *_ in (*hinges, *cubes)]
        mixing = np.zeros((1 + len(center) + len(owners), len(made)))
        for k, each in enumerate(made):
            if each.number < each.curves.mixing.shape[1]:
                own = [at for at, owner in enumerate(owners, 1 + len(center)) if owner is each.curves]
                mixing[[0, 1 + base_of(each), *own], k] = each.curves.mixing[:, each.number]
        products: list[tuple[Feature, int, int, float]] = []
        for pair in encodings.pairs(list(straight)):
            for one, other in product(*(straight.get(name, ()) for name in pair)):
                i, j = base_of(one), base_of(other)
                # Without information in these rows it is zero.
                seen = ((column_of[i] - center[i]) * (column_of[j] - center[j])).any()
                factor = float(one.curves.mixing[1, 0] * other.curves.mixing[1, 0] * seen)
                name, both = f"{one.feature.name}:{other.feature.name}", one.feature.base + other.feature.base
                logged = max(i, j) >= len(names)
                products.append((Feature(name, pair, both, "product", logged=logged), i, j, factor))

        return cls(
            features=(*(each.feature for each in made), *(feature for feature, *_ in products)),
            n_gates=len(sides[0]) + len(sides[1]),
            n_leaves=len(made) + len(products) - len(sides[0]),
            log_column=np.array([j for j, _ in logs], dtype=np.int64),
            log_scale=np.array([scale for _, scale in logs], dtype=np.float64),
            hinge_column=np.array([base_of(each) for each, _ in hinges], dtype=np.int64),
            hinge_knot=np.array([knot for _, knot in hinges], dtype=np.float64),
            cube_column=np.array([base_of(each) for each, _, _ in cubes], dtype=np.int64),
            cube_knot=np.array([knot for _, knot, _ in cubes], dtype=np.float64),
            cube_end=np.array([end for _, _, end in cubes], dtype=np.float64),
            mixing=mixing,
            center=center,
            first=np.array([i for _, i, _, _ in products], dtype=np.int64),
            second=np.array([j for _, _, j, _ in products], dtype=np.int64),
            factor=np.array([factor for *_, factor in products], dtype=np.float64),
        )

    @property
    def informative(self) -> BoolArray:
        """True for features that are more than a constant zero, or that are columns, (q,)."""
        columns = np.array([feature.kind == "column" for feature in self.features])
        return np.asarray(columns | np.r_[self.mixing.any(axis=0), self.factor != 0])

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
        own, p = set(given.tolist()), len(self.center) - len(self.log_column)
        logs = np.isin(self.log_column, given)
        base = np.r_[given, p + np.flatnonzero(logs)]
        at = np.full(len(self.center), -1)
        at[base] = np.arange(len(base))
        hinges, cubes = at[self.hinge_column] >= 0, at[self.cube_column] >= 0
        basis = self.keep(np.array([own.issuperset(feature.base) for feature in self.features]))
        moved = (replace(each, base=tuple(int(at[j]) for j in each.base)) for each in basis.features)
        return replace(
            basis,
            features=tuple(moved),
            log_column=at[self.log_column[logs]],
            log_scale=self.log_scale[logs],
            hinge_column=at[self.hinge_column[hinges]],
            hinge_knot=self.hinge_knot[hinges],
            cube_column=at[self.cube_column[cubes]],
            cube_knot=self.cube_knot[cubes],
            cube_end=self.cube_end[cubes],
            mixing=np.ascontiguousarray(basis.mixing[np.r_[True, at >= 0, hinges, cubes]]),
            center=self.center[base],
            first=at[basis.first],
            second=at[basis.second],
        )

    @cached_property
    def _mixing(self) -> Any:
        return scipy.sparse.csr_array(self.mixing)  # most entries are zero

    def transform(self, z: FloatArray) -> FloatArray:
        """Features of rows, (n, p) -> (n, q)."""
        out = np.empty((len(z), len(self.features)))
        for rows in blocks(len(z), sum(self.mixing.shape), _BLOCK):
            base = np.concatenate([z[rows], logarithm(z[rows][:, self.log_column], self.log_scale)], axis=1)
            at = base[:, self.hinge_column], base[:, self.cube_column]
            values = function_values(*at, self.hinge_knot, self.cube_knot, self.cube_end)
            mixed = np.concatenate([np.ones((len(base), 1)), base, values], axis=1) @ self._mixing
            away = base - self.center
            products = self.factor * away[:, self.first] * away[:, self.second]
            out[rows] = np.concatenate([mixed, products], axis=1)
        return out

    def slopes(self, j: int) -> FloatArray:
        """Derivatives of features by a column without products, (pieces, q); of a logarithm that at zero."""
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


class _Made(NamedTuple):
    """A feature of a column, and where its coefficients are."""

    feature: Feature
    j: int  # position of the column
    curves: Curves
    number: int = 0  # column of the mixing of the curves; zero if they have fewer


def _of_number(column: str, j: int, z: FloatArray, encoding: NumericEncoding) -> list[_Made]:
    """Features of a number: the straight one, and as many curved ones as the encoding may have."""
    curves = encoding.curves(z) if len(np.unique(z)) >= MIN_DISTINCT else STRAIGHT
    straight = Feature(column, (column,), (j,))
    if curves.log_scale is not None:
        straight = Feature(f"log({column})", (column,), (j,), "curve")
    numbers = range(1, encoding.n_curved + 1)
    curved = [Feature(f"{column}~{k}", (column,), (j,), "curve", curved=True) for k in numbers]
    return [_Made(feature, j, curves, k) for k, feature in enumerate([straight, *curved])]


class BasisModule(torch.nn.Module):
    """:meth:`Basis.transform` in torch, (n, p) -> (n, q) float64."""

    def __init__(self, basis: Basis) -> None:
        super().__init__()
        for item in fields(basis):
            value = getattr(basis, item.name)
            if isinstance(value, np.ndarray) and value.size:  # torch.export cannot save empty tensors
                self.register_buffer(item.name, torch.as_tensor(value))

    def forward(self, z: Tensor) -> Tensor:
        """Features of rows."""
        own, base = dict(self.named_buffers()), z
        if "log_column" in own:
            logged, scale = z[:, own["log_column"]], own["log_scale"]
            logs = torch.log1p(logged.clamp(min=0) / scale) + logged.clamp(max=0) / scale
            base = torch.cat([z, logs], dim=1)
        functions = [torch.ones_like(z[:, :1]), base]
        if "hinge_column" in own:
            functions.append((base[:, own["hinge_column"]] - own["hinge_knot"]).clamp(min=0))
        if "cube_column" in own:
            side = torch.minimum(base[:, own["cube_column"]], own["cube_end"]) - own["cube_knot"]
            functions.append(side.clamp(min=0) ** 3)
        mixed = torch.cat(functions, dim=1) @ own["mixing"]
        if "first" not in own:
            return mixed
        away = base - own["center"]
        return torch.cat([mixed, own["factor"] * away[:, own["first"]] * away[:, own["second"]]], dim=1)
