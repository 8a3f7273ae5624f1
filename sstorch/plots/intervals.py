"""Figure of predicted curves with confidence limits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from sstorch.exceptions import ConfigError
from sstorch.inference import Intervals
from sstorch.plots.figures import COLOURS, given_or_new


def plot_intervals(
    found: Intervals,
    labels: Sequence[str] | None = None,
    cause: str | None = None,
    time_unit: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw predicted curves, or differences of them, with their confidence limits.

    Args:
        found: of :func:`sstorch.inference.predict` or :func:`sstorch.validation.contrast`, with times.
        labels: of the rows; their index if None.
        cause: where causes compete, the one that is drawn; the first if None.
        time_unit: for the label of the axis.
        ax: to draw on; new ones if None.

    Raises:
        ConfigError: there are no times, more rows than colours, another number of labels, or no such cause.
    """
    if found.times is None:
        raise ConfigError("plot_intervals draws curves: predict with times=...")
    names = [str(each) for each in found.index] if labels is None else list(labels)
    if len(names) != len(found.estimate) or len(names) > len(COLOURS):
        raise ConfigError(
            f"labels must name {len(found.estimate)} rows, at most {len(COLOURS)}, got {len(names)}"
        )
    parts = [found.estimate, found.lower, found.upper]
    if found.causes:
        if cause is not None and cause not in found.causes:
            raise ConfigError(f"cause must be one of {', '.join(found.causes)}, got {cause!r}")
        place = 0 if cause is None else found.causes.index(cause)
        parts = [part[:, place] for part in parts]
    ax, order = given_or_new(ax), np.argsort(found.times)
    for name, colour, estimate, lower, upper in zip(names, COLOURS, *parts, strict=False):
        ax.fill_between(found.times[order], lower[order], upper[order], color=colour, alpha=0.2, linewidth=0)
        ax.plot(found.times[order], estimate[order], color=colour, label=name)
    whose = f" of {cause or found.causes[0]}" if found.causes else ""
    kind = "simultaneous " if found.simultaneous else ""
    ax.set_xlabel(time_unit or "time")
    ax.set_ylabel(f"{found.what}{whose}, {100 * found.level:.4g} % {kind}confidence limits", fontsize=9)
    if found.what.startswith("difference"):
        ax.axhline(0.0, color="#9a9a9a", linewidth=0.8)
    else:
        ax.set_ylim(0.0, 1.0)
    ax.legend(frameon=False, fontsize=9)
    return ax
