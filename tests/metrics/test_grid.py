import numpy as np
import pytest
from hypothesis import given

from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import concordance_harrell, evaluate, evaluation_times, integrated_brier_score
from sstorch.metrics import grids as limits
from sstorch.metrics.grids import thinned, thinned_together

from .cohorts import scored


@given(scored())
def test_default_grids_serve_their_metrics(rows):
    grid = evaluation_times(rows.time, rows.train.time)
    assert np.isin(rows.time, grid).all()
    assert grid[-1] == rows.time.max()
    assert np.diff(grid, prepend=0.0).max() <= rows.time.max() / 200 * (1 + 1e-12)
    survival = np.exp(-np.outer(np.linspace(0.1, 1.0, rows.time.size), grid))
    assert integrated_brier_score((rows.time, rows.event), survival, grid, train=rows.train) >= 0.0
    if (rows.time[rows.event] < rows.time.max()).any():
        assert 0.0 <= concordance_harrell((rows.time, rows.event), survival, grid) <= 1.0

    try:
        grid = evaluation_times(rows.time, rows.train.time, "sksurv")
    except DataError as error:
        if "needs two distinct test times" not in str(error):
            raise
        return
    survival = np.exp(-np.outer(np.linspace(0.1, 1.0, rows.time.size), grid))
    score = integrated_brier_score(
        (rows.time, rows.event), survival, grid, train=rows.train, convention="sksurv"
    )
    assert score >= 0.0


def test_grids_that_do_not_exist():
    with pytest.raises(DataError, match="all test times are 0"):
        evaluation_times([0, 0], [1, 2])
    with pytest.raises(DataError, match=r"inside \(2, 5\).*got 1\. Use larger folds or 'graf'"):
        evaluation_times([2, 3, 9], [1, 5], "sksurv")
    with pytest.raises(ConfigError, match="got 'harrell'"):
        evaluation_times([2, 3, 9], [1, 5], "harrell")


def test_the_surtree_window_takes_the_entries_of_the_sorted_distinct_times():
    """Ten distinct times: entries 1 and 9, the latter the largest and stepped back; 11: entries 1 and 9."""
    assert evaluation_times(np.arange(1.0, 11.0), [1.0], "surtree")[[0, -1]].tolist() == [2.0, 9.999]
    assert evaluation_times(np.arange(1.0, 12.0), [1.0], "surtree")[[0, -1]].tolist() == [2.0, 10.0]
    assert evaluation_times(np.arange(1.0, 21.0), [1.0], "surtree")[[0, -1]].tolist() == [3.0, 19.0]


def test_a_grid_is_thinned_where_rows_times_times_is_too_much():
    times = np.sort(np.random.default_rng(0).exponential(size=20_000))
    assert thinned(times, 6000) is times
    for n_rows, count in ((10_000, 512), (200_000, 335), (1_000_000, 67), (10**9, 32)):
        some = thinned(times, n_rows)
        assert 0.7 * count <= some.size <= count
        assert np.isin(some, times).all()
        assert (np.diff(some) > 0).all()
        assert list(some[[0, -1]]) == list(times[[0, -1]])
        # Neither most times nor most of the follow-up falls between two of them.
        assert np.diff(np.searchsorted(times, some)).max() <= 2.2 * times.size / count
        late = times[times > 0.3 * times[-1]]
        assert np.isin(late, some).sum() >= min(late.size, 0.25 * count)


def test_grids_that_share_curves_are_thinned_together():
    grids = {
        "graf": np.arange(1.0, 10_001.0),
        "osst": np.arange(51.0, 9900.0),
        "surtree": np.arange(2000.5, 8000),
    }
    assert thinned_together(grids, 100) is grids
    some = thinned_together(grids, 200_000)
    union = np.unique(np.concatenate(list(some.values())))
    assert union.size <= 335 + 6
    for name, grid in grids.items():
        assert list(some[name][[0, -1]]) == list(grid[[0, -1]])
        np.testing.assert_array_equal(some[name], union[(union >= grid[0]) & (union <= grid[-1])])
    assert thinned_together({}, 5) == {}
    assert thinned_together({**grids, "sksurv": np.empty(0)}, 200_000)["sksurv"].size == 0


def test_scores_on_a_thinned_grid_are_near_those_on_the_whole(monkeypatch):
    rng = np.random.default_rng(1)
    n = 1500
    risk = rng.normal(size=n)
    life, censoring = rng.exponential(np.exp(-risk)), rng.exponential(2.0, size=n)
    rows = (risk, (np.minimum(life, censoring), life <= censoring))

    class Model:
        def predict_survival_function(self, X, times):
            asked.append(len(times))
            return np.exp(-np.outer(np.exp(X), times))

    asked = []
    whole = evaluate(Model(), rows, rows)["value"]
    monkeypatch.setattr(limits, "WHOLE_ELEMENTS", 0)
    near = evaluate(Model(), rows, rows)["value"]
    assert asked[0] > 1500
    assert asked[1] <= 512 + 9
    names = [name for name in whole.index if not name.endswith("_p")]
    np.testing.assert_allclose(near[names], whole[names], atol=2e-3)
    np.testing.assert_allclose(near["ici_pseudo"], whole["ici_pseudo"], rtol=1e-9)
