"""Leaves whose curves are steps: what is left of a regression that has as many coefficients as rows."""

from __future__ import annotations

import numpy as np

from sstorch.data import SurvivalData
from sstorch.data.coded import RowFeatures
from sstorch.data.oddities import Oddity
from sstorch.fitted.tree import FittedTree

# Survival of a row falls from .9 to .1 while time grows by less than this factor. The shape of such a Weibull
# leaf is above 32; survival times have 0.5 to 3.
_STEP = 1.1


def step_curves(tree: FittedTree, x: RowFeatures, data: SurvivalData) -> list[Oddity]:
    """Leaves in which S(t | x) falls from .9 to .1 while t grows by less than 10 %.

    Where a leaf has hardly more events than features, its regression fits each of their times, and nothing
    but the ridge keeps the shape from growing: the likelihood of the training rows rewards every sharper
    step. A new row off the step then has a log-likelihood of minus millions. Unconstrained splines have no
    quantiles and are excluded. Encoded rows x (n, p) are those of `data`, by which the tree was trained.
    """
    if tree.module.family.can_rise:
        return []
    # One row represents its leaf: the others have its shape, or one near to it.
    leaves, first, place = np.unique(tree.leaf(x), return_index=True, return_inverse=True)
    early, late = (tree.quantile(x[first], q, extrapolate=True) for q in (0.1, 0.9))
    remedy = "leave columns out, or take a larger ridge"
    if tree.module.topology.depth:
        remedy = (
            "keep groups larger (min_leaf=0.1), share what leaves have in common (init='distilled', or "
            "fused=0.1) or take a smaller depth"
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
