"""The unit of times, from data to texts and files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sstorch import OptimalSurvivalTree, SurvivalData, SurvivalRegression, load_dataset
from sstorch.data.time_unit import HORIZON_SHARES, duration, round_horizons
from sstorch.reading import export_text, leaf_table
from tests.flat import soft_tree


@pytest.mark.parametrize(
    ("quartiles", "unit", "expected"),
    [
        ((446.5, 692.5, 1144.5), "days", [365, 730, 1095]),
        ((6.0, 9.5, 20.0), "days", [7, 14]),  # of 9.5 a week is nearer than two, of 20 a fortnight
        ((13.0, 23.0, 55.0), "months", [12, 24, 60]),
        ((0.011, 0.024, 0.13), "years", [0.01, 0.02, 0.1]),
        ((446.5, 692.5, 1144.5), None, [500, 700, 1000]),
        ((446.5, 692.5, 1144.5), "cycles", [500, 700, 1000]),
        ((20000.0, 21000.0, 90000.0), "days", [20000, 100000]),
    ],
)
def test_horizons_are_round_and_near(quartiles: Any, unit: str | None, expected: list[float]) -> None:
    low, middle, high = quartiles
    times = [low, low, middle, high, high + 1e9]  # quartiles are the second to fourth of five
    np.testing.assert_array_equal(round_horizons(times, unit, (0.25, 0.5, 0.75)), expected)


def test_no_horizon_is_after_the_last_event_or_far_from_its_quantile() -> None:
    draws = np.random.default_rng(0)
    for scale in 10.0 ** draws.uniform(-5, 7, 200):
        times = scale * draws.weibull(1.3, draws.integers(1, 30)) + 1e-6 * scale
        for unit in (None, "days", "months", "hours"):
            horizons = round_horizons(times, unit)
            assert 1 <= len(horizons) <= 3
            assert (np.diff(horizons) > 0).all()
            # To six digits, which a horizon that is a quantile has.
            assert horizons[-1] <= times.max() * (1 + 1e-5)
            ratio = np.log(horizons[:, None] / np.quantile(times, HORIZON_SHARES))
            assert (np.abs(ratio).min(axis=1) <= np.log(2) + 1e-4).all()


def test_a_unit_goes_from_the_data_to_texts_and_into_files(tmp_path: Path) -> None:
    data = load_dataset("gbsg2")
    assert data.time_unit == data.subset([0, 1]).time_unit == "days"
    assert ", times 8 to 2659 days, " in data.describe()
    rows = data.frame.assign(time=data.time, event=data.event)
    assert SurvivalData.from_frame(rows, time_unit=" weeks").time_unit == "weeks"
    depth_0 = {"depth": 0, "numeric": "linear"}
    y = data.time, data.event
    tree = soft_tree(time_unit="days", **depth_0).fit(data.frame, y)
    quantities = leaf_table(tree).columns.unique("quantity")
    assert [name for name in quantities if name.startswith("S(")] == ["S(365)", "S(730)", "S(1825)"]
    tree.save(tmp_path / "tree")
    again = SurvivalRegression.load(tmp_path / "tree")
    assert (again.time_unit_, export_text(again)) == ("days", export_text(tree))
    plain = soft_tree(**depth_0).fit(data.frame, y)
    assert (plain.time_unit_, export_text(plain)) == (None, export_text(tree).removesuffix(" days"))
    exact = OptimalSurvivalTree(1, time_unit="days").fit(data.frame, y)
    assert "median 983 days" in export_text(exact)


def test_duration_has_a_singular() -> None:
    of_units = [(1, "years"), (2.5, "years"), (12410.4, "days"), (1, None), (1, "")]
    assert [duration(*each) for each in of_units] == ["1 year", "2.5 years", "12410 days", "1", "1"]
