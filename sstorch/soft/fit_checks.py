"""Warnings of a fit: causes with few events, separated rows."""

from __future__ import annotations

import numpy as np

from sstorch.data import Preprocessor, SurvivalData
from sstorch.data.design_matrix import DesignMatrix, RowFeatures
from sstorch.data.oddities import few_events

# Deviations of features on [0, 1] that are rounding.
_ZERO = 1e-9


def rare_causes(data: SurvivalData) -> list[str]:
    """Causes that compete and have fewer than ten events, or fewer than encoded columns."""
    causes = () if data.causes is None else data.cause_names
    return [
        f"cause {name}: {text}"
        for name in causes
        for text in few_events(data.frame, data.of_cause(name).event)
    ]


def separation(preprocessor: Preprocessor, x: RowFeatures, data: SurvivalData) -> list[str]:
    """Name features that separate rows without an event from all events: their estimates are infinite."""
    # They are constant among the events and to one side of it in some censored rows, such as a level without
    # events. Features of curves have a penalty of their own.
    features, matrix = preprocessor.leaf_features, DesignMatrix.of(x)
    first = x.shape[1] - len(features)
    remedy = "use a ridge > 0 (penalties=Penalties() estimates it), merge levels, or leave columns out"
    found = []
    for name in data.cause_names if data.causes is not None else ("",):
        rows = data.of_cause(name) if data.causes is not None else data
        # 0 where the likelihood holds the linear predictor, 1 where it may fall, -1 where it may rise.
        side = np.where(rows.event, 0.0, 1.0)
        if rows.intervals is not None:
            side[rows.intervals.censored & (rows.intervals.lower == 0)] = -1.0
        events, separating = side == 0, []
        for k, feature in enumerate(features if events.any() else ()):
            if feature.curved or feature.columns == (preprocessor.offset,):
                continue
            column = matrix.columns([first + k]).cpu().double().numpy()[:, 0]
            level = column[events].mean()
            z = side * (column - level)
            if np.ptp(column[events]) <= _ZERO and (z >= -_ZERO).all() != (z <= _ZERO).all():
                separating.append((level, feature.name, np.abs(z) > _ZERO))
        separated = np.zeros(len(rows), dtype=bool)
        # Of two indicators of a category that of the level without events comes first.
        for _, feature_name, moved in sorted(separating, key=lambda each: each[0]):
            if count := int((moved & ~separated).sum()):
                separated |= moved
                of = f"cause {name}: " * bool(name)
                text = f"{of}{feature_name!r} separates {count} rows without an event from all events"
                found.append(f"{text}: no finite estimate exists: {remedy}")
    return found
