"""Rows with their groups and outcomes, and the observed curve of a group, as figures draw them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_weight
from sstorch.data import Surv, outcome_of
from sstorch.exceptions import DataError
from sstorch.metrics import KaplanMeierBand
from sstorch.plots.figures import of_group


@dataclass(frozen=True)
class ObservedGroups:
    """Groups of n rows and their outcome; arrays are (n,). Times are those of `outcome`."""

    group: IntArray
    outcome: Surv  # as it was given
    known: Surv  # of any cause, with the weights
    time: FloatArray
    event: BoolArray
    entry: FloatArray
    weight: FloatArray  # one each if there are none

    @classmethod
    def of(
        cls,
        tree: object,
        group: npt.ArrayLike,
        y: object,
        sample_weight: npt.ArrayLike | None = None,
        method: str = "Kaplan-Meier",
    ) -> Self:
        """Check the outcome of rows, which must be of the type that `tree` was trained on.

        Weights are >= 0, (n,); None is those of ``y``, or one each. `method` names the estimate in messages.
        Raises DataError if outcomes are missing or of another kind, or weights wrong.
        """
        groups, outcome = np.asarray(group), outcome_of(tree, y)
        time, event, entry = outcome.right_censored(method)
        if len(time) != len(groups):
            raise DataError(f"X has {len(groups)} rows but y has {len(time)}; give one target for every row")
        given = check_weight(outcome.weight if sample_weight is None else sample_weight, len(time))
        weight = np.ones(len(time)) if given is None else given
        return cls(groups, outcome, outcome.any_cause().weighted(weight), time, event, entry, weight)

    @property
    def numbers(self) -> IntArray:
        """Groups that have rows of positive weight, increasing."""
        return np.unique(self.group[self.weight > 0])

    def rows(self, number: int) -> BoolArray:
        """Rows of a group that have a positive weight, shape (n,)."""
        return np.asarray((self.weight > 0) & (self.group == number))

    def band(self, number: int, level: float = 0.95) -> KaplanMeierBand:
        """Kaplan-Meier of a group with its confidence band."""
        return KaplanMeierBand.fit(self.known[self.rows(number)], level=level)

    def draw(self, ax: Axes, number: int, band: KaplanMeierBand, colour: str) -> float:
        """Draw the curve of a group in its band, as far as its rows were observed; its last value."""
        last = float(self.time[self.rows(number)].max())
        at = np.concatenate([[0.0], band.times, [last]])
        survival, lower, upper = band.at(at)
        band_of = of_group(number, band=True)
        ax.fill_between(at, lower, upper, step="post", color=colour, alpha=0.15, linewidth=0, gid=band_of)
        style: dict[str, Any] = {"drawstyle": "steps-post", "color": colour, "linewidth": 1.8}
        ax.plot(at, survival, label="Kaplan-Meier", gid=of_group(number), **style)
        return float(survival[-1])
