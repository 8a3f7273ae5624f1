"""The external validation of McLernon et al. (2023), Annals of Internal Medicine 176, 105-114.

Numbers with many digits are those of R: survival 3.5, rms 6.5 and riskRegression 2022.11 on the same rows.
"""

import numpy as np
import pytest
from lifelines import CoxPHFitter

from sstorch import validate
from sstorch.metrics.cox import fit_cox
from tests.evaluation.validation.rotterdam import HORIZON, cohorts, followed


class EfronCox:
    """The same model with the baseline hazard of R, Efron's; that of lifelines is Breslow's."""

    def __init__(self, X: np.ndarray, time: np.ndarray, event: np.ndarray) -> None:
        self.fitted = fit_cox(time, event, X)

    def predict_survival_function(self, X: object, times: np.ndarray) -> np.ndarray:
        hazards = [self.fitted.cumulative_hazard(np.asarray(X), t)[0] for t in times]
        return np.exp(-np.column_stack(hazards))


def test_the_printed_numbers_with_the_model_of_lifelines() -> None:
    fit, check = cohorts()
    model = CoxPHFitter().fit(followed(fit), "time", "event")
    report = validate(
        model, check.X, (check.time, check.event), horizon=HORIZON, thresholds=[0.23], n_resamples=0
    )
    table = report.to_frame()
    printed = {
        "c_harrell": (2, 0.65, 0.62, 0.69),
        "c_uno": (2, 0.64, 0.60, 0.67),
        "calibration_slope": (3, 1.056, 0.816, 1.297),
        "ici": (3, 0.030),
        "e50": (3, 0.026),
        "e90": (3, 0.075),
        "e_max": (3, 0.075),
        "auc": (2, 0.68),
        "brier": (2, 0.22),
        "scaled_brier": (2, 0.10),
        "net_benefit(0.23)": (3, 0.362),
        # Published 1.017 (0.906 to 1.143): the baseline is Efron's there.
        "oe_ratio": (3, 1.018, 0.906, 1.143),
    }
    for name, (digits, value, *limits) in printed.items():
        assert round(table["value"][name], digits) == value, name
        assert [round(table[end][name], digits) for end in ("lower", "upper")[: len(limits)]] == limits, name
    # The published AUC and its limits are those at 4.99 years, since its rows are cut at 5.
    at_499 = validate(model, check.X, (check.time, check.event), horizon=4.99, n_resamples=0).to_frame()
    auc = at_499.loc["auc", ["value", "lower", "upper"]].astype(float)
    assert auc.round(2).tolist() == [0.68, 0.62, 0.73]
    np.testing.assert_allclose(auc, [0.6774637, 0.62253102, 0.73239637], atol=1e-4)


def test_the_digits_of_r_with_the_baseline_of_r() -> None:
    fit, check = cohorts()
    rows = followed(fit)
    model = EfronCox(fit.X.to_numpy(), rows["time"].to_numpy(), rows["event"].to_numpy(dtype=bool))
    coefficients = [0.3418423, 0.5735549, 0.3039651, -0.8111669, 0.3617101]
    np.testing.assert_allclose(model.fitted.coefficients, coefficients, atol=1e-7)
    y = check.time, check.event
    report = validate(model, check.X, y, horizon=HORIZON, thresholds=[0.23, 0.4, 0.6], n_resamples=0)
    table = report.to_frame()
    values = {
        "c_harrell": 0.6524007561437,
        "c_uno": 0.6353713246515,
        "oe_ratio": 1.0173901825,
        "calibration_slope": 1.0562039519,
        # By coxph and survfit; cph of rms stops its iterations earlier: .030180, .026278, .074665, .075436.
        "ici": 0.0301288355,
        "e50": 0.02619961940,
        "e90": 0.07459371912,
        "e_max": 0.07527914785,
        "net_benefit(0.23)": 0.3615001684,
        "net_benefit(0.4)": 0.1885776998,
        "net_benefit(0.6)": 0.0651502742,
    }
    for name, value in values.items():
        assert table["value"][name] == pytest.approx(value, abs=1e-7), name
    limits = {
        "c_harrell": (0.6524007561437, 0.0167168966259),
        "calibration_slope": (1.0562039519, (1.2965206781 - 0.8158872257) / 2 / 1.959964),
    }
    for name, (value, error) in limits.items():
        assert table["upper"][name] == pytest.approx(value + 1.959963984540054 * error, abs=1e-6), name
    assert table["lower"]["oe_ratio"] == pytest.approx(0.9058698141, abs=1e-4)  # 1.96 in R
    # R's error of Uno's concordance, .01651, takes its weights as known.
    error = (table["upper"]["c_uno"] - table["value"]["c_uno"]) / 1.959964
    assert error == pytest.approx(0.0165111912096, rel=2e-3)
    at_499 = validate(model, check.X, y, horizon=4.99, n_resamples=0).to_frame()
    assert at_499["value"]["brier"] == pytest.approx(0.2247775398, abs=5e-5)  # predictions of R are at 4.99
    assert (at_499["upper"]["brier"] - at_499["value"]["brier"]) / 1.959964 == pytest.approx(
        0.00785226, rel=1e-3
    )
    assert at_499["value"]["scaled_brier"] == pytest.approx(0.1006387095, abs=5e-5)
    curve = report.calibration_curve()
    first = report.predictions.survival[:3]
    band = {
        name: np.interp(first, curve["predicted"], curve[name]) for name in ("observed", "lower", "upper")
    }
    # survfit with conf.type="log-log" at the first three rows.
    np.testing.assert_allclose(band["observed"], [0.643648830, 0.222078416, 0.410827776], atol=1e-4)
    np.testing.assert_allclose(band["lower"], [0.570679183, 0.162932998, 0.348864654], atol=1e-4)
    np.testing.assert_allclose(band["upper"], [0.707450679, 0.287109221, 0.471671230], atol=1e-4)
