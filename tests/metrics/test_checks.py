"""What cannot be scored raises, and names the argument; rounding passes."""

import numpy as np
import pandas as pd
import pytest
import torch

from sstorch import Surv
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import (
    HorizonRows,
    KaplanMeier,
    aalen_johansen,
    brier_score,
    concordance_harrell,
    concordance_wolbers,
    cumulative_dynamic_auc,
    d_calibration,
    evaluation_times,
    gray_test,
    integrated_brier_score,
    logrank_test,
    mean_cumulative_dynamic_auc,
    measure,
    net_benefit,
)
from sstorch.metrics.checks import check_probability, check_survival
from sstorch.metrics.comparison import corrected_resampled_t_test
from sstorch.metrics.fairness import group_parity
from sstorch.metrics.grids import incidence_times

TIME, EVENT, TIMES = [1.0, 2.0, 3.0], [1, 1, 0], [1.0, 2.0]
Y = TIME, EVENT
CURVES = np.array([[0.5, 0.2], [0.9, 0.4], [0.9, 0.8]])


def with_value(row, column, value):
    curves = CURVES.copy()
    curves[row, column] = value
    return curves


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"time": []}, "time must be one number per row"),
        ({"time": [1.0, np.nan, 3.0]}, "time: NaN in 1 row"),
        ({"time": [1.0, -2.0, -3.0]}, "time must be finite.* got -2 in 2 rows"),
        ({"time": ["1", "2", "3"]}, "got text"),
        ({"time": np.array([1, 2, 3], dtype="M8[D]")}, "got dates"),
        ({"time": np.ma.masked_array(TIME, mask=[0, 1, 0])}, "masked entries"),
        ({"time": torch.tensor(TIME, requires_grad=True)}, r"tensor\.detach"),
        ({"time": torch.ones(3, device="meta")}, "meta"),
        ({"event": [1, 0]}, "event must have 3 rows"),
        ({"event": TIME, "time": EVENT}, r"event must be .*in the order"),
        ({"times": [1.0, 1.0]}, "times must be strictly increasing"),
        ({"survival": CURVES.T}, "It looks transposed"),
        ({"survival": with_value(1, 1, np.nan)}, "survival: NaN in 1 row"),
        ({"survival": with_value(2, 0, 1.5)}, r"0.8 to 1.5 in 1 row .* not risk"),
        ({"survival": with_value(0, 1, -1e-8)}, "-1e-08 to 0.5 in 1 row"),
        ({"survival": 1.0 - CURVES}, "they increase in 3 rows .* not risk"),
    ],
)
def test_invalid_rows_and_curves_raise(changed, words):
    arguments = {"time": TIME, "event": EVENT, "survival": CURVES, "times": TIMES} | changed
    given = (arguments["time"], arguments["event"]), arguments["survival"], arguments["times"]
    with pytest.raises(DataError, match=words):
        concordance_harrell(*given)
    with pytest.raises(DataError, match=words):
        brier_score(*given, train=(TIME, EVENT))


FOUR, LATE = ([1.0, 2.0, 3.0, 4.0], [1, 1, 1, 0]), Surv([2.0, 3.0], [1, 1], entry=[1.0, 0.0])
TWO, CAUSES = ([1, 2], [1, 1]), Surv([1, 2, 3], [1, 2, 0], causes=("relapse", "death"))
NO_EVENT, MIXED = (TIME, [0, 0, 0]), ([1.0, 2.0, 3.0, 4.0], [0, 1, 1, 0])
FLAT = np.full((3, 2), 0.5)


def brier(y=Y, train=Y, curves=CURVES, times=TIMES, **options):
    return lambda: brier_score(y, curves, times, train=train, **options)


def mean_brier(times, y=Y, **options):
    return lambda: integrated_brier_score(y, FLAT, times, train=Y, **options)


def harrell(y=Y, risk=(3, 2, 1), *times, **options):
    return lambda: concordance_harrell(y, risk, *times, **options)


def auc(times, y=MIXED):
    return lambda: cumulative_dynamic_auc(y, [3, 2, 1, 0], times, train=MIXED)


