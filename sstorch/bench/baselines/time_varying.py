"""Cox regression of rows with a beginning and an end, by lifelines."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from sstorch._types import FloatArray
from sstorch.bench.baselines.base import LIFELINES, Baseline, Encoder, StepCurves
from sstorch.data import Schema, SurvivalData
from sstorch.exceptions import TrainingError


@dataclass(frozen=True)
class CoxTimeVarying(Baseline):
    """``CoxTimeVaryingFitter``: rows of subjects, each at risk from its entry to its time; Efron's ties.

    A curve is that of a subject whose covariates stay as they are from time zero.
    """

    name: ClassVar[str] = "cox_time_varying"
    packages: ClassVar = (LIFELINES,)
    knows: ClassVar = ("entry",)
    # Without any penalty the coefficients of all categories of a column are not determined.
    ranges: ClassVar = {"penalizer": (1e-8,)}

    # ridge, relative to the mean log-likelihood, on coefficients of features on [0, 1]
    penalizer: float = 0.01

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> StepCurves:
        from lifelines import CoxTimeVaryingFitter
        from lifelines.exceptions import ConvergenceError

        encoder = Encoder(schema, train)
        names = [f"x{j}" for j in range(encoder.x.shape[1])]
        frame = pd.DataFrame(encoder.x, columns=names).assign(
            id=np.arange(len(train)) if train.subject is None else train.subject,
            start=train.entry,
            stop=train.time,
            event=train.event.astype(int),
        )
        fitter = CoxTimeVaryingFitter(penalizer=self.penalizer)
        try:
            with warnings.catch_warnings():
                # Of rare categories, and of standard errors, which are not used.
                warnings.simplefilter("ignore")
                fitter.fit(frame, id_col="id", event_col="event", start_col="start", stop_col="stop")
        except (ConvergenceError, np.linalg.LinAlgError) as error:
            raise TrainingError(
                f"the Cox regression does not converge; give a larger penalizer than {self.penalizer:g}"
            ) from error
        baseline = fitter.baseline_cumulative_hazard_.iloc[:, 0]
        jumps, hazard = baseline.index.to_numpy(dtype=np.float64), baseline.to_numpy()

        def values(X: object) -> FloatArray:
            risk = fitter.predict_partial_hazard(pd.DataFrame(encoder(X), columns=names)).to_numpy()
            return np.asarray(np.exp(-risk[:, None] * hazard))

        return StepCurves(jumps, values)
