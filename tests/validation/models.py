"""Models whose predictions are known, and rows of their distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sstorch import Surv

CAUSES = ("relapse", "death")


class Known:
    """Exponential times with hazard level x exp(slope x + noise z)."""

    time_unit_ = "years"

    def __init__(self, slope: float = 1.0, level: float = 1.0, noise: float = 0.0) -> None:
        self.slope, self.level, self.noise = slope, level, noise

    def hazard(self, X: pd.DataFrame) -> np.ndarray:
        score = self.slope * X["x"] + (self.noise * X["z"] if self.noise else 0.0)
        return self.level * np.exp(np.asarray(score))[:, None]

    def predict_survival_function(self, X: pd.DataFrame, times: Any) -> np.ndarray:
        return np.exp(-self.hazard(X) * np.asarray(times))


class KnownCauses(Known):
    """The same hazard of a first cause, and .4 of a second one."""

    def predict_cumulative_incidence(self, X: pd.DataFrame, times: Any) -> np.ndarray:
        one, other = self.hazard(X), 0.4
        ended = -np.expm1(-(one + other) * np.asarray(times))
        return np.stack([one / (one + other) * ended, other / (one + other) * ended], axis=1)


class Given:
    """Survival at one time, or the incidence of a cause, whatever the features are."""

    def __init__(self, values: np.ndarray, cause: int = 0) -> None:
        self.values = np.asarray(values)
        if cause:
            self.predict_cumulative_incidence = self._incidence
        else:
            self.predict_survival_function = self._survival
        self.cause = cause

    def _survival(self, X: Any, times: Any) -> np.ndarray:
        return np.repeat(self.values[:, None], len(times), axis=1)

    def _incidence(self, X: Any, times: Any) -> np.ndarray:
        found = np.zeros((len(self.values), 2, len(times)))
        found[:, self.cause - 1] = self.values[:, None]
        return found


def rows(n: int = 250, seed: int = 3, *, late: bool = False) -> tuple[pd.DataFrame, Surv]:
    """Rows of :class:`Known`, censored; with ``late`` two thirds of them from half of their time on."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    failed, left = rng.exponential(np.exp(-x)), rng.exponential(2.0, n)
    time = np.minimum(failed, left)
    entry = np.where(np.arange(n) % 3, 0.0, 0.5 * time) if late else None
    stage = np.where(rng.random(n) < 0.1, np.nan, 1.0)
    return pd.DataFrame({"x": x, "z": rng.normal(size=n), "stage": stage}), Surv(
        time, failed <= left, entry=entry
    )


def rows_of_causes(n: int = 250, seed: int = 5) -> tuple[pd.DataFrame, Surv]:
    """Rows of :class:`KnownCauses`, censored."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    ends = np.column_stack([rng.exponential(2.0, n), rng.exponential(np.exp(-x)), rng.exponential(2.5, n)])
    return pd.DataFrame({"x": x}), Surv(ends.min(axis=1), ends.argmin(axis=1), causes=CAUSES)
