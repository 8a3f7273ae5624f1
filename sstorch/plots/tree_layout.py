"""Layout of a tree in inches: boxes of gates, panels of groups, and branches as wide as their share of rows.

All texts have one size. They are measured, so that none is wider than the room of its node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.textpath import TextToPath
from matplotlib.typing import ColorType

from sstorch.exceptions import ConfigError
from sstorch.plots.figures import new_figure

# Points of every text, and inches of a line of it.
SIZE, LINE = 8.0, 0.15
INK, GREY, BRANCH = "#222222", "#555555", "#d3dae0"
# Inches: of a group, as wide as it is drawn by default and at least; left of the first group for the axis of
# survival; between nodes; between levels; of the widest gate and of the branch of all rows.
_GROUP, _LEAST, _MARGIN, _SPACE, _GAP, _GATE, _TRUNK = 1.35, 0.72, 0.38, 0.1, 0.46, 2.6, 0.26


@dataclass
class Node:
    """A gate or a group."""

    title: str  # above its panel
    draw: Callable[[Axes], None]  # fills the panel
    share: float  # of all rows
    number: int = 0  # of a group: those with a smaller one are further to the left
    height: Callable[[float], float] = lambda _: 0.04  # of the panel, from its width, both in inches
    below: Sequence[str] = ()  # texts below the panel, each as long as fits into a line
    axis: float = 0.0  # room for the axis below the panel, in inches
    colour: ColorType = INK  # of the title
    # of a gate: words on each branch, and the child
    branches: list[tuple[str, Node]] = field(default_factory=list)
    x: float = 0.0  # middle, in widths of a group from the left
    level: int = 0  # from the top
    columns: int = 1  # groups below it

    @property
    def order(self) -> int:
        """Smallest number of the groups below it."""
        return min((child.order for _, child in self.branches), default=self.number)

    def walk(self) -> Iterator[Node]:
        """The gates, level by level, then the groups from left to right, once they are placed."""
        nodes = [self]
        for node in nodes:
            nodes += [child for _, child in node.branches]
        yield from (node for node in nodes if node.branches)
        yield from sorted((node for node in nodes if not node.branches), key=lambda leaf: leaf.x)

    def place(self, level: int = 0, free: float = 0.5) -> float:
        """Place it and all below it; the middle of the next group to the right."""
        self.level = level
        if not self.branches:
            self.x = free
            return free + 1.0
        self.branches.sort(key=lambda branch: branch[1].order)
        first = free
        for _, child in self.branches:
            free = child.place(level + 1, free)
        self.x, self.columns = 0.5 * (first + free - 1.0), round(free - first)
        return free


@dataclass(frozen=True)
class _Layout:
    """Sizes in inches, of nodes that are placed."""

    nodes: list[Node]
    width: float
    n_captions: int

    TOP: ClassVar = 0.06

    @property
    def pitch(self) -> float:
        return (self.width - _MARGIN) / self.n_groups

    @property
    def n_groups(self) -> int:
        return sum(not node.branches for node in self.nodes)

    def room(self, node: Node) -> float:
        """Width of a node."""
        return min(node.columns * self.pitch, _GATE if node.branches else self.pitch) - _SPACE

    def panel(self, node: Node) -> tuple[float, float]:
        """Width and height of its panel."""
        width = self.room(node)
        return width, node.height(width)

    def tall(self, node: Node) -> float:
        """Height of a node with its title, its axes and what is below."""
        below = len(packed(node.below, self.room(node)))
        return LINE * (bool(node.title) + below) + self.panel(node)[1] + node.axis

    @property
    def levels(self) -> list[float]:
        """Height of each level of gates, then that of the groups."""
        gates = [node for node in self.nodes if node.branches]
        depth = 1 + max((node.level for node in gates), default=-1)
        heights = [max(self.tall(node) for node in gates if node.level == k) for k in range(depth)]
        return [*heights, max(self.tall(node) for node in self.nodes if not node.branches)]

    @property
    def height(self) -> float:
        """Of the figure, at least."""
        levels = self.levels
        return self.TOP + sum(levels) + _GAP * (len(levels) - 1) + LINE * (self.n_captions + 0.6)


def draw_tree(
    root: Node, figure: Figure | SubFigure | None, width: float | None, caption: Sequence[str]
) -> list[Axes]:
    """Draw a tree; returns the axes of branches, in inches, of gates, level by level, and of groups."""
    # A new figure is `width` inches wide; ConfigError: the figure is too small for texts of 8 points.
    columns = round(root.place() - 0.5)
    nodes, least = list(root.walk()), _LEAST * columns + _MARGIN
    if figure is not None:
        width, given = figure.bbox.width / figure.dpi, figure.bbox.height / figure.dpi
    width = max(_GROUP * columns + _MARGIN, 3.35) if width is None else float(width)
    groups = f"{columns} group{'s' * (columns > 1)}"
    if width < least:
        raise ConfigError(f"width must be at least {least:.2f} inches for {groups}, got {width:.2f}")
    lines = [line for sentence in caption for line in wrapped(sentence, width - 0.2)]
    layout = _Layout(nodes, width, len(lines))
    height = layout.height
    if figure is None:
        figure = new_figure(width, height)
    elif given < height - 1e-6:
        raise ConfigError(
            f"figure must be at least {height:.1f} inches high for {groups} at this width, got {given:.1f}; "
            "leave figure out for one as large as the tree needs"
        )
    else:
        height = given
    edges = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    edges.set(xlim=(0, width), ylim=(0, height))
    edges.axis("off")
    for k, line in enumerate(reversed(lines)):
        edges.text(0.1, LINE * (k + 0.5), line, va="center", color=GREY, **TEXT)
    levels = layout.levels
    tops = [height - layout.TOP - sum(levels[:k]) - _GAP * k for k in range(len(levels))]
    axes: list[Axes] = [edges]
    bottoms: dict[int, float] = {}
    for node in nodes:
        x, top = _middle(node, layout), tops[node.level if node.branches else -1]
        if node.title:
            edges.text(x, top - LINE / 2, node.title, ha="center", va="center", color=node.colour, **TITLE)
        panel = layout.panel(node)
        low = top - LINE * bool(node.title) - panel[1]
        left = x - layout.room(node) / 2
        ax = figure.add_axes((left / width, low / height, panel[0] / width, panel[1] / height))
        node.draw(ax)
        for k, text in enumerate(packed(node.below, layout.room(node))):
            y = low - node.axis - LINE * (k + 0.5)
            edges.text(x, y, text, ha="center", va="center", color=INK, **TEXT)
        axes.append(ax)
        bottoms[id(node)] = low - node.axis
    for node in nodes:
        start = _middle(node, layout) - 0.5 * _TRUNK * node.share
        for words, child in node.branches:
            end, top = _middle(child, layout), tops[child.level if child.branches else -1]
            wide = _TRUNK * child.share
            _draw_branch(edges, (start, bottoms[id(node)]), (end - wide / 2, top), wide)
            start += wide
            edges.text(end, top + 0.6 * LINE, words, ha="center", va="center", color=INK, **TEXT)
    return axes


TEXT: dict[str, Any] = {"fontsize": SIZE, "parse_math": False}
TITLE: dict[str, Any] = {**TEXT, "fontweight": "bold"}


def _middle(node: Node, layout: _Layout) -> float:
    return _MARGIN + layout.pitch * node.x


def _draw_branch(ax: Axes, start: tuple[float, float], end: tuple[float, float], width: float) -> None:
    """A band from the bottom of a gate to the top of its child, from the left corners on."""
    (x0, y0), (x1, y1), half = start, end, 0.5 * (start[1] + end[1])
    corners = [(x0, y0), (x0, half), (x1, half), (x1, y1)]
    back = [(x + width, y) for x, y in reversed(corners)]
    codes = [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3, Path.CLOSEPOLY]
    path = Path([*corners, *back, corners[0]], codes)
    ax.add_patch(PathPatch(path, facecolor=BRANCH, edgecolor=BRANCH, linewidth=0.8))


def text_width(text: str) -> float:
    """Inches that a text takes, bold as titles are."""
    points, _, _ = TextToPath().get_text_width_height_descent(text, FontProperties(size=SIZE), False)
    return float(points) / 72


def wrapped(text: str, width: float) -> list[str]:
    """A text in lines of a width in inches, broken between words, and within those that are wider."""
    lines = [""]
    for word in text.split():
        together = f"{lines[-1]} {word}".strip()
        if text_width(together) <= width:
            lines[-1] = together
            continue
        lines += [""] * bool(lines[-1])
        for letter in word:
            if lines[-1] and text_width(lines[-1] + letter) > width:
                lines.append("")
            lines[-1] += letter
    return lines


def packed(phrases: Sequence[str], width: float) -> list[str]:
    """Texts in lines of a width in inches; one that is not wider is not broken."""
    lines: list[str] = []
    for phrase in phrases:
        together = f"{lines[-1]} {phrase}" if lines else phrase
        if lines and text_width(together) <= width:
            lines[-1] = together
        else:
            lines += wrapped(phrase, width)
    return lines
