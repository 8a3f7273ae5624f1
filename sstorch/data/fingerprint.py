"""Fingerprint of rows: whether a model is validated on the rows that it was trained on."""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import numpy as np
import pandas as pd

from sstorch.data.survival_data import SurvivalData


def fingerprint(data: SurvivalData) -> str:
    """Checksum of features and outcomes of rows with follow-up, whatever the order; weights are not in it."""
    data = data.joined()
    frame = data.frame[sorted(data.frame.columns)].reset_index(drop=True)
    code = data.event if data.causes is None else data.cause
    frame = frame.assign(**{"": data.nominal_time, " ": code.astype(np.float64), "  ": data.entry})
    rows = np.sort(pd.util.hash_pandas_object(frame, index=False).to_numpy())
    return hashlib.sha256(rows.tobytes()).hexdigest()


def on_training_rows(model: Any, X: Any, y: object) -> bool:
    """Whether rows are those that a model of this package was trained on, by their fingerprint."""
    fitted = getattr(model, "best_estimator_", model)
    known = getattr(fitted, "training_rows_", None)
    if known is None:
        return False
    with warnings.catch_warnings():  # of the rows, which those of the predictions repeat
        warnings.simplefilter("ignore")
        return bool(fingerprint(fitted._rows(X, y)) == known)
