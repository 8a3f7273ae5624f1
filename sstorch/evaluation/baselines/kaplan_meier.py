"""Kaplan-Meier: the same curve for every row, what any model has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sstorch.data import Schema, SurvivalData
from sstorch.evaluation.baselines.base import Baseline, FloatArray
from sstorch.evaluation.baselines.step_curves import StepCurves
from sstorch.metrics.risk_sets import risk_sets


@dataclass(frozen=True)
class KaplanMeier(Baseline):
    """Kaplan-Meier estimate of all training rows, without features."""

    name: ClassVar[str] = "kaplan_meier"

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> StepCurves:
        sets = risk_sets(train.time, train.event)
        survival = np.cumprod(1.0 - sets.n_events / sets.at_risk)

        def values(X: object) -> FloatArray:
            return np.tile(survival, (len(schema.frame_of(X)), 1))

        return StepCurves(sets.times, values)
