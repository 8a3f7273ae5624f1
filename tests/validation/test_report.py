"""The report of a validation: its table, what it refuses, its page, its checklist and comparisons."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from sklearn.base import clone

from sstorch import Columns, OptimalSurvivalTree, Surv, SurvivalRegression, validate
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import HorizonRows, measure, net_benefit
from sstorch.validation import ValidationReport

T = 1.2
NAMES = [
    "c_harrell_t",
    "c_uno_t",
    "auc",
    "oe_ratio",
    "oe_hazard",
    "calibration_intercept",
    "calibration_slope",
    "ici",
    "e50",
]
NAMES += ["e90", "e_max", "brier", "scaled_brier"]


class Known:
    """A model of one column, right up to a factor of its hazard and a factor of its score."""

    time_unit_ = "years"

    def __init__(self, slope: float = 1.0, level: float = 1.0) -> None:
        self.slope, self.level = slope, level

    def predict_survival_function(self, X: pd.DataFrame, times: Any) -> np.ndarray:
        hazard = self.level * np.exp(self.slope * X["x"].to_numpy())
        return np.exp(-hazard[:, None] * np.asarray(times))


def _rows(n: int = 250, seed: int = 3) -> tuple[pd.DataFrame, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    failed, left = rng.exponential(np.exp(-x)), rng.exponential(2.0, n)
    X = pd.DataFrame({"x": x, "stage": np.where(rng.random(n) < 0.1, np.nan, 1.0)})
    return X, (np.minimum(failed, left), failed <= left)


@pytest.fixture(scope="module")
def report() -> ValidationReport:
    X, y = _rows()
    return validate(Known(), X, y, horizon=T, thresholds=[0.5, 0.2], n_resamples=40)


def test_every_measure_has_limits_around_it(report: ValidationReport) -> None:
    table = report.to_frame()
    assert table.index.tolist() == [*NAMES, "net_benefit(0.2)", "net_benefit(0.5)"]
    assert (table["lower"] < table["upper"]).all()
    inside = (table["lower"] <= table["value"]) & (table["value"] <= table["upper"])
    assert inside.drop(["ici", "e50", "e90", "e_max"]).all()  # a resample is never as calibrated as its rows
    assert (table["reason"] == "").all()
    for name, ideal in (("oe_ratio", 1.0), ("calibration_intercept", 0.0)):
        assert table["lower"][name] < ideal < table["upper"][name]


def test_it_shows_its_numbers(report: ValidationReport) -> None:
    text = repr(report)
    assert text.startswith("Known on 250 rows, ")
    assert f"{report.table['value']['brier']:.3f}" in text


def test_limits_of_the_bootstrap_are_quantiles_over_resampled_rows(report: ValidationReport) -> None:
    X, (time, event) = _rows()
    survival = Known().predict_survival_function(X, [T])[:, 0]
    rng, drawn = np.random.default_rng(0), []
    for _ in range(40):
        rows = rng.integers(0, time.size, time.size)
        part = (time[rows], event[rows]), survival[rows]
        drawn.append(net_benefit(*part, t=T, thresholds=[0.5])["net_benefit"].item())
    limits = report.table.loc["net_benefit(0.5)", ["lower", "upper"]].astype(float)
    np.testing.assert_allclose(limits, np.quantile(drawn, [0.025, 0.975]), atol=1e-12)
    found = report.table.loc["e90", ["value", "lower", "upper"]].astype(float)
    np.testing.assert_array_equal(found, measure(HorizonRows.of((time, event), survival, T), "e90"))


def test_a_model_of_lifelines_and_its_curves_are_the_same() -> None:
    X, (time, event) = _rows()
    X = X[["x"]]
    model = CoxPHFitter().fit(X.assign(time=time, event=event), "time", "event")
    report = validate(model, X, (time, event), horizon=T, n_resamples=0)
    expected = model.predict_survival_function(X, times=[T]).to_numpy()[0]
    np.testing.assert_array_equal(report.predictions.survival, expected)


def test_predictions_all_alike_have_reasons_in_place_of_a_slope() -> None:
    X, y = _rows()
    table = validate(Known(slope=0.0), X, y, horizon=T, n_resamples=20).to_frame()
    assert np.isnan(table["value"]["calibration_slope"])
    assert "all predictions are equal" in table["reason"]["calibration_slope"]
    errors = table["value"][["ici", "e50", "e90", "e_max"]]  # all rows have the distance of their mean
    np.testing.assert_allclose(errors, errors["ici"], rtol=1e-9)
    assert table["value"]["auc"] == pytest.approx(0.5, abs=1e-12)
    assert np.isfinite(table["value"]["brier"])


def test_without_resamples_there_are_no_limits_by_bootstrap() -> None:
    X, y = _rows()
    table = validate(Known(), X, y, horizon=T, n_resamples=0).to_frame()
    by_bootstrap = table["method"] == "bootstrap"
    assert table["lower"][by_bootstrap].isna().all()
    assert table["lower"][~by_bootstrap].notna().all()
    assert (table["reason"] == "").all()


def test_the_page_needs_no_other_file(report: ValidationReport, tmp_path: Path) -> None:
    path = report.to_html(tmp_path / "page.html")
    page = path.read_text(encoding="utf-8")
    assert not re.findall(r"(?:src|href)=[\"'](?!data:|#)|<script|@import|url\(", page)
    assert page.count("<img") == 2
    for text in ("Known on 250 rows", "1.2 years", "calibration slope", "TRIPOD+AI", "stage", "threshold"):
        assert text in page, text
    table = report.to_frame()
    assert f"{table['value']['c_harrell_t']:.3f}"[1:] in page
    assert page.count("<tr>") >= len(table) + 50


def test_a_page_without_a_calibration_curve_says_why(tmp_path: Path) -> None:
    X, y = _rows()
    report = validate(Known(slope=0.0, level=0.0), X, y, horizon=T, n_resamples=0)
    page = report.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "No curve. survival: predictions of 0 or 1 have no place" in page
    assert page.count("<img") == 1


def test_the_checklist_has_every_item_and_tells_what_it_knows(report: ValidationReport) -> None:
    items = report.tripod()
    assert {int(re.match(r"\d+", number)[0]) for number in items.index} == set(range(1, 28))  # type: ignore[index]
    assert len(items) == 52
    _, (time, event) = _rows()
    expected = f"{event.sum()} events, {(event & (time <= T)).sum()} of them up to 1.2 years"
    assert expected in items["reported"]["21"]
    assert "stage" in items["reported"]["11"]
    assert items["reported"]["17"] == ""
    assert (items["left"] != "").all()


def test_figures(report: ValidationReport) -> None:
    ax = report.plot_decision_curve()
    everybody, nobody, model = (line.get_ydata() for line in ax.get_lines())
    curve = report.decision_curve()
    np.testing.assert_array_equal(model, curve["net_benefit"])
    np.testing.assert_array_equal(everybody, curve["treat_all"])
    assert not np.any(nobody)
    observed = report.plot_calibration().get_lines()[1]
    np.testing.assert_array_equal(observed.get_ydata(), report.calibration_curve()["observed"])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": Known}, DataError, "model must be a fitted estimator"),
        ({"model": object()}, DataError, "model must be a fitted estimator"),
        ({"horizon": 99.0}, DataError, "horizon must be a time within the observed ones"),
        ({"horizon": 0.0}, ConfigError, "horizon must be one finite time"),
        ({"thresholds": [1.2]}, ConfigError, "thresholds must be risks in"),
        ({"n_resamples": 5}, ConfigError, "n_resamples must be 0 or at least 20"),
        ({"level": 2.0}, ConfigError, "level"),
        ({"random_state": -1}, ConfigError, "random_state must be at least 0"),
    ],
)
def test_what_is_refused(change: dict[str, Any], error: type[Exception], message: str) -> None:
    X, y = _rows(30)
    given = {"model": Known(), "X": X, "y": y, "horizon": T, **change}
    with pytest.raises(error, match=message):
        validate(**given)


def test_a_model_that_predicts_another_number_of_rows() -> None:
    class Odd:
        def predict_survival_function(self, X: Any, times: Any) -> np.ndarray:
            return np.full((3, 1), 0.5)

    X, y = _rows(30)
    with pytest.raises(DataError, match=r"shape .* = \(30, 1\), got \(3, 1\)"):
        validate(Odd(), X, y, horizon=T)


def test_each_measure_of_small_and_strange_cohorts_has_a_value_or_a_reason() -> None:
    """Ties, few events, all censored, certain, equal and extreme predictions; warnings are errors."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        n = int(rng.integers(2, 30))
        time = np.round(rng.exponential(size=n), int(rng.integers(1, 4))) + 0.01
        event = rng.random(n) < rng.choice([0.0, 0.1, 0.5, 1.0])
        score = rng.normal(size=n) * rng.choice([0.0, 1.0, 30.0])
        survival = np.round(np.exp(-np.exp(np.clip(score, -700.0, 6.5))), int(rng.choice([0, 1, 300])))

        class Given:
            def predict_survival_function(self, X: Any, times: Any, survival: Any = survival) -> np.ndarray:
                return np.asarray(survival)[:, None]

        report = validate(
            Given(), np.zeros((n, 1)), (time, event), horizon=float(rng.choice(time)), n_resamples=0
        )
        table = report.to_frame()
        no_variance = table["reason"].str.startswith("no limits: the variance cannot be estimated")
        assert table["value"][no_variance].notna().all()
        assert table["lower"][no_variance].isna().all()
        assert (((table["reason"] != "") & ~no_variance) == table["value"].isna()).all()


