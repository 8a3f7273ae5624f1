"""Trees whose groups are examined: soft and exact, of one event and of competing causes."""

from functools import cache
from typing import Any, NamedTuple

from sklearn.base import clone

from sstorch import Columns, OptimalSurvivalTree, PrognosticTree, SurvivalData, load_dataset
from tests.causes import simulated

CAUSES = ("relapse", "death")
_SOFT = PrognosticTree(leaf="weibull", columns=Columns(numeric="linear"))
_EXACT = OptimalSurvivalTree(max_depth=2, min_leaf=40)
TREES = {
    "soft": _SOFT,
    "exact": _EXACT,
    "soft causes": clone(_SOFT).set_params(depth=1),
    "exact causes": clone(_EXACT).set_params(max_depth=1),
}


class Fitted(NamedTuple):
    """A tree with its training rows."""

    tree: Any
    data: SurvivalData


@cache
def rows_of(kind: str) -> SurvivalData:
    """Rows of one event, or of two causes: relapse depends on size, death on age."""
    if "causes" not in kind:
        return load_dataset("gbsg2")
    frame, y = simulated(400)
    return SurvivalData(frame.drop(columns="grade"), y)


def refitted(kind: str) -> Fitted:
    """A tree of a kind that a test may change."""
    data = rows_of(kind)
    return Fitted(clone(TREES[kind]).fit(data.frame, data.y), data)


fitted = cache(refitted)  # which tests must not change
