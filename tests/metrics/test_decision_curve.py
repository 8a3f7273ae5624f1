"""Net benefit: against a plain loop over Kaplan-Meier of lifelines, dcurves, and a printed example."""

import numpy as np
import pandas as pd
import pytest
from lifelines import KaplanMeierFitter

from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import net_benefit


def _cohort(n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rounded times, so that events and censorings tie, and predictions that tell something."""
    rng = np.random.default_rng(seed)
    score = rng.normal(size=n)
    failed, left = rng.exponential(np.exp(-score)), rng.exponential(2.0, n)
    time = np.maximum(np.round(np.minimum(failed, left), 1), 0.1)
    return time, failed <= left, np.exp(-np.exp(score + 0.3 * rng.normal(size=n)))


def test_it_is_the_definition_with_kaplan_meier_of_lifelines() -> None:
    time, event, survival = _cohort()
    thresholds = [0.0, 0.2, 0.5, 0.8]
    table = net_benefit((time, event), survival, t=1.0, thresholds=thresholds)
    for p in thresholds:
        above = 1.0 - survival >= p
        for name, inside in (("net_benefit", above), ("treat_all", np.ones_like(above))):
            fitter = KaplanMeierFitter().fit(time[inside], event[inside])
            alive = float(fitter.survival_function_at_times(1.0).iloc[0])
            found, needless = (1.0 - alive) * inside.mean(), alive * inside.mean()
            assert table.loc[p, name] == pytest.approx(found - needless * p / (1.0 - p), abs=1e-12)
        assert table.loc[p, "n_above"] == above.sum()
    assert (table["treat_none"] == 0.0).all()


@pytest.mark.nightly
def test_dcurves() -> None:
    dcurves = pytest.importorskip("dcurves", reason="dcurves is not installed")
    time, event, survival = _cohort(seed=1)
    thresholds = np.arange(0.05, 0.8, 0.05)
    frame = pd.DataFrame({"time": time, "event": event.astype(int), "risk": 1.0 - survival})
    peer = dcurves.dca(
        frame,
        outcome="event",
        modelnames=["risk"],
        time=1.0,
        time_to_outcome_col="time",
        thresholds=thresholds,
    ).set_index("model")
    table = net_benefit((time, event), survival, t=1.0, thresholds=thresholds)
    np.testing.assert_allclose(table["net_benefit"], peer.loc["risk", "net_benefit"], atol=1e-6)
    np.testing.assert_allclose(table["treat_all"], peer.loc["all", "net_benefit"], atol=1e-6)


def test_a_risk_at_the_threshold_is_above_it_despite_rounding() -> None:
    assert 1.0 - 0.77 < 0.23
    table = net_benefit(([1, 2, 3, 4], [1, 0, 1, 0]), [0.77] * 4, t=2.5, thresholds=[0.23])
    assert table["n_above"].item() == 4


def test_nobody_above_is_zero_and_too_short_a_follow_up_is_not_known() -> None:
    time, event = [1.0, 2.0, 2.5, 6.0], [1, 1, 0, 0]
    table = net_benefit((time, event), [0.1, 0.1, 0.1, 0.6], t=5.0, thresholds=[0.3, 0.5, 0.95])
    assert table.loc[0.95, "net_benefit"] == 0.0
    assert table.loc[0.95, "n_above"] == 0
    assert not np.signbit(table.loc[0.95, "net_benefit"])
    assert np.isnan(table.loc[0.5, "net_benefit"])
    assert "observed up to 5" in table.loc[0.5, "reason"]
    assert np.isfinite(table.loc[0.3, "net_benefit"])
    assert table.loc[0.3, "reason"] == ""
    # All had the event: nobody is left whose later time could matter.
    ended = net_benefit(([1.0, 2.0, 6.0], [1, 1, 0]), [0.1, 0.1, 0.6], t=5.0, thresholds=[0.5])
    assert ended["net_benefit"].item() == pytest.approx(2 / 3)


@pytest.mark.parametrize("thresholds", [[1.0], [-0.1], [], [[0.1]], [np.nan]])
def test_thresholds_that_are_none(thresholds: object) -> None:
    with pytest.raises(ConfigError, match="thresholds must be risks in"):
        net_benefit(([1, 2], [1, 0]), [0.5, 0.6], t=1.5, thresholds=thresholds)


def test_a_time_beyond_the_observed_ones() -> None:
    with pytest.raises(DataError, match="t must be a time within the observed ones"):
        net_benefit(([1, 2], [1, 0]), [0.5, 0.6], t=9.0, thresholds=[0.5])
