"""Net benefit: against a plain loop over Kaplan-Meier of lifelines, and dcurves."""

import numpy as np
import pytest
from lifelines import KaplanMeierFitter

from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import net_benefit

from .cohorts import predicted_rows


def test_it_is_the_definition_with_kaplan_meier_of_lifelines() -> None:
    time, event, survival = predicted_rows(300)
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


def test_thresholds_above_all_risks_and_too_short_a_follow_up() -> None:
    assert 1.0 - 0.77 < 0.23  # a risk at the threshold is above it despite rounding
    table = net_benefit(([1, 2, 3, 4], [1, 0, 1, 0]), [0.77] * 4, t=2.5, thresholds=[0.23])
    assert table["n_above"].item() == 4
    y, survival = ([1.0, 2.0, 2.5, 6.0], [1, 1, 0, 0]), [0.1, 0.1, 0.1, 0.6]
    table = net_benefit(y, survival, t=5.0, thresholds=[0.3, 0.5, 0.95])
    assert table.loc[0.95, ["net_benefit", "n_above"]].tolist() == [0.0, 0]
    assert not np.signbit(table.loc[0.95, "net_benefit"])
    assert np.isnan(table.loc[0.5, "net_benefit"])
    assert "observed up to 5" in table.loc[0.5, "reason"]
    assert np.isfinite(table.loc[0.3, "net_benefit"])
    assert table.loc[0.3, "reason"] == ""
    # All had the event: there is no row whose later time could matter.
    ended = net_benefit(([1.0, 2.0, 6.0], [1, 1, 0]), [0.1, 0.1, 0.6], t=5.0, thresholds=[0.5])
    assert ended["net_benefit"].item() == pytest.approx(2 / 3)


@pytest.mark.parametrize("thresholds", [[1.0], [-0.1], [], [[0.1]], [np.nan]])
def test_wrong_thresholds_raise(thresholds: object) -> None:
    with pytest.raises(ConfigError, match="thresholds must be risks in"):
        net_benefit(([1, 2], [1, 0]), [0.5, 0.6], t=1.5, thresholds=thresholds)
    with pytest.raises(DataError, match="t must be a time within the observed ones"):
        net_benefit(([1, 2], [1, 0]), [0.5, 0.6], t=9.0, thresholds=[0.5])