def of_folds(first, n_test=2):
    return lambda: corrected_resampled_t_test(first, [0.1] * len(first), n_train=8, n_test=n_test)


def benefit(thresholds, t=1.5):
    return lambda: net_benefit(([1, 2], [1, 0]), [0.5, 0.6], t=t, thresholds=thresholds)


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (DataError, "train: .* requires y to be passed", brier(train=None)),
        (DataError, "train: y .*plain array", brier(train=np.ones((2, 2)))),
        (DataError, "train: y .*got tuple", brier(train=(TIME, EVENT, EVENT))),
        (DataError, "train: event must have 3 rows", brier(train=(TIME, [1, 0]))),
        (DataError, "train: event must be True/1", brier(train=(EVENT, TIME))),
        (DataError, "train: time must be finite", brier(train=([1.0, -1.0, 2.0], EVENT))),
        (DataError, "y has entry", brier(LATE, TWO, [[0.5], [0.5]], [2.0])),
        (DataError, "train: y has", brier(TWO, LATE, [[0.5], [0.5]], [2.0])),
        (DataError, "where nothing was observed", brier(times=[40.0, 50.0])),
        (DataError, "where nothing was observed", harrell(Y, CURVES, [0.1, 0.2])),
        (DataError, "where nothing was observed", lambda: d_calibration(Y, CURVES, [40.0, 50.0])),
        (DataError, "t must not be NaN", lambda: KaplanMeier.fit(Y).at([1.0, np.nan])),
        (DataError, "y has competing causes, and Harrell's concordance is of one", harrell(CAUSES)),
        (DataError, r"no comparable pair among 3 rows.*larger", harrell(tau=0.5)),
        (DataError, r"no comparable pair among 3 rows.*larger", harrell(NO_EVENT)),
        (DataError, r"no comparable pair among 3 rows.*larger", harrell((TIME, [0, 0, 1]))),
        (ConfigError, "tied_time", harrell(tied_time="half")),
        (ConfigError, "tau", harrell(tau=0.0)),
        (DataError, "no comparable pair", lambda: concordance_wolbers(([1, 2], [0, 3]), [0.1, 0.2], 2)),
        (DataError, "at risk together", harrell(Surv([1.0, 2.0], [1, 1], entry=[0.0, 1.0]), [2.0, 1.0])),
        (DataError, "got 3", lambda: aalen_johansen(([1, 2], [0, 3]), [1.0], n_causes=2)),
        (DataError, "no row has an event", lambda: incidence_times(NO_EVENT)),
        (DataError, "cases and controls", auc([1.5, 3.0])),
        (DataError, "cases and controls", auc([2.0, 4.0])),
        (DataError, "up to 1.5", lambda: mean_cumulative_dynamic_auc(MIXED, [0.5], [1.5])),
        (DataError, "auc must have 1 rows", lambda: mean_cumulative_dynamic_auc(MIXED, [0.5] * 2, [1.5])),
        (DataError, r"largest test time, 3.*evaluation_times", mean_brier([1.0, 2.0])),
        (DataError, "all test times are 0", mean_brier([0.0, 2.0], ([0.0] * 3, [1, 0, 1]))),
        (DataError, r"two times in \[1, 3\).*got 1", mean_brier([2.0, 3.0], convention="sksurv")),
        (DataError, r"two times in \[1, 2.999\).*'surtree'", mean_brier([3.0, 4.0], convention="surtree")),
        (DataError, "where nothing was observed", mean_brier([365.0, 730.0], convention="osst")),
        (DataError, "all test times are 0", lambda: evaluation_times([0, 0], [1, 2])),
        (DataError, r"inside \(2, 5\).*got 1", lambda: evaluation_times([2, 3, 9], [1, 5], "sksurv")),
        (DataError, "got 2 and 1.999 from 1 distinct", lambda: evaluation_times([2, 2], [1, 2], "surtree")),
        (DataError, "got only 2", lambda: evaluation_times([2, 2], [1, 2], "osst")),
        (ConfigError, "convention", lambda: evaluation_times([2, 3, 9], [1, 5], "harrell")),
        (ConfigError, "convention", brier(convention="p")),
        (ConfigError, "bootstrap", lambda: measure(HorizonRows.of(FOUR, [0.1] * 4, 2.5), "c_wolbers")),
        (ConfigError, "level", lambda: measure(HorizonRows.of(FOUR, [0.1] * 4, 2.5), "brier", 1.0)),
        (ConfigError, "thresholds must be risks in", benefit([1.0])),
        (ConfigError, "thresholds must be risks in", benefit([])),
        (ConfigError, "thresholds must be risks in", benefit([np.nan])),
        (DataError, "t must be a time within the observed ones", benefit([0.5], t=9.0)),
        (ConfigError, "level", lambda: KaplanMeier.fit(TWO, level=95)),
        (DataError, "overlap", lambda: KaplanMeier.fit(Surv([1, 2], [1, 0], id=[0, 0], weight=[1, 2]))),
        (DataError, "group must have one label", lambda: logrank_test(TWO, [0])),
        (DataError, "strata must have one label", lambda: gray_test(CAUSES, [0, 1, 1], strata=[1])),
        (ConfigError, "unknown cause 'cure'", lambda: gray_test(CAUSES, [0, 1, 1], "cure")),
        (DataError, "one group", lambda: group_parity(CURVES, np.ones(2), np.zeros(3))),
        (DataError, "two splits", of_folds([0.5])),
        (DataError, "finite", of_folds([0.5, np.inf])),
        (ConfigError, "n_test", of_folds([0.5, 0.6], n_test=0)),
    ],
)
def test_what_has_no_score_raises(error, words, call):
    with pytest.raises(error, match=words):
        call()


