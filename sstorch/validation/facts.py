"""What a model and rows tell of themselves, for the page and the checklist of a validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from sstorch._types import FloatArray
from sstorch.metrics import KaplanMeierBand
from sstorch.validation.measures import Predictions


@dataclass(frozen=True)
class Facts:
    """Facts of a validation.

    Attributes:
        model: class of the model.
        summary: what it says of itself, if it can: the lines of its ``summary()``.
        n_fitted: rows that it was fitted to, if it knows.
        columns: names of the features that it was given.
        missing: share of missing cells of each column that has some.
        n_rows: of the validation.
        n_events: of all of follow-up.
        n_by_horizon: events up to the horizon.
        n_followed: rows still followed at the horizon.
        follow_up: median by reverse Kaplan-Meier; infinite where it is not reached.
        last_time: the longest observed.
        horizon: of the predictions.
        thresholds: of the risk, increasing.
        time_unit: of all times, or "".
        n_resamples: of the bootstrap.
        confidence: of the limits.
        random_state: seed of the bootstrap.
    """

    model: str
    summary: str
    n_fitted: int | None
    columns: tuple[str, ...]
    missing: dict[str, float]
    n_rows: int
    n_events: int
    n_by_horizon: int
    n_followed: int
    follow_up: float
    last_time: float
    horizon: float
    thresholds: tuple[float, ...]
    time_unit: str
    n_resamples: int
    confidence: float
    random_state: int

    @classmethod
    def of(
        cls,
        model: Any,
        X: Any,
        rows: Predictions,
        thresholds: FloatArray,
        time_unit: str | None,
        n_resamples: int,
        confidence: float,
        random_state: int,
    ) -> Self:
        """Ask the model and the rows."""
        # Arrays of text and numbers have cells of any kind; frames of other libraries are read as arrays.
        frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))
        share = frame.isna().mean()
        summary = getattr(model, "summary", None)
        told = summary() if callable(summary) else None
        n_fitted = getattr(model, "n_samples_fit_", None)
        if rows.event.all():
            follow_up = float("inf")
        else:
            follow_up = float(KaplanMeierBand.fit((rows.time, ~rows.event)).quantile().value)
        return cls(
            model=type(model).__name__,
            summary=told if isinstance(told, str) else "",
            n_fitted=None if n_fitted is None else int(n_fitted),
            columns=tuple(map(str, getattr(X, "columns", frame.columns))),
            missing={str(name): float(part) for name, part in share.items() if part > 0},
            n_rows=rows.time.size,
            n_events=int(rows.event.sum()),
            n_by_horizon=int((rows.event & (rows.time <= rows.horizon)).sum()),
            n_followed=int((rows.time > rows.horizon).sum()),
            follow_up=follow_up,
            last_time=float(rows.time.max()),
            horizon=rows.horizon,
            thresholds=tuple(thresholds.tolist()),
            time_unit=time_unit or "",
            n_resamples=n_resamples,
            confidence=confidence,
            random_state=random_state,
        )

    def with_unit(self, time: float) -> str:
        """A time and its unit."""
        return f"{time:.4g} {self.time_unit}".rstrip()

    @property
    def at_horizon(self) -> str:
        """The horizon and its unit."""
        return self.with_unit(self.horizon)

    @property
    def missing_text(self) -> str:
        """Shares of missing cells in words."""
        if not self.missing:
            return "no cell of a predictor is missing"
        return "missing: " + ", ".join(f"{name} {100 * share:.1f} %" for name, share in self.missing.items())
