"""Figures that answer to the pointer: a vector graphic inside the page, and the values of its curves.

An artist whose id (``gid``) is ``"group 2"`` belongs to that group, which a reader can highlight in all
figures, of a band ``"group 2 band"``; 0 represents all groups. Such lines and bands are read at the place of
the pointer. The label of axes over time is ``"time"``, of those whose lines are stacked ``"time stacked"``.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

_ID = re.compile(r'<g id="group (\d+)( band)?">')
_DIGITS = 5


def inline_svg(svg: bytes, name: str) -> Markup:
    """The graphic as a part of a page: ids are its own, and groups have an attribute ``data-group``."""
    text = svg.decode()
    text = _ID.sub(_group_of, text[text.index("<svg") :])
    text = re.sub(r'((?:\bid=|href=)")(#?)', rf"\1\2{name}-", text)
    text = text.replace("url(#", f"url(#{name}-")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    size = re.search(r' width="([\d.]+)pt"', text)
    assert size is not None
    style = f' style="width: {size[1]}pt" aria-hidden="true"'
    return Markup(
        re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', "", text, count=1).replace("<svg", f"<svg{style}", 1)
    )


def _group_of(found: re.Match[str]) -> str:
    band = ' class="band"' if found[2] else ""
    return f'<g data-group="{found[1]}"{band}>'


def curves_json(figure: Figure) -> Markup:
    """Places and curves of the axes of a figure that was drawn, for the script of the page."""
    axes = [found for ax in figure.axes if (found := _curves_of(ax, figure))["curves"]]
    # Inside a script no text may end it.
    return Markup(json.dumps(axes, ensure_ascii=False).replace("<", "\\u003c"))


def _curves_of(ax: Axes, figure: Figure) -> dict[str, Any]:
    """Box in points from the upper left corner, limits, names of the axes, and curves."""
    place, (width, height) = ax.get_position(), 72 * figure.get_size_inches()
    curves: list[dict[str, Any]] = []
    for artist in ax.get_children():
        group = _group(artist)
        if group is None or not isinstance(artist, Line2D | PolyCollection):
            continue
        if isinstance(artist, PolyCollection):
            points = np.concatenate([path.vertices for path in artist.get_paths()])
            curves.append({"kind": "band", "group": group, **_points(points)})
        elif artist.get_linestyle() not in ("None", "none", ""):
            name, step = str(artist.get_label()), str(artist.get_drawstyle()) == "steps-post"
            points = np.column_stack([np.asarray(part, float) for part in artist.get_data(orig=False)])
            curve: dict[str, Any] = {"kind": "step" if step else "line", "group": group, **_points(points)}
            curve |= {"name": "" if name.startswith("_") else name, "colour": to_hex(artist.get_color())}
            curves.append(curve)
    shown = getattr(ax, "fmt_ydata", None)
    return {
        "box": [place.x0 * width, (1 - place.y1) * height, place.x1 * width, (1 - place.y0) * height],
        "x": [*map(float, ax.get_xlim())],
        "y": [*map(float, ax.get_ylim())],
        "ratio": shown is not None,
        "time": str(ax.get_label()).startswith("time"),
        "stacked": ax.get_label() == "time stacked",
        "name": ax.get_xlabel() or ax.get_title(),
        "curves": curves,
    }


def _group(artist: Artist) -> int | None:
    found = re.fullmatch(r"group (\d+)( band)?", artist.get_gid() or "")
    return None if found is None else int(found[1])


def _points(points: npt.NDArray[np.float64]) -> dict[str, list[float]]:
    known = points[np.isfinite(points).all(axis=1)]
    return {key: [float(f"{v:.{_DIGITS}g}") for v in known[:, k]] for k, key in enumerate(("x", "y"))}
