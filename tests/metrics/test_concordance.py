import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from lifelines.utils import concordance_index

import sstorch.metrics.pairs as module
from sstorch.data import Surv
from sstorch.exceptions import DataError
from sstorch.metrics import concordance_harrell

from .cohorts import cohorts, scored
from .oracles import concordance_by_loops, or_no_pair, sksurv_metrics, step_value

EXACT = 1e-12


def by_loops(time, event, value_at, tied_time):
    return concordance_by_loops(time, event, value_at, tied_time=tied_time)


@given(scored())
def test_curves_off_the_grid_are_right_continuous_steps_from_one(rows):
    coarse = rows.times[1::2]
    assume(coarse.size)
    survival = rows.survival[:, 1::2]
    got = or_no_pair(concordance_harrell, (rows.time, rows.event), survival, coarse)
    expected = by_loops(rows.time, rows.event, step_value(survival, coarse), "exclude")
    assert got == pytest.approx(expected, abs=EXACT)


@given(cohorts(), st.data())
def test_risk_equals_scikit_survival_and_lifelines(rows, data):
    sksurv = sksurv_metrics()
    risk = np.array(data.draw(st.lists(st.integers(-3, 3), min_size=rows.time.size, max_size=rows.time.size)))
    got = or_no_pair(concordance_harrell, rows, risk, tied_time="censored_later")
    assume(got is not None)
    expected = sksurv.concordance_index_censored(rows.event, rows.time, risk.astype(float), tied_tol=0.0)[0]
    assert got == pytest.approx(expected, abs=EXACT)
    assert got == pytest.approx(concordance_index(rows.time, -risk, rows.event), abs=EXACT)


@given(scored(), st.integers(1, 40))
def test_block_size_changes_nothing(rows, block):
    args = ((rows.time, rows.event), rows.survival, rows.times)
    whole = or_no_pair(concordance_harrell, *args)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_ELEMENTS", block)
        assert or_no_pair(concordance_harrell, *args) == whole


@pytest.mark.parametrize("tied_time", ["exclude", "censored_later", "all"])
@pytest.mark.parametrize("digits", [1, 9])
def test_events_that_share_a_column_equal_pairs(tied_time, digits, monkeypatch):
    random = np.random.default_rng(1)
    time = random.exponential(size=300).round(digits) + 0.1
    survival = np.exp(-random.exponential(size=(300, 1)) * [0.2, 0.5, 1.5]).round(digits)
    whole = Surv(time, random.random(300) < 0.6)
    late = Surv(time, whole.event, entry=time * random.random(300) / 2, weight=random.random(300))

    def values():
        return [concordance_harrell(y, survival, [0.3, 0.6, 1.2], tied_time=tied_time) for y in (whole, late)]

    monkeypatch.setattr(module, "_MANY", 10**6)
    pairs = values()
    monkeypatch.setattr(module, "_MANY", 2)
    assert values() == pytest.approx(pairs, abs=EXACT)


@pytest.mark.parametrize(
    ("time", "event", "n_events"), [([1, 2, 3], [0, 0, 0], 0), ([1, 2, 3], [0, 0, 1], 1), ([2, 2], [1, 1], 2)]
)
def test_no_comparable_pair_is_an_error_with_a_remedy(time, event, n_events):
    with pytest.raises(
        DataError, match=rf"no comparable pair among {len(time)} rows with {n_events} events.*larger"
    ):
        concordance_harrell((time, event), np.arange(len(time)))
