"""Separation: which levels and columns without a finite estimate are named in a warning."""

import warnings

import numpy as np
import pandas as pd
import pytest

from sstorch import Columns, Penalties, Surv, SurvivalRegression
from sstorch.exceptions import DataWarning

N = 200
RNG = np.random.default_rng(0)
T, C = RNG.exponential(3, N), RNG.exponential(4, N)
TIME, EVENT = np.minimum(T, C), T <= C
FRAME = pd.DataFrame(
    {"g": RNG.choice(list("abc"), N), "h": RNG.choice(list("uvw"), N), "x": RNG.normal(size=N)}
)
LEVEL, CELL = (FRAME["g"] == "c").to_numpy(), ((FRAME["g"] == "b") & (FRAME["h"] == "v")).to_numpy()
FREE, LINES = Penalties(ridge=0), Columns(numeric="linear")


def separated(
    frame: pd.DataFrame, y: object, penalties: Penalties = FREE, columns: Columns = LINES
) -> list[str]:
    """What is named, and how many rows, of the warnings of a fit."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        SurvivalRegression("weibull", penalties, columns).fit(frame, y)
    texts = [str(each.message) for each in found if issubclass(each.category, DataWarning)]
    return [text.split(" rows without an event")[0] for text in texts if "finite estimate" in text]


@pytest.mark.parametrize(
    ("frame", "y", "expected"),
    [
        (FRAME, (TIME, EVENT), []),
        (FRAME, (TIME, EVENT & ~LEVEL), [f"'g=c' separates {LEVEL.sum()}"]),
        (FRAME, Surv(TIME, EVENT & ~LEVEL, entry=TIME / 3), [f"'g=c' separates {LEVEL.sum()}"]),
        # Left-censored rows have no finite estimate on the other side.
        (FRAME, Surv.interval(np.where(LEVEL, 0, 0.9 * TIME), TIME), [f"'g=c' separates {LEVEL.sum()}"]),
        (FRAME, (TIME, EVENT & ~CELL), []),  # both levels have events with other levels
        (
            FRAME,
            Surv(TIME, np.where(EVENT, np.where(LEVEL, 1, 1 + np.arange(N) % 2), 0), causes=("p", "q")),
            [f"cause q: 'g=c' separates {LEVEL.sum()}"],
        ),
        (
            FRAME.assign(dose=np.where(EVENT, 3.0, 3 + FRAME["x"].abs())),
            (TIME, EVENT),
            [f"'dose' separates {(~EVENT).sum()}"],
        ),
    ],
)
def test_levels_and_columns_that_separate_are_named(
    frame: pd.DataFrame, y: object, expected: list[str]
) -> None:
    assert separated(frame, y) == expected


def test_cell_of_a_product_without_events_is_named() -> None:
    columns = Columns(numeric="linear", interactions=[("g", "h")])
    found = separated(FRAME, (TIME, EVENT & ~CELL), columns=columns)
    assert found == [f"'g=b:h=v' separates {CELL.sum()}"]


def test_penalties_give_a_finite_estimate() -> None:
    y, tail = (TIME, EVENT & ~LEVEL), (TIME, EVENT & (FRAME["x"] < 0.5).to_numpy())
    assert separated(FRAME, y, Penalties()) == separated(FRAME, y, Penalties(ridge=1e-3)) == []
    curves = Columns(numeric="piecewise")
    assert separated(FRAME[["x"]], tail, columns=curves) == []


@pytest.mark.parametrize("numeric", ["piecewise", "spline"])
def test_curve_without_penalties_and_its_last_piece_without_events_is_named(numeric: str) -> None:
    tail, free = (TIME, EVENT & (FRAME["x"] < 0).to_numpy()), Penalties(ridge=0, roughness=0)
    (found,) = separated(FRAME, tail, free, Columns(numeric=numeric))
    name, count = found.split(" separates ")
    assert name == "'x'"
    assert int(count) == pytest.approx((FRAME["x"] > 0).sum(), abs=9)
    assert separated(FRAME, (TIME, EVENT), free, Columns(numeric=numeric)) == []
