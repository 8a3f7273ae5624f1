"""Warnings of a fit: causes with few events, curves that are steps, separated rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from sstorch._types import FloatArray, IntArray
from sstorch.checks import names_text
from sstorch.data import Preprocessor, SurvivalData
from sstorch.data.design_matrix import DesignMatrix, RowFeatures
from sstorch.data.oddities import Oddity, few_events
from sstorch.fitted import FittedTree

# Survival of a row falls from .9 to .1 while time grows by less than this factor. The shape of such a Weibull
# leaf is above 32; survival times have 0.5 to 3.
_STEP = 1.1
# Deviations of features on [0, 1] and shares of eigenvalues that are rounding.
_ZERO, _SINGULAR = 1e-9, 1e-10
# Change of the linear predictor below which a row is not separated by a direction of length one.
_APART = 1e-6
# Rows that are numbers at once.
_ROWS = 2**14


def rare_causes(data: SurvivalData) -> list[Oddity]:
    """Causes that compete and have fewer than ten events, or fewer than encoded columns."""
    causes = () if data.causes is None else data.cause_names
    return [
        replace(each, text=f"cause {name}: {each.text}")
        for name in causes
        for each in few_events(data.frame, data.of_cause(name).event)
    ]


def step_curves(tree: FittedTree, x: RowFeatures, data: SurvivalData) -> list[Oddity]:
    """Leaves in which S(t | x) falls from .9 to .1 while t grows by less than 10 %.

    There the likelihood of training rows rewards every sharper step, and a new row off the step has a
    log-likelihood of minus millions. Unconstrained splines have no quantiles and are excluded.
    """
    if tree.can_rise:
        return []
    # One row represents its leaf: the others have its shape, or one near to it.
    leaves, first, place = np.unique(tree.leaf(x), return_index=True, return_inverse=True)
    early, late = (tree.quantile(x[first], q, extrapolate=True) for q in (0.1, 0.9))
    remedy = "leave columns out, or take a larger ridge"
    if tree.module.topology.depth:
        remedy = (
            "keep groups larger (min_leaf=0.1), share what leaves have in common (init='distilled', or "
            "ridge=0.1) or take a smaller depth"
        )
    rows, events = np.bincount(place), np.bincount(place, data.event).astype(int)
    return [
        Oddity(
            f"the curves of leaf {leaves[k]} ({rows[k]} rows, {events[k]} events) are steps, as if times of "
            "events were known to a tenth; new rows next to a step have almost no likelihood",
            remedy,
        )
        for k in np.flatnonzero(late < _STEP * early)
    ]


def separation(preprocessor: Preprocessor, x: RowFeatures, data: SurvivalData, curved: bool) -> list[Oddity]:
    """Name features, or columns together, that separate rows without an event from all events.

    In a direction of the coefficients in which the linear predictor of all events stays and that of some
    censored rows falls the likelihood grows without end: a level without events is the simplest case (Konis,
    2007, thesis, University of Oxford). Encoded rows x (n, p) are those of `data`; `curved` says that
    coefficients of curves have no penalty either.
    """
    features = preprocessor.leaf_features
    free = [
        k
        for k, feature in enumerate(features)
        if feature.columns != (preprocessor.offset,) and (curved or not feature.curved)
    ]
    matrix, first = DesignMatrix.of(x), x.shape[1] - len(features)

    def numbers(places: Sequence[int], rows: IntArray) -> FloatArray:
        chosen = [first + free[k] for k in places]
        return matrix.columns(chosen, torch.as_tensor(rows, device=matrix.device)).cpu().double().numpy()

    remedy = "use a ridge > 0 (penalties=Penalties() estimates it), merge levels, or leave columns out"
    found = []
    for name in data.cause_names if data.causes is not None else ("",):
        rows = data.of_cause(name) if data.causes is not None else data
        # 0 where the likelihood holds the linear predictor, 1 where it may fall, -1 where it may rise.
        side = np.where(rows.event, 0.0, 1.0)
        if rows.intervals is not None:
            side[rows.intervals.censored & (rows.intervals.lower == 0)] = -1.0
        for places, count in _separating(numbers, len(free), side):
            names = [features[free[k]].name for k in places]
            if len(places) > 1:
                names = list(dict.fromkeys(":".join(features[free[k]].columns) for k in places))
            of = f"cause {name}: " * bool(name)
            text = f"{of}{names_text(names)} separate{'s' * (len(names) == 1)} {count} rows without an event"
            found.append(Oddity(f"{text} from all events: no finite estimate exists", remedy))
    return found


def _separating(
    numbers: Callable[[Sequence[int], IntArray], FloatArray], p: int, side: FloatArray
) -> Iterator[tuple[list[int], int]]:
    """Features that separate rows, and how many rows; single features first.

    `numbers` gives some of p features of some rows; `side` (n,) is -1, 0 or 1.
    """
    known, open_rows, every = np.flatnonzero(side == 0), np.flatnonzero(side), range(p)
    if not len(known):
        return
    blocks = np.array_split(known, len(known) // _ROWS + 1)
    mean = sum(numbers(every, rows).sum(axis=0) for rows in blocks) / len(known)
    away = (numbers(every, rows) - mean for rows in blocks)
    gram = sum(part.T @ part for part in away) / len(known)
    constant = gram.diagonal() <= _ZERO**2
    # Of two indicators of a category that of the level without events comes first.
    for k in sorted(np.flatnonzero(constant).tolist(), key=lambda k: float(mean[k])):
        z = side[open_rows] * (numbers([k], open_rows)[:, 0] - mean[k])
        if (z >= -_ZERO).all() != (z <= _ZERO).all():
            yield [k], int((np.abs(z) > _ZERO).sum())
            open_rows = open_rows[np.abs(z) <= _ZERO]
    if len(known) <= p:
        return
    scale = np.where(constant, 1.0, np.sqrt(gram.diagonal()))
    values, axes = np.linalg.eigh(gram / scale / scale[:, None])
    null = axes[:, values <= _SINGULAR] / scale[:, None]
    blocks = np.array_split(open_rows, len(open_rows) // _ROWS + 1)
    z = np.concatenate([side[rows, None] * ((numbers(every, rows) - mean) @ null) for rows in blocks])
    while len(z):
        values, axes = np.linalg.eigh(z.T @ z)
        moving = axes[:, values > _SINGULAR * len(z)]  # the others move no row at all
        if not moving.shape[1]:
            return
        direction = moving @ _falling(z @ moving)
        moved = z @ direction
        if not (moved < -_APART).any():
            return
        size = np.abs(null @ direction) * scale
        yield np.flatnonzero(size > _APART * size.max()).tolist(), int((moved < -_APART).sum())
        z = z[moved >= -_APART]


def _falling(z: FloatArray) -> FloatArray:
    """Combination (k,) of columns of z (n, k) that is nowhere above zero, and as far below it as possible."""
    from scipy.optimize import linprog  # of separated rows alone

    rows = np.unique(z.round(9), axis=0)
    found = linprog(z.sum(axis=0), A_ub=rows, b_ub=np.full(len(rows), _ZERO), bounds=(-1.0, 1.0))
    return np.zeros(z.shape[1]) if found.x is None else np.asarray(found.x)
