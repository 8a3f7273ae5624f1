"""Folds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sstorch import Surv, SurvivalData
from sstorch.data import folds_of, stratified_folds
from sstorch.exceptions import ConfigError, DataError


@given(
    n_events=st.integers(5, 40),
    n_censored=st.integers(0, 40),
    n_folds=st.integers(2, 5),
    seed=st.integers(0, 99),
)
def test_folds_share_rows_and_events_evenly(n_events, n_censored, n_folds, seed):
    event = np.random.default_rng(seed).permutation(
        np.r_[np.ones(n_events, bool), np.zeros(n_censored, bool)]
    )
    fold = stratified_folds(event, n_folds, seed)
    assert fold.shape == event.shape
    for kind in (event, ~event):
        counts = np.bincount(fold[kind], minlength=n_folds)
        assert len(counts) == n_folds
        assert np.ptp(counts) <= 1
    np.testing.assert_array_equal(fold, stratified_folds(event.astype(int), n_folds, seed))


def test_refusals():
    with pytest.raises(DataError, match=r"3 events in 10 rows are too few for 5 folds.*choose fewer folds"):
        stratified_folds(np.arange(10) < 3, 5, 0)
    with pytest.raises(DataError, match="3 events in 5 subjects are too few"):
        stratified_folds(np.arange(10) < 6, 5, 0, subject=np.arange(10) // 2)
    with pytest.raises(DataError, match="0 events in 0 rows"):
        stratified_folds([], 2, 0)
    with pytest.raises(ConfigError, match="n_folds=1; cross-validation needs at least 2"):
        stratified_folds([1, 0, 1], 1, 0)


def test_subjects_with_causes_stay_together():
    subject, draws = np.repeat(np.arange(60), 2), np.random.default_rng(1)
    start, stop = np.tile([0.0, 1.0], 60), np.tile([1.0, 2.0], 60) + 0.01 * np.arange(120)
    cause = np.where(np.arange(120) % 2, draws.integers(0, 3, 120), 0)
    start[1::2] = stop[::2]
    y = Surv(stop, cause, entry=start, id=subject, causes=("a", "b"))
    folds = folds_of(SurvivalData(draws.normal(size=(120, 1)), y), 3, 0)
    assert (folds[::2] == folds[1::2]).all()
    for k in (1, 2):
        assert np.ptp(np.bincount(folds[cause == k], minlength=3)) <= 1
