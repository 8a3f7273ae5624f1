"""Models of competing causes to compare with: Aalen and Johansen, models of each cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from sstorch import metrics
from sstorch._types import FloatArray
from sstorch.base import check_times
from sstorch.bench.baselines.base import Baseline, KaplanMeierBaseline
from sstorch.data import Schema, SurvivalData
from sstorch.metrics.incidence_evaluation import PredictsIncidence

# Of curves that end at zero.
_LEAST_SURVIVAL = 1e-12


@dataclass(frozen=True)
class StepIncidences:
    """Incidences that are steps."""

    jumps: FloatArray  # strictly increasing times, (n_jumps,)
    # incidences at the jumps, (n, K, n_jumps), from rows with the raw columns
    values: Callable[[object], FloatArray]

    def predict_cumulative_incidence(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Cumulative incidence of each cause at times >= 0, (n, K, n_times), in [0, 1], rising with t."""
        at = np.searchsorted(self.jumps, check_times(times), side="right")
        values = self.values(X)
        zero = np.zeros((*values.shape[:2], 1))
        return np.asarray(np.concatenate([zero, values], axis=2)[..., at])


def model_for(baseline: Baseline, data: SurvivalData) -> Baseline | AalenJohansen | CauseSpecific:
    """The model that a baseline of one event is for an outcome: with competing causes, one for each cause."""
    if data.outcome_type.causes is None:
        return baseline
    return AalenJohansen() if isinstance(baseline, KaplanMeierBaseline) else CauseSpecific(baseline)


@dataclass(frozen=True)
class AalenJohansen:
    """The estimate of Aalen and Johansen in the training rows, the same for all rows."""

    name: ClassVar[str] = "aalen_johansen"

    def check_rows(self, rows: SurvivalData) -> None:
        """Any rows with causes can be used."""
        rows.check_causes(True)

    def fit(self, train: SurvivalData, schema: Schema, seed: int = 0) -> PredictsIncidence:
        """Estimate the incidences; ``seed`` is not read."""
        jumps = train.event_times
        curves = metrics.aalen_johansen(train.weighted_y, jumps)

        def values(X: object) -> FloatArray:
            return np.broadcast_to(curves, (len(schema.frame_of(X)), *curves.shape))

        return StepIncidences(jumps, values)


@dataclass(frozen=True)
class CauseSpecific:
    """A survival model of each cause, the others being censored, put together to incidences.

    With cumulative hazards H_k = -log S_k of the models the causes share what S = exp(-sum H_k) loses at each
    time by their increments, so that incidences and S sum to one.

    References:
        Prentice and others (1978), "The analysis of failure times in the presence of competing risks",
        Biometrics 34, 541-554.
    """

    baseline: Baseline  # of the survival models, such as ``make_baseline("cox")``

    @property
    def name(self) -> str:
        """Of the survival models, and what is made of them."""
        return f"cause_specific_{self.baseline.name}"

    def check_rows(self, rows: SurvivalData) -> None:
        """Raise a DataError for rows that the model of each cause does not support."""
        self.baseline.check_rows(rows.of_cause(1))

    def fit(self, train: SurvivalData, schema: Schema, seed: int = 0) -> PredictsIncidence:
        """Fit a model of every cause."""
        jumps = train.event_times
        models = [self.baseline.fit(train.of_cause(name), schema, seed) for name in train.cause_names]

        def values(X: object) -> FloatArray:
            survival = np.stack([model.falling_curves(X, jumps) for model in models], axis=1)
            hazard = -np.log(np.maximum(survival, _LEAST_SURVIVAL))
            steps = np.diff(hazard, axis=2, prepend=0.0)
            lost = -np.diff(np.exp(-hazard.sum(axis=1)), axis=1, prepend=1.0)
            total = steps.sum(axis=1, keepdims=True)
            shares = np.divide(steps, total, out=np.zeros_like(steps), where=total > 0)
            return np.asarray(np.cumsum(shares * lost[:, None], axis=2))

        return StepIncidences(jumps, values)
