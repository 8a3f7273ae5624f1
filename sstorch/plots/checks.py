"""Figure of the checks of a regression."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure
from scipy.stats import chi2

from sstorch.checks import check_choice
from sstorch.plots.figures import COLOURS, time_label, without_math

# Contrasts that are shown, and the change of an estimate in standard errors that is marked.
_CONTRASTS, _MARK = 12, 0.5
# Features whose effects over time are shown.
_FEATURES = 3


def plot_check(
    risk_groups: pd.DataFrame,
    influence: pd.DataFrame,
    effects: pd.DataFrame,
    cause: str | None = None,
    time_unit: str | None = None,
) -> Figure:
    """Plot calibration by predicted risk, the most influential rows, and effects over time.

    Left: observed / expected events per risk group, with 95 % Poisson limits. Middle: for each coefficient,
    the largest change by one row, with its label. Right: the features with the largest changes of effect over
    time, in standard errors, with limits of two standard errors.

    Args:
        risk_groups: ``risk_groups`` of :func:`sstorch.validation.check`.
        influence: ``influence`` of the same result.
        effects: ``effects`` of the same result.
        cause: competing cause; None for the first.
        time_unit: unit of time for the axis label.

    Raises:
        ConfigError: unknown cause.
    """
    causes = risk_groups.index.get_level_values("cause").unique().tolist()
    if cause is not None:
        check_choice(cause, "cause", causes)
    groups = risk_groups.xs(cause or causes[0], level="cause")
    rows = influence.xs(cause or causes[0], level="cause")
    rows = rows.loc[rows["change"].abs().sort_values(ascending=False).index[:_CONTRASTS]][::-1]
    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(13.0, 3.6), layout="constrained")
    events, expected = groups["events"].to_numpy(), groups["expected"].to_numpy()
    lower = np.where(events > 0, chi2.ppf(0.025, np.maximum(2 * events, 1e-9)) / 2, 0.0) / expected
    upper = chi2.ppf(0.975, 2 * events + 2) / 2 / expected
    ratio = groups["ratio"].to_numpy()
    left.errorbar(groups.index, ratio, [ratio - lower, upper - ratio], fmt="o", color=COLOURS[0], capsize=2)
    left.axhline(1.0, color="#9a9a9a", linewidth=0.8)
    left.set_xlabel("group of predicted risk, from low to high", fontsize=9)
    left.set_ylabel("observed / expected events, 95 % limits", fontsize=9)
    names = [f"{term} {contrast}" for term, contrast in rows.index]
    change = rows["change"].to_numpy()
    places, colours = range(len(names)), [COLOURS[1] if abs(v) > _MARK else COLOURS[0] for v in change]
    middle.barh(places, change, color=colours)
    middle.set_yticks(places, names, parse_math=False)
    for place, (label, value) in enumerate(zip(rows["row"], change, strict=True)):
        side = "left" if value > 0 else "right"
        middle.annotate(f" {label} ", (value, place), va="center", ha=side, fontsize=8, parse_math=False)
    middle.margins(x=0.15)
    middle.axvline(0.0, color="#9a9a9a", linewidth=0.8)
    middle.tick_params(labelsize=8)
    marked = f"orange above {_MARK:g}; its label at the bar"
    middle.set_xlabel(f"largest change by one row, standard errors\n({marked})", fontsize=9)
    own = effects.xs(cause or causes[0], level="cause")
    size = (own["change"] / own["standard error"]).pow(2).groupby(level="feature").sum()
    for number, name in enumerate(size.sort_values(ascending=False).index[:_FEATURES]):
        part = own.xs(name, level="feature")
        right.errorbar(
            part["time"] * (1 + 0.01 * number),
            part["change"],
            2 * part["standard error"],
            fmt="o-",
            color=COLOURS[number],
            linewidth=1.0,
            markersize=3,
            label=name,
        )
    right.axhline(0.0, color="#9a9a9a", linewidth=0.8)
    right.set_xlabel(time_label(None, time_unit), fontsize=9)
    right.set_ylabel("effect at a time minus that of the model,\nper standard deviation", fontsize=9)
    without_math(right.legend(fontsize=8, frameon=False, title="± 2 standard errors", title_fontsize=8))
    for ax, title in ((left, "calibration"), (middle, "influence"), (right, "effects over time")):
        ax.set_title(title, fontsize=10, loc="left")
    return figure
