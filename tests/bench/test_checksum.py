"""By what results know the data that they come from."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sstorch import Surv, SurvivalData
from sstorch.bench.cross_validation import data_checksum

Y = np.arange(1.0, 7.0), np.array([1, 0, 1, 1, 0, 1])


def test_everything_that_a_model_sees_counts() -> None:
    frame = pd.DataFrame({"site": [3.0, 4.0, np.nan, 3.0, 4.0, 3.0], "x": np.arange(6.0)})
    base = data_checksum(SurvivalData(frame, Y))
    assert data_checksum(SurvivalData(frame.copy(), Y)) == base
    others = [
        SurvivalData(frame.assign(x=frame["x"] + 1e-12), Y),
        SurvivalData(frame[["x", "site"]], Y),
        SurvivalData(frame, (Y[0], 1 - Y[1])),
        SurvivalData(frame, Y, sample_weight=[1, 1, 1, 1, 1, 2]),
        SurvivalData(frame, Surv(*Y, entry=Y[0] / 2)),
        SurvivalData(frame, Surv(*Y, entry=[0, 1, 0, 3, 0, 5], id=list("abcdef"))),
        SurvivalData(frame, Surv(Y[0], [1, 0, 2, 1, 0, 2], causes="auto")),
        # The same in text, but a category.
        SurvivalData(frame.assign(site=frame["site"].astype("string")), Y),
    ]
    sums = [data_checksum(own) for own in others]
    assert len({base, *sums}) == len(others) + 1
