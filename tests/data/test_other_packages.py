"""Outcomes and frames as other packages have them: the numbers are those of our own forms."""

from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sksurv.util import Surv as StructuredSurv

from sstorch import Penalties, Surv, SurvivalData, SurvivalRegression
from sstorch.data import as_surv

TIME, EVENT = [5.0, 3.0, 8.0, 2.0], [True, False, True, True]
SERIES = tuple(nw.from_native(pl.Series(values), series_only=True) for values in (TIME, EVENT))


@pytest.mark.parametrize(
    "y",
    [
        StructuredSurv.from_arrays(EVENT, TIME),
        StructuredSurv.from_arrays(EVENT, TIME, name_event="cens", name_time="months"),
        (np.array(TIME, dtype=np.float32), np.array(EVENT, dtype=np.float32)),  # of pycox
        SERIES,
        nw.from_native(pl.DataFrame({"time": TIME, "event": EVENT})),
        nw.from_native(pd.DataFrame({"time": TIME, "event": EVENT})),
    ],
    ids=["sksurv", "sksurv names", "pycox", "narwhals series", "narwhals polars", "narwhals pandas"],
)
def test_outcomes_of_other_packages_are_right_censored_times(y: Any) -> None:
    assert repr(as_surv(y)) == repr(Surv(TIME, EVENT))


def test_outcomes_of_greenwood() -> None:
    gw = pytest.importorskip("greenwood", reason="the extra peers installs it")
    theirs = gw.Surv(TIME, EVENT)
    assert repr(as_surv((theirs.stop, theirs.status))) == repr(Surv(TIME, EVENT))


@pytest.mark.parametrize("library", ["polars", "narwhals"])
def test_frames_of_other_libraries_are_fitted_and_predicted(library: str, small_data: SurvivalData) -> None:
    frame = small_data.frame.assign(arm=np.where(np.arange(len(small_data)) % 3, "drug", "control"))
    theirs: Any = pl.from_pandas(frame)
    if library == "narwhals":
        theirs = nw.from_native(theirs)
    settings: dict[str, Any] = {"penalties": Penalties(ridge=1e-3)}
    ours = SurvivalRegression("weibull", **settings).fit(frame, small_data.y)
    other = SurvivalRegression("weibull", **settings).fit(theirs, small_data.y)
    np.testing.assert_allclose(other.predict(theirs), ours.predict(frame), rtol=1e-10)
    assert other.score(theirs, small_data.y) == pytest.approx(ours.score(frame, small_data.y))
