"""New figures, their colours, and the label of the axis of time."""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from sstorch.data.subjects import CONSTANT_COVARIATES

COLOURS = ("#3b6fb6", "#d1603d", "#4a9a5b", "#8e5ea2", "#c9a227", "#56a3a6", "#b5495b", "#6b6b6b")


class ShownFigure(Figure):
    """A figure that pyplot does not know, and that a notebook shows where it is the last line of a cell.

    Functions return it that return a figure: one of pyplot would be shown twice there.
    """

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png", dpi=96)
        return stream.getvalue()


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


def of_group(group: int, band: bool = False) -> str:
    """Id (``gid``) of what is drawn of a group, by which pages highlight it: see `sstorch.document`."""
    return f"group {group}{' band' * band}"


def dark(colour: str) -> tuple[float, float, float]:
    """A darker shade of a colour, for texts and for lines over bands."""
    red, green, blue = (0.6 * part for part in to_rgb(colour))
    return red, green, blue
