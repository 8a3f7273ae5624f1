"""Average ranks of models, and which of them are not told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

_INK, _BAR = "#22303c", "#b5495b"
# In inches: between two labels, above the axis, and below it beside labels and bars.
_LINE, _TOP, _BELOW = 0.24, 0.72, 0.28


def indistinguishable(ranks: Sequence[float], critical_difference: float) -> list[tuple[int, int]]:
    """First and last position of every largest run of models within the critical difference.

    Args:
        ranks: average ranks in ascending order.
        critical_difference: two models differ if their ranks are further apart.

    Examples:
        >>> indistinguishable([1.0, 1.5, 2.4, 4.0], critical_difference=1.0)
        [(0, 1), (1, 2)]
    """
    found: list[tuple[int, int]] = []
    for first, low in enumerate(ranks):
        last = max(k for k, rank in enumerate(ranks) if rank - low <= critical_difference)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found


def plot_critical_difference(ranks: Mapping[str, float], critical_difference: float) -> Figure:
    """Critical-difference diagram: average ranks on a line, bars joining models that are not told apart.

    Args:
        ranks: average rank of every model by its label, 1 the best; two or more.
        critical_difference: two models differ if their ranks are further apart.

    References:
        Demšar (2006), Journal of Machine Learning Research 7, 1-30.
    """
    names = sorted(ranks, key=lambda name: (ranks[name], name))
    values = [ranks[name] for name in names]
    n = len(names)
    bars = indistinguishable(values, critical_difference)
    n_left = (n + 1) // 2
    depth = 0.16 * len(bars)  # the labels begin below the bars
    height = _TOP + _BELOW + depth + _LINE * n_left
    figure = Figure(figsize=(9, height))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    span = n - 1.0
    side = 0.42 * span  # room for the labels on either side
    ax.set_xlim(1 - side, n + side)
    ax.set_ylim(_TOP - height, _TOP)
    ax.plot([1, n], [0, 0], color=_INK, lw=1.2, solid_capstyle="butt")
    step = max(1, round(n / 12))
    for tick in range(1, n + 1):
        tall = (tick - 1) % step == 0 or tick == n
        ax.plot([tick, tick], [0, 0.08 if tall else 0.04], color=_INK, lw=1)
        if tall:
            ax.text(tick, 0.11, str(tick), ha="center", va="bottom", fontsize=9, color=_INK)
    width = min(critical_difference, span)
    ax.plot([1, 1 + width], [0.38, 0.38], color=_BAR, lw=2.2, gid="critical-difference")
    cut = "" if width == critical_difference else ", longer than the axis"
    text = f"critical difference {critical_difference:.2f}{cut}"
    ax.text(1, 0.45, text, va="bottom", ha="left", fontsize=9, color=_BAR)
    for number, (first, last) in enumerate(bars):
        y = -0.12 - 0.16 * number
        overhang = 0.006 * span
        ax.plot(
            [values[first] - overhang, values[last] + overhang],
            [y, y],
            color=_BAR,
            lw=3.2,
            solid_capstyle="round",
            gid="not-told-apart",
        )
    for position, (name, value) in enumerate(zip(names, values, strict=True)):
        is_left = position < n_left
        line = position if is_left else n - 1 - position
        y = -0.16 - depth - _LINE * line - 0.05
        _label(ax, name, value, y, (1 - 0.04 * span) if is_left else (n + 0.04 * span), is_left)
    return figure


def _label(ax: Axes, name: str, rank: float, y: float, x: float, is_left: bool) -> None:
    ax.plot([rank, rank, x], [0, y, y], color=_INK, lw=0.8)
    text = f"{name}  {rank:.2f} " if is_left else f" {rank:.2f}  {name}"
    ax.text(x, y, text, ha="right" if is_left else "left", va="center", fontsize=9, color=_INK)
