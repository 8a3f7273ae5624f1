"""Figures as bytes, the same at every call."""

from __future__ import annotations

import io

import matplotlib as mpl
from matplotlib.figure import Figure


def as_png(figure: Figure) -> bytes:
    """The figure as a PNG file."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=144, metadata={"Software": None})
    return stream.getvalue()


def as_svg(figure: Figure) -> bytes:
    """The figure as an SVG file."""
    stream = io.BytesIO()
    # Ids inside an SVG file are hashes with this salt, and neither format keeps the time of drawing.
    with mpl.rc_context({"svg.hashsalt": "sstorch", "svg.fonttype": "path"}):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return stream.getvalue()
