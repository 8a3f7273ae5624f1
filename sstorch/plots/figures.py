"""New figures, colours, the axis of time, and rows with their groups and outcomes as figures draw them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patheffects import Normal, Stroke

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_same_order, check_weight
from sstorch.data import Surv
from sstorch.data.surv import outcome_of
from sstorch.data.time_unit import CONSTANT_COVARIATES
from sstorch.exceptions import DataError
from sstorch.metrics import KaplanMeier

COLOURS = ("#3b6fb6", "#d1603d", "#4a9a5b", "#8e5ea2", "#c9a227", "#56a3a6", "#b5495b", "#6b6b6b")


def new_figure(width: float, height: float, layout: str | None = None) -> Figure:
    """A figure of pyplot, in inches: a notebook shows it after the cell, a script with ``plt.show()``."""
    # Where figures are only written, such as in a report, pyplot would keep them all.
    from matplotlib import pyplot

    return pyplot.figure(figsize=(width, height), layout=layout)


def detached(axes: Sequence[Axes]) -> Figure:
    """The root figure of axes that were drawn on a new one, which pyplot then drops: it is only written."""
    from matplotlib import pyplot

    figure = axes[0].get_figure(root=True)
    assert isinstance(figure, Figure)
    pyplot.close(figure)
    return figure


def given_or_new(ax: Axes | None, width: float = 6.0, height: float = 4.0) -> Axes:
    """The axes, or those of a new figure, in inches, if there are none."""
    return new_figure(width, height, "constrained").subplots() if ax is None else ax


def without_math(legend: Legend) -> None:
    """Print the names in a legend as they are: two dollar signs are no formula."""
    for text in legend.get_texts():
        text.set_parse_math(False)


def outlined(line: Line2D, width: float) -> None:
    """Give a line a white edge of a width, in points."""
    line.set_path_effects([Stroke(linewidth=width, foreground="white"), Normal()])


def survival_text(tree: object, text: str) -> str:
    """A text on survival from time zero, with the condition under which one row determines it."""
    return f"{text}\n{CONSTANT_COVARIATES}" if getattr(tree, "time_varying_", False) else text


def time_label(tree: object, time_unit: str | None) -> str:
    """Label of the axis of time, with the unit that is given, or else that of the tree, if it is known."""
    time_unit = time_unit or getattr(tree, "time_unit_", None)
    return f"time ({time_unit})" if time_unit else "time"


def colour_of(group: int) -> str:
    """Colour of a group, by its number from 1."""
    return COLOURS[(group - 1) % len(COLOURS)]


def dark(colour: str) -> tuple[float, float, float]:
    """A darker shade of a colour, for texts and for lines over bands."""
    red, green, blue = (0.6 * part for part in to_rgb(colour))
    return red, green, blue


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
        sample_weight: npt.ArrayLike | None = None,  # that of `y`, or one each
        method: str = "Kaplan-Meier",  # the estimate, in messages
        X: object = None,  # rows whose labels must be those of `y`
    ) -> Self:
        """Outcome of rows with weights (n,) >= 0; DataError: not of the type that `tree` was trained on."""
        groups, outcome = np.asarray(group), outcome_of(tree, y)
        check_same_order(X=X, y=outcome, sample_weight=sample_weight)
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

    def band(self, number: int, level: float = 0.95) -> KaplanMeier:
        """Kaplan-Meier of a group with its confidence band."""
        return KaplanMeier.fit(self.known[self.rows(number)], level=level)

    def draw(self, ax: Axes, number: int, band: KaplanMeier, colour: str) -> float:
        """Draw the curve of a group in its band, as far as its rows were observed; its last value."""
        last = float(self.time[self.rows(number)].max())
        at = np.concatenate([[0.0], band.times, [last]])
        survival, lower, upper = band.limits(at)
        ax.fill_between(at, lower, upper, step="post", color=colour, alpha=0.15, linewidth=0)
        ax.plot(at, survival, label="Kaplan-Meier", drawstyle="steps-post", color=colour, linewidth=1.8)
        return float(survival[-1])
