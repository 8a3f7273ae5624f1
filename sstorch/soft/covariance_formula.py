"""Covariance of the parameters of a patient's hazards, as a formula of the columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.deploy.derivative import balanced_sum, dot, product
from sstorch.deploy.expression import Expression, as_expression, let, where
from sstorch.inference.covariance import OUTSIDE, HazardCovariance


def parameter_covariance(
    hazard: HazardCovariance,
    features: Sequence[Expression],
    choose: Callable[[FloatArray], Expression],
    n_shapes: int,
) -> list[list[Expression]]:
    """Covariance of the linear predictor and the m shape parameters of a row, (1 + m, 1 + m).

    The parameters are combinations c of the coefficients, and L L' is the covariance of these with a
    triangular L: (L' c)' (L' c) keeps the digits that c' L L' c may lose, and L has half as many numbers as
    other factors. It is NaN if the training rows do not determine the linear predictor. `features` (p,) are
    those of the leaves; `choose` takes the value of the row's leaf among those of all.
    """
    p, maps = len(features), hazard.by_group[hazard.groups].numpy()
    rows = [as_expression(1.0), *features]

    def combination(places: Sequence[int]) -> list[Expression]:
        """How the coefficients enter what is constant, and the features that follow."""
        chosen = maps[:, places]
        used = [np.flatnonzero(chosen[:, :, j].any(axis=0)) for j in range(maps.shape[2])]
        return [
            balanced_sum([product(choose(chosen[:, k, j]), rows[k]) for k in own])
            for j, own in enumerate(used)
        ]

    combinations = [combination([p, *range(p)])]
    for k in range(n_shapes):
        start = p + 1 + n_shapes + k * p
        slopes = range(start, start + p) if maps.shape[1] > start else ()
        combinations.append(combination([p + 1 + k, *slopes]))
    # Shape parameters have the last coefficients: with these first few columns of L have to do with them.
    factor = torch.linalg.qr(hazard.root.flip(0).mT).R.mT.flip(0)
    moves = [_times(each, factor) for each in combinations]
    spread = [[dot(x, y) for y in moves] for x in moves]
    if hazard.null.shape[1]:
        outside, linear = _times(combinations[0], hazard.null), combinations[0]
        unseen = dot(outside, outside) > OUTSIDE**2 * dot(linear, linear)
        spread[0][0] = where(unseen, math.nan, spread[0][0])
    size = range(1 + n_shapes)
    return [[let("covariance", spread[min(i, j)][max(i, j)]) for j in size] for i in size]


def _times(vector: Sequence[Expression], matrix: Tensor) -> list[Expression]:
    """Expressions (D,) times numbers (D, r)."""
    return [dot([*map(as_expression, column)], vector) for column in matrix.mT.tolist()]
