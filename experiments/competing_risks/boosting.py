"""``SurvivalBoost`` of hazardous, as studies fit a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from hazardous import SurvivalBoost

from sstorch.bench.baselines.base import Encoder
from sstorch.data import Surv, SurvivalData


class Boosting:
    """Boosted trees that classify by time, with their own settings.

    References:
        Alberge, Maladiere, Grisel, Abecassis and Varoquaux (2025), "Survival models: proper scoring rule and
        stochastic optimization with competing risks", AISTATS.
    """

    def fit(self, X: pd.DataFrame, y: Surv) -> Boosting:
        """Fit the boosted trees."""
        train = SurvivalData(X, y)
        self.encoder = Encoder(train)
        self.model = SurvivalBoost(show_progressbar=False, random_state=0)
        self.model.fit(self.encoder.x, pd.DataFrame({"event": train.cause, "duration": train.time}))
        return self

    def predict_cumulative_incidence(self, X: object, times: Any) -> np.ndarray:
        """Cumulative incidence of each of K causes, (n, K, n_times)."""
        curves = np.asarray(self.model.predict_cumulative_incidence(self.encoder(X), times=np.asarray(times)))
        # The first one is the survival function; curves of single times can fall by a little.
        return np.maximum.accumulate(curves[:, 1:], axis=2)
