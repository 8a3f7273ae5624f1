"""Histories of subjects in several rows."""

import numpy as np
import numpy.typing as npt

from sstorch import Surv


def halved(y: Surv, share: float | npt.NDArray[np.float64] = 0.5) -> Surv:
    """Each row in two of its subject, cut at a share of its follow-up; the second ones follow all first."""
    start = np.zeros(len(y)) if y.entry is None else y.entry
    middle = start + share * (y.time - start)
    outcome = y.event if y.cause is None else y.cause
    return Surv(
        np.concatenate([middle, y.time]),
        np.concatenate([np.zeros_like(outcome), outcome]),
        entry=np.concatenate([start, middle]),
        id=np.tile(np.arange(len(y)), 2),
        causes=y.causes,
        weight=None if y.weight is None else np.tile(y.weight, 2),
    )
