"""Optimism of an apparent validation: measures of models refitted to resamples of the training rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sstorch.exceptions import DataError
from sstorch.metrics.comparison import resampler
from sstorch.validation.measures import MEASURES
from sstorch.validation.predicting import Cohort, refitted


def optimism(
    model: Any, cohort: Cohort, t: float, cause: int | str | None, n_refits: int, seed: int
) -> pd.Series:
    """Optimism of each measure: mean difference between the training rows of a model and all rows.

    An estimator of scikit-learn is cloned and fitted to each resample of a cohort with one row per subject.
    Indexed by measure, of competing causes by cause and measure; NaN if no refit has the measure. Raises
    ConfigError if the model cannot be cloned, DataError if subjects have several rows or there is a landmark.

    References:
        Harrell, Lee and Mark (1996), Statistics in Medicine 15, 361-387, section 5.
    """
    if cohort.y.id is not None or cohort.after is not None:
        raise DataError("n_refits is for rows that are subjects, without a landmark; use n_refits=0")
    rng, draw = np.random.default_rng(seed), resampler(len(cohort.y))
    found = []
    for _ in range(n_refits):
        own = cohort._take(draw(rng))
        refit = refitted(model, own)
        found.append(_values(refit, own, t, cause) - _values(refit, cohort, t, cause))
    return pd.concat(found, axis=1).mean(axis=1)


def _values(model: Any, cohort: Cohort, t: float, cause: int | str | None) -> pd.Series:
    values = {}
    for name, rows in cohort.rows(model, t, cause).items():
        for title, measure in MEASURES.items():
            if measure.defined_for(rows):
                try:
                    value = measure.of(rows)
                except DataError:  # such as no finite calibration slope: the mean is over the other refits
                    value = np.nan
                values[(name, title) if name else title] = value
    return pd.Series(values)
