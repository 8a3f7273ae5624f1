"""Warnings of a fit: causes with few events, separated rows."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from sstorch._types import BoolArray, FloatArray
from sstorch.data import Preprocessor, SurvivalData
from sstorch.data.design_matrix import DesignMatrix, RowFeatures
from sstorch.data.oddities import few_events

# Deviations of features on [0, 1] that are rounding, alone and after linear programming.
_ZERO, _MOVED = 1e-9, 1e-6


def rare_causes(data: SurvivalData) -> list[str]:
    """Causes that compete and have fewer than ten events, or fewer than encoded columns."""
    causes = () if data.causes is None else data.cause_names
    return [
        f"cause {name}: {text}"
        for name in causes
        for text in few_events(data.frame, data.of_cause(name).event)
    ]


def separation(preprocessor: Preprocessor, x: RowFeatures, data: SurvivalData, rough: bool) -> list[str]:
    """Name features without a penalty that separate rows without an event from all events.

    Their estimates are infinite: they are constant among the events and to one side of it in some censored
    rows, such as a level without events. ``rough`` is whether curves have no penalty either.
    """
    matrix, blocks = DesignMatrix.of(x), dict[str, list[int]]()
    first = x.shape[1] - len(preprocessor.leaf_features)
    curves = {feature.columns for feature in preprocessor.leaf_features if feature.curved}
    for k, feature in enumerate(preprocessor.leaf_features, first):
        if feature.columns in curves and feature.kind != "product" and rough:
            blocks.setdefault(feature.columns[0], []).append(k)
        elif not feature.curved and feature.columns != (preprocessor.offset,):
            blocks[feature.name] = [k]
    remedy = "use penalties > 0 (penalties=Penalties() estimates them), merge levels, or leave columns out"
    found = []
    for name in data.cause_names if data.causes is not None else ("",):
        rows = data.of_cause(name) if data.causes is not None else data
        # 0 where the likelihood holds the linear predictor, 1 where it may fall, -1 where it may rise.
        side = np.where(rows.event, 0.0, 1.0)
        if rows.intervals is not None:
            side[rows.intervals.censored & (rows.intervals.lower == 0)] = -1.0
        separating = []
        for block, places in blocks.items() if not side.all() else ():
            features = matrix.columns(places).cpu().double().numpy()
            separating.append((features[side == 0].mean(), block, _separated(features, side)))
        separated = np.zeros(len(rows), dtype=bool)
        # Of two indicators of a category that of the level without events comes first.
        for _, block, moved in sorted(separating, key=lambda each: each[0]):
            if count := int((moved & ~separated).sum()):
                separated |= moved
                of = f"cause {name}: " * bool(name)
                text = f"{of}{block!r} separates {count} rows without an event from all events"
                found.append(f"{text}: no finite estimate exists: {remedy}")
    return found


def _separated(features: FloatArray, side: FloatArray) -> BoolArray:
    """Rows with one sign in a combination of features (n, k) that is zero where `side` is 0, the events."""
    x = np.column_stack([np.ones(len(side)), features])
    _, size, axes = np.linalg.svd(np.linalg.qr(x[side == 0], mode="r"))
    moved = side[:, None] * (x @ axes[np.count_nonzero(size > _ZERO * size[0]) :].T)
    if moved.shape[1] == 0:
        return np.zeros(len(side), dtype=bool)
    best = linprog(-moved.sum(0), A_ub=-moved, b_ub=np.zeros(len(moved)), bounds=(-1, 1)).x
    return np.asarray(moved @ best > _MOVED)