@pytest.mark.filterwarnings("ignore:.*in every column")  # of the resample that the test draws
def test_training_rows_are_recognised_and_corrected_for_optimism(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    X = pd.DataFrame(rng.normal(size=(80, 6)), columns=list("abcdef")).assign(g=rng.choice(["u", "v"], 80))
    time, end = rng.exponential(np.exp(-0.5 * X["a"])), rng.exponential(2.0, 80)
    y = Surv(np.minimum(time, end), time <= end)
    model = SurvivalRegression(columns=Columns(numeric="linear")).fit(X, y)
    options = {"horizon": 0.7, "n_resamples": 0, "thresholds": [0.5]}
    report = validate(model, X, y, **options)
    assert report.facts.apparent
    assert "Apparent: these are the training rows" in repr(report)
    assert report.tripod().loc["21", "reported"].startswith("apparent validation")
    assert "Apparent validation" in report.to_html(tmp_path / "page.html").read_text()
    order = rng.permutation(80)
    assert validate(model, X.iloc[order, ::-1], y[order], **options).facts.apparent
    model.save(tmp_path / "model")
    assert validate(SurvivalRegression.load(tmp_path / "model"), X, y, **options).facts.apparent
    assert not validate(model, X[:70], y[:70], **options).facts.apparent
    changed = X.assign(a=X["a"] + 1e-3)
    assert not validate(model, changed, y, **options).facts.apparent
    with pytest.raises(ConfigError, match="n_refits corrects for the optimism of training rows"):
        validate(model, changed, y, n_refits=2, **options)
    table = validate(model, X, y, n_refits=3, **options).to_frame()
    draws, lost = np.random.default_rng(0), []
    for _ in range(3):
        rows = draws.integers(0, 80, 80)
        refit = clone(model).fit(X.iloc[rows], y[rows])
        parts = [
            measure(
                HorizonRows.of(each, refit.predict_survival_function(frame, 0.7)[:, 0], 0.7), "c_harrell_t"
            ).value
            for each, frame in ((y[rows], X.iloc[rows]), (y, X))
        ]
        lost.append(parts[0] - parts[1])
    expected = table["value"]["c_harrell_t"] - np.mean(lost)
    assert table["corrected"]["c_harrell_t"] == pytest.approx(expected, abs=1e-12)
    assert table["corrected"]["c_harrell_t"] < table["value"]["c_harrell_t"]


@pytest.mark.parametrize("competing", [False, True])
def test_training_rows_of_an_exact_tree_are_apparent(competing: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=80), "c": rng.choice(["a", "b"], 80)})
    X.loc[3, "x"] = np.nan
    y = Surv(rng.uniform(1, 9, 80), np.tile([0, 1, 2, 1], 20), causes=("a", "b"))
    y = y if competing else y.any_cause()
    tree = OptimalSurvivalTree(max_depth=1).fit(X, y)
    tree.save(tmp_path / "tree")
    for each in (tree, OptimalSurvivalTree.load(tmp_path / "tree")):
        assert validate(each, X, y, horizon=5, n_resamples=0).facts.apparent
        assert not validate(each, X[:70], y[:70], horizon=5, n_resamples=0).facts.apparent
