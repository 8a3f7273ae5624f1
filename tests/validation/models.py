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
        self.values, self.cause = np.asarray(values), cause
        setattr(self, "predict_cumulative_incidence" if cause else "predict_survival_function", self._curves)

    def _curves(self, X: Any, times: Any) -> np.ndarray:
        curves = np.repeat(self.values[:, None, None], len(times), axis=2)
        return curves * (np.arange(1, 3) == self.cause)[:, None] if self.cause else curves[:, 0]


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
