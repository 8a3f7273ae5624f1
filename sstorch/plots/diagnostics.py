"""How a tree was trained, how sharply it routes, how well its predictions are calibrated."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sstorch.exceptions import ConfigError, DataError
from sstorch.plots.survival_curves import COLOURS


def plot_objective(macro_iterations: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Training objective by macro iteration, one line a start; the one that ends lowest on top.

    Args:
        macro_iterations: columns ``problem``, ``macro_iteration`` and ``objective``, and ``dropped`` where
            starts left a race: ``tree.history_.macro_iterations``, or those of a whole batch.
        ax: axes to draw on; of a new figure if None.

    Raises:
        DataError: there are no records, as in a tree that was loaded.
    """
    if macro_iterations.empty:
        raise DataError("no macro iterations were recorded: a loaded tree has no history, fit it anew")
    ax = _axes(ax)
    ends = macro_iterations.groupby("problem")["objective"].last().astype(float)
    best = ends.idxmin()
    for number, own in macro_iterations.groupby("problem"):
        is_best = number == best
        dropped = "dropped" in own and bool(own["dropped"].astype(bool).any())
        ax.plot(
            own["macro_iteration"].astype(int),
            own["objective"].astype(float),
            color=COLOURS[0] if is_best else "#aaaaaa",
            linestyle=":" if dropped else "-",
            linewidth=2.2 if is_best else 0.9,
            marker="o" if is_best else None,
            markersize=4,
            zorder=3 if is_best else 2,
        )
    ax.set(xlabel="macro iteration", ylabel="training objective")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_routing_sharpness(leaf_proba: npt.ArrayLike, leaf: npt.ArrayLike, ax: Axes | None = None) -> Axes:
    """How sure the routing is: share of the rows whose own leaf has at least a given probability.

    Where the gates are sharp, the lines stay at one
    up to the right edge; soft gates let them fall early, and predictions from one leaf then say less than the
    average of all leaves would.

    Args:
        leaf_proba: shape (n, L), rows sum to one: ``tree.predict_leaf_proba(X)``.
        leaf: of each row, shape (n,): ``tree.apply(X)``.
        ax: axes to draw on; of a new figure if None.

    Raises:
        DataError: no array of probabilities that sum to one, or not one leaf for each row.
    """
    proba = np.asarray(leaf_proba, dtype=np.float64)
    if proba.ndim != 2 or proba.size == 0 or not np.allclose(proba.sum(axis=1), 1.0, atol=1e-4):
        raise DataError(f"leaf_proba must be (n, L) with rows that sum to one, got shape {proba.shape}")
    own = np.asarray(leaf)
    if own.shape != (len(proba),) or not np.isin(own, np.arange(proba.shape[1])).all():
        raise DataError(f"leaf must be one number of 0 to {proba.shape[1] - 1} for each of {len(proba)} rows")
    ax = _axes(ax)
    probability = proba[np.arange(len(proba)), own]
    for number in np.unique(own):
        values = np.sort(probability[own == number])
        share = 1.0 - np.arange(len(values)) / len(values)
        ax.step(
            np.concatenate([[0.0], values, [1.0]]),
            np.concatenate([[1.0], share, [0.0]]),
            where="pre",
            color=COLOURS[number % len(COLOURS)],
            linewidth=1.8,
            label=f"leaf {number}: {len(values)} rows, mean {values.mean():.2f}",
        )
    ax.set(
        xlabel="probability of the own leaf, at least",
        ylabel="share of its rows",
        xlim=(0, 1.005),
        ylim=(0, 1.02),
    )
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="lower left")
    return ax


def plot_calibration(
    curve: pd.DataFrame, predicted: npt.ArrayLike | None = None, ax: Axes | None = None
) -> Axes:
    """Observed against predicted survival at one time, with a band, beside the diagonal.

    Args:
        curve: columns ``predicted``, ``observed``, ``lower`` and ``upper``: of
            :func:`sstorch.metrics.calibration_curve`.
        predicted: predictions of all rows, shape (n,), drawn as ticks along the axis.
        ax: axes to draw on; of a new figure if None.

    Raises:
        ConfigError: a column is missing.
    """
    if missing := [name for name in ("predicted", "observed", "lower", "upper") if name not in curve]:
        raise ConfigError(f"curve lacks the columns {missing}; give that of metrics.calibration_curve")
    ax = _axes(ax, square=True)
    ax.plot([0, 1], [0, 1], color="#aaaaaa", linewidth=1.0, linestyle="--", label="perfect")
    ax.fill_between(
        curve["predicted"], curve["lower"], curve["upper"], color=COLOURS[0], alpha=0.2, linewidth=0
    )
    ax.plot(curve["predicted"], curve["observed"], color=COLOURS[0], linewidth=2.0, label="observed")
    if predicted is not None:
        values = np.asarray(predicted, dtype=np.float64)
        ax.plot(values, np.full(len(values), 0.01), "|", color="#444444", alpha=0.35, markersize=7)
    ax.set(xlabel="predicted survival", ylabel="observed survival", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="upper left")
    return ax


def _axes(ax: Axes | None, square: bool = False) -> Axes:
    if ax is not None:
        return ax
    return Figure(figsize=(4.8, 4.8) if square else (6, 4), layout="constrained").subplots()
