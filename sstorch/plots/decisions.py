"""The figure of a decision curve."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from sstorch.exceptions import ConfigError
from sstorch.plots.figures import COLOURS, given_or_new

_COLUMNS = ("net_benefit", "treat_all", "treat_none")
# Of the height above 0, what is drawn below it: treating all falls without end.
_BELOW = 0.25


def plot_decision_curve(table: pd.DataFrame, ax: Axes | None = None, *, horizon: str = "") -> Axes:
    """Plot the decision curve: net benefit against the risk threshold, with treating all and treating none.

    The curve has gaps at undefined values. The axis ends at the highest threshold at which a row is treated.

    Args:
        table: a row per threshold, of :func:`sstorch.metrics.net_benefit`.
        ax: matplotlib axes; None for a new figure.
        horizon: time of the risk, such as "1500 days", for the axis label; "" for none.

    Raises:
        ConfigError: a column is missing.
    """
    if missing := [name for name in _COLUMNS if name not in table]:
        raise ConfigError(f"table lacks the columns {missing}; give that of metrics.net_benefit")
    ax = given_or_new(ax, 5.6, 4.2)
    if "n_above" in table and (table["n_above"] > 0).any():
        table = table.loc[: table.index[table["n_above"] > 0].max()]
    at = table.index.to_numpy()
    ax.plot(at, table["treat_all"], color="#8a8a8a", linewidth=1.5, label="treat all")
    ax.plot(at, table["treat_none"], color="#444444", linewidth=1.0, linestyle="--", label="treat none")
    ax.plot(at, table["net_benefit"], color=COLOURS[0], linewidth=2.0, label="treat by the model")
    top = max(float(table[["net_benefit", "treat_all"]].max().max()), 0.0) or 0.1
    ax.set(
        xlabel=f"threshold of the risk by {horizon}" if horizon else "threshold of the risk",
        ylabel="net benefit",
        xlim=(at.min(), at.max()) if at.size > 1 else None,
        ylim=(-_BELOW * top, 1.08 * top),
    )
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="upper right")
    return ax
