"""Fingerprint of rows: whether a model is validated on the rows that it was trained on."""

from __future__ import annotations

import hashlib

import numpy as np
import pandas as pd

from sstorch.data.survival_data import SurvivalData


def fingerprint(data: SurvivalData) -> str:
    """Checksum of features and outcomes, whatever the order of rows and columns; weights are not in it."""
    frame = data.frame[sorted(data.frame.columns)].reset_index(drop=True)
    code = data.event if data.causes is None else data.cause
    frame = frame.assign(**{"": data.nominal_time, " ": code.astype(np.float64), "  ": data.entry})
    rows = np.sort(pd.util.hash_pandas_object(frame, index=False).to_numpy())
    return hashlib.sha256(rows.tobytes()).hexdigest()
