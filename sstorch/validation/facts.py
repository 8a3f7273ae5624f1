"""Facts of a model and of the rows of its validation, for the page and the checklist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from sstorch._types import FloatArray
from sstorch.data.time_unit import duration
from sstorch.metrics.follow_up import median_follow_up
from sstorch.metrics.horizon_rows import HorizonRows
from sstorch.validation.predicting import Cohort

APPARENT = (
    "Apparent: these are the training rows, on which the model looks better than on others. Validate on "
    "other rows, or correct for optimism by n_refits=100"
)


@dataclass(frozen=True)
class Facts:
    """Facts of a validation."""

    model: str  # class of the model
    summary: str  # the lines of its ``summary()``, if it has one
    n_fitted: int | None  # rows that it was fitted to, if recorded
    columns: tuple[str, ...]  # names of the features that it was given
    missing: dict[str, float]  # share of missing cells of each column that has some
    n_rows: int  # of the validation; from a landmark on those at risk then
    n_subjects: int  # of these rows
    n_events: int  # of all of follow-up, of any cause
    n_by_horizon: int  # events up to the horizon
    events: dict[str, int]  # of each cause up to the horizon, by name; empty for one event
    n_followed: int  # rows still followed at the horizon
    follow_up: float  # median by reverse Kaplan-Meier; infinite where it is not reached
    last_time: float  # the longest observed
    horizon: float  # of the predictions
    thresholds: tuple[float, ...]  # of the risk, increasing
    time_unit: str  # of all times, or ""
    n_resamples: int  # of the bootstrap
    level: float  # of the limits
    random_state: int  # seed of the bootstrap
    after: float | None = None  # landmark from which times count; None for time zero
    late: bool = False  # whether rows entered after time zero
    weighted: bool = False  # whether rows have uneven weights
    apparent: bool = False  # whether the rows are those that the model was trained on

    @classmethod
    def of(
        cls,
        model: Any,
        cohort: Cohort,
        parts: Mapping[str, HorizonRows],
        thresholds: FloatArray,
        time_unit: str | None,
        n_resamples: int,
        level: float,
        random_state: int,
        apparent: bool = False,
    ) -> Self:
        """Ask the model and the rows."""
        X, rows = cohort.X, next(iter(parts.values()))
        # Arrays of text and numbers have cells of any kind; frames of other libraries are read as arrays.
        frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))
        share = frame.isna().mean()
        summary = getattr(model, "summary", None)
        text = summary() if callable(summary) else None
        n_fitted = getattr(model, "n_samples_fit_", None)
        seen = rows.time <= rows.t
        return cls(
            model=type(model).__name__,
            summary=text if isinstance(text, str) else "",
            n_fitted=None if n_fitted is None else int(n_fitted),
            columns=tuple(map(str, getattr(X, "columns", frame.columns))),
            missing={str(name): float(part) for name, part in share.items() if part > 0},
            n_rows=len(rows),
            n_subjects=rows.n_subjects,
            n_events=int(rows.event.sum()),
            n_by_horizon=int((rows.event & seen).sum()),
            events={name: int((part.interest & seen).sum()) for name, part in parts.items() if name},
            n_followed=int((~seen).sum()),
            follow_up=median_follow_up(rows.y).value,
            last_time=float(rows.time.max()),
            horizon=rows.t,
            thresholds=tuple(thresholds.tolist()),
            time_unit=time_unit or "",
            n_resamples=n_resamples,
            level=level,
            random_state=random_state,
            after=cohort.after,
            late=rows.entry is not None,
            weighted=rows.weight is not None,
            apparent=apparent,
        )

    def with_unit(self, time: float) -> str:
        """A time and its unit."""
        return duration(time, self.time_unit)

    @property
    def at_horizon(self) -> str:
        """The horizon and its unit, from the landmark on if there is one."""
        if self.after is None:
            return self.with_unit(self.horizon)
        return f"{self.with_unit(self.horizon)} after {self.with_unit(self.after)}"

    @property
    def rows_text(self) -> str:
        """Numbers of rows, subjects and events, and what kind of data they are."""
        rows = (
            f"{self.n_rows} participants"
            if self.n_subjects == self.n_rows
            else (f"{self.n_subjects} participants with {self.n_rows} rows")
        )
        by_cause = ", ".join(f"{count} {name}" for name, count in self.events.items())
        causes = f" ({by_cause})" if by_cause else ""
        kinds = [
            f"at risk at {self.with_unit(self.after)} and followed from there"
            if self.after is not None
            else "",
            "left truncation" if self.late else "",
            "weighted" if self.weighted else "",
        ]
        kind = "; ".join(name for name in kinds if name)
        rows = f"apparent validation, on the training rows: {rows}" if self.apparent else rows
        text = (
            f"{rows}, {self.n_events} events, {self.n_by_horizon} of them up to {self.at_horizon}{causes}, "
            f"{self.n_followed} followed beyond"
        )
        return f"{text}; {kind}" if kind else text

    @property
    def missing_text(self) -> str:
        """Shares of missing cells in words."""
        if not self.missing:
            return "no cell of a predictor is missing"
        return "missing: " + ", ".join(f"{name} {100 * share:.1f} %" for name, share in self.missing.items())
