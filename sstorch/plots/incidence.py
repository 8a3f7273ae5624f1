"""Figure of competing causes: what happens to the subjects of each group."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from sstorch.data import outcome_of
from sstorch.deploy import Deployable
from sstorch.exceptions import DataError
from sstorch.metrics import aalen_johansen
from sstorch.plots.figures import (
    COLOURS,
    new_figure,
    of_group,
    survival_text,
    time_label,
    without_math,
)
from sstorch.plots.observed import ObservedGroups

# Inches: of a panel, and of the room for the legend above.
_WIDTH, _HEIGHT, _LEGEND = 3.0, 3.0, 0.55
_INK = "#222222"


def plot_incidence(
    tree: Deployable,
    X: object,
    y: object,
    time_unit: str | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> list[Axes]:
    """Draw stacked cumulative incidences of the causes, one panel per group.

    The height of a colour is the mean predicted incidence of a cause in the group; white is event-free
    survival. Lines are Aalen-Johansen estimates of the rows of the group. Lines that differ from the edges of
    the colours show lack of fit. The axis of time ends at the 95 % quantile of the times.

    Args:
        tree: fitted to competing causes.
        X: rows, preferably held-out rows: on training rows differences between groups are too large.
        y: outcome of the rows, as in ``fit``.
        time_unit: unit of time for the axis label; None for that of the training data.
        sample_weight: weights >= 0, (n,), for mean predictions and Aalen-Johansen estimates; None for the
            weights of ``y``, or 1. Counts of rows and events are not weighted.

    Returns:
        An axes for each group, in the order of their numbers.

    Raises:
        DataError: lengths of outcome and rows differ, or weights are invalid.
    """
    if outcome_of(tree, y).cause is None:
        raise DataError("y has no causes; give Surv(time, cause, causes=...)")
    observed = ObservedGroups.of(tree, tree.apply(X), y, sample_weight, "Aalen-Johansen")
    outcome, time, weight, cause = observed.outcome, observed.time, observed.weight, observed.outcome.cause
    assert cause is not None
    last = float(np.quantile(time[weight > 0], 0.95))
    grid = np.linspace(0.0, last, 121)
    predicted = tree.predict_cumulative_incidence(X, grid, after=0.0)
    rows = {number: observed.rows(number) for number in observed.numbers}
    means = {
        number: np.average(predicted[inside], axis=0, weights=weight[inside])
        for number, inside in rows.items()
    }
    numbers = sorted(rows)
    figure = new_figure(_WIDTH * len(numbers) + 0.5, _HEIGHT + _LEGEND, "constrained")
    panels = np.atleast_1d(figure.subplots(1, len(numbers), sharey=True))
    colours = COLOURS[: len(tree.causes_)]
    for ax, number in zip(panels, numbers, strict=True):
        inside = rows[number]
        ax.stackplot(grid, means[number], colors=colours, alpha=0.55, linewidth=0)
        seen = grid[grid <= time[inside].max()]
        incidence = aalen_johansen(outcome[inside], seen, sample_weight=weight[inside])
        style: dict[str, Any] = {
            "drawstyle": "steps-post",
            "color": _INK,
            "linewidth": 1.0,
            "gid": of_group(number),
        }
        for name, edge in zip(tree.causes_, np.cumsum(incidence, axis=0), strict=True):
            ax.plot(seen, edge, label=name, **style)
        ax.set(label="time stacked", gid=of_group(number))
        counts = [int((cause[inside] == k).sum()) for k in range(1, len(tree.causes_) + 1)]
        said = ", ".join(f"{count} {name}" for count, name in zip(counts, tree.causes_, strict=True))
        ax.set_title(f"group {number}: {inside.sum()} rows\n{said}", fontsize=9.5, parse_math=False)
        ax.set(xlim=(0, last), ylim=(0, 1), xlabel=time_label(tree, time_unit))
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=last > 10))
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        ax.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(survival_text(tree, "cumulative incidence, stacked"))
    handles = [
        *(
            Patch(color=colour, alpha=0.55, label=f"{name}, model")
            for colour, name in zip(colours, tree.causes_, strict=True)
        ),
        Line2D([], [], color=_INK, linewidth=1.0, label="Aalen-Johansen"),
    ]
    legend = figure.legend(
        handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=9.5
    )
    without_math(legend)
    return list(panels)