def test_rounding_is_that_of_the_type():
    check_survival(np.array([[0.5, 0.5 + 5e-10]]), 1, 2)
    rising = np.array([[0.5, 0.5 + 1e-7]])
    frame = pd.DataFrame(rising)
    single = torch.tensor(rising, dtype=torch.float32)
    for coarse in (rising.astype(np.float32), frame.astype(np.float32), single):
        check_survival(check_survival(coarse, 1, 2), 1, 2)
    steps = 0.5 + np.arange(5000)[None] * 9e-10  # each within the rounding
    for double in (rising, frame, torch.tensor(rising), steps, np.array([[0.5, 0.501]], dtype=np.float32)):
        with pytest.raises(DataError, match="they increase in 1 row"):
            check_survival(double, 1, np.shape(double)[1])
    for half in (CURVES.astype(np.float16), torch.tensor(CURVES).bfloat16(), torch.tensor(CURVES).half()):
        with pytest.raises(DataError, match="survival must be "):
            check_survival(half, 3, 2)
    got = check_probability(np.array([1.0 + 1e-7, -1e-7], dtype=np.float32), "survival", 2)
    assert got.tolist() == [1.0, 0.0]
    with pytest.raises(DataError, match="must be probabilities"):
        check_probability([1.0 + 1e-7, 0.0], "survival", 2)


def test_row_labels_in_another_order_raise():
    time, event = pd.Series(TIME, index=[7, 8, 9]), pd.Series(EVENT, index=[7, 8, 9])
    curves, weight = pd.DataFrame(CURVES, index=[9, 8, 7]), pd.Series([1.0, 1.0, 1.0], index=[8, 7, 9])
    y, train = (time, event), {"train": (TIME, EVENT)}
    for call in (
        lambda: brier_score(y, curves, TIMES, **train),
        lambda: concordance_harrell(y, curves, TIMES),
        lambda: concordance_harrell(y, TIME, sample_weight=weight),
        lambda: concordance_harrell((time, event[::-1]), TIME),
        lambda: cumulative_dynamic_auc(y, curves, TIMES, **train),
        lambda: d_calibration(y, curves, TIMES),
    ):
        with pytest.raises(DataError, match="the same row labels in a different order"):
            call()
    other = pd.DataFrame(CURVES, index=["a", "b", "c"])  # other labels say nothing about the order
    assert concordance_harrell(y, other, TIMES) == 1.0
