"""Folds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sstorch.data import stratified_folds
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


def test_seed_shuffles():
    event = np.arange(60) % 2
    assert (stratified_folds(event, 5, 0) != stratified_folds(event, 5, 1)).any()


def test_refusals():
    with pytest.raises(DataError, match=r"3 events in 10 rows are too few for 5 folds.*choose fewer folds"):
        stratified_folds(np.arange(10) < 3, 5, 0)
    with pytest.raises(DataError, match="0 events in 0 rows"):
        stratified_folds([], 2, 0)
    with pytest.raises(ConfigError, match="n_folds=1; cross-validation needs at least 2"):
        stratified_folds([1, 0, 1], 1, 0)
    with pytest.raises(DataError, match="one boolean"):
        stratified_folds([1, 2, 1], 2, 0)
