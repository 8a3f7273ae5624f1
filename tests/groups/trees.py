"""Trees whose groups are examined: soft and exact, of one event and of competing causes."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone

from sstorch import Columns, OptimalSurvivalTree, PrognosticTree, Surv, SurvivalData, load_dataset

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

    @property
    def rows(self) -> tuple[pd.DataFrame, Surv]:
        return self.data.frame, self.data.y


@cache
def rows_of(kind: str) -> SurvivalData:
    """Rows of one event, or of two causes: relapse depends on size, death on age."""
    if "causes" not in kind:
        return load_dataset("gbsg2")
    rng, n = np.random.default_rng(0), 400
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=["age", "size", "marker"])
    relapse = np.exp(-0.7 * frame["size"]) * rng.weibull(1.3, n) * 1200
    death = np.exp(-0.7 * frame["age"]) * rng.weibull(1.8, n) * 1500
    censored = rng.uniform(100, 3000, n)
    time = np.ceil(np.minimum(np.minimum(relapse, death), censored)).to_numpy()
    cause = np.select([relapse <= np.minimum(death, censored), death <= censored], [1, 2], 0)
    return SurvivalData(frame, Surv(time, cause, causes=CAUSES))


@cache
def fitted(kind: str) -> Fitted:
    """The tree of a kind, which tests must not change."""
    data = rows_of(kind)
    return Fitted(clone(TREES[kind]).fit(data.frame, data.y), data)


def refitted(kind: str) -> Fitted:
    """A tree of a kind that a test may change."""
    data = rows_of(kind)
    return Fitted(clone(TREES[kind]).fit(data.frame, data.y), data)
