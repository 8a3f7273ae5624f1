"""The report of a validation: its table, what it refuses, its page, its checklist and comparisons."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from sstorch import Columns, OptimalSurvivalTree, Penalties, Surv, SurvivalRegression, validate
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import HorizonRows, measure, net_benefit
from sstorch.validation.report import ValidationReport
from tests.validation.models import Given, Known, rows

T = 1.2
NAMES = ["c_harrell_t", "c_uno_t", "auc", "oe_ratio", "calibration_intercept"]
NAMES += ["calibration_slope", "ici", "e50", "e90", "e_max", "brier", "scaled_brier"]


@pytest.fixture(scope="module")
def report() -> ValidationReport:
    X, y = rows()
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
    text = repr(report)
    assert text.startswith("Known on 250 rows, ")
    assert f"{table['value']['brier']:.3f}" in text


def test_limits_of_the_bootstrap_are_quantiles_over_resampled_rows(report: ValidationReport) -> None:
    X, y = rows()
    survival = Known().predict_survival_function(X, [T])[:, 0]
    rng, drawn = np.random.default_rng(0), []
    for _ in range(40):
        part = rng.integers(0, len(y), len(y))
        benefit = net_benefit((y.time[part], y.event[part]), survival[part], t=T, thresholds=[0.5])
        drawn.append(benefit["net_benefit"].item())
    limits = report.table.loc["net_benefit(0.5)", ["lower", "upper"]].astype(float)
    np.testing.assert_allclose(limits, np.quantile(drawn, [0.025, 0.975]), atol=1e-12)
    found = report.table.loc["e90", ["value", "lower", "upper"]].astype(float)
    np.testing.assert_array_equal(found, measure(HorizonRows.of(y, survival, T), "e90"))


def test_the_page_needs_no_other_file(report: ValidationReport, tmp_path: Path) -> None:
    page = report.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert not re.findall(r"(?:src|href)=[\"'](?!data:|#)|<script|@import|url\(", page)
    assert page.count("<img") == 2
    for text in ("Known on 250 rows", "1.2 years", "calibration slope", "TRIPOD+AI", "stage", "threshold"):
        assert text in page, text
    table = report.to_frame()
    assert f"{table['value']['c_harrell_t']:.3f}"[1:] in page
    assert page.count("<tr>") >= len(table) + 50
    flat = validate(Known(slope=0.0, level=0.0), *rows(), horizon=T, n_resamples=0)
    page = flat.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "No curve. survival: predictions of 0 or 1 have no place" in page
    assert page.count("<img") == 1


def test_the_checklist_has_every_item_and_tells_what_it_knows(report: ValidationReport) -> None:
    items, (_, y) = report.tripod(), rows()
    assert {int(re.match(r"\d+", number)[0]) for number in items.index} == set(range(1, 28))  # type: ignore[index]
    assert len(items) == 52
    expected = f"{y.event.sum()} events, {(y.event & (y.time <= T)).sum()} of them up to 1.2 years"
    assert expected in items["reported"]["21"]
    assert "stage" in items["reported"]["11"]
    assert items["reported"]["17"] == ""
    assert (items["left"] != "").all()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": object()}, DataError, "model must be a fitted estimator"),
        ({"model": Given(np.full(3, 0.5))}, DataError, r"shape .* = \(30, 1\), got \(3, 1\)"),
        ({"horizon": 99.0}, DataError, "horizon must be a time within the observed ones"),
        ({"horizon": 0.0}, ConfigError, "horizon must be one finite time"),
        ({"thresholds": [1.2]}, ConfigError, "thresholds must be risks in"),
        ({"n_resamples": 5}, ConfigError, "n_resamples must be 0 or at least 20"),
        ({"random_state": -1}, ConfigError, "random_state must be at least 0"),
    ],
)
def test_what_is_refused(change: dict[str, Any], error: type[Exception], message: str) -> None:
    X, y = rows(30)
    given = {"model": Known(), "X": X, "y": y, "horizon": T, **change}
    with pytest.raises(error, match=message):
        validate(**given)


def test_each_measure_of_small_and_strange_cohorts_has_a_value_or_a_reason() -> None:
    """Ties, few events, all censored, certain, equal and extreme predictions; warnings are errors."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        n = int(rng.integers(2, 30))
        time = np.round(rng.exponential(size=n), int(rng.integers(1, 4))) + 0.01
        event = rng.random(n) < rng.choice([0.0, 0.1, 0.5, 1.0])
        score = rng.normal(size=n) * rng.choice([0.0, 1.0, 30.0])
        survival = np.round(np.exp(-np.exp(np.clip(score, -700.0, 6.5))), int(rng.choice([0, 1, 300])))
        options = {"horizon": float(rng.choice(time)), "n_resamples": 0}
        table = validate(Given(survival), np.zeros((n, 1)), (time, event), **options).to_frame()
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
    model = SurvivalRegression("weibull", Penalties(ridge=1e-3), Columns(numeric="linear")).fit(X, y)
    options = {"horizon": 0.7, "n_resamples": 0, "thresholds": [0.5]}
    report = validate(model, X, y, **options)
    assert "Apparent: these are the training rows" in repr(report)
    assert report.tripod().loc["21", "reported"].startswith("apparent validation")
    assert "Apparent validation" in report.to_html(tmp_path / "page.html").read_text()
    model.save(tmp_path / "model")
    order, changed = rng.permutation(80), X.assign(a=X["a"] + 1e-3)
    for apparent, each, frame, outcome in (
        (True, SurvivalRegression.load(tmp_path / "model"), X.iloc[order, ::-1], y[order]),
        (False, model, X[:70], y[:70]),
        (False, model, changed, y),
    ):
        assert validate(each, frame, outcome, **options).facts.apparent == apparent
    with pytest.raises(ConfigError, match="n_refits corrects for the optimism of training rows"):
        validate(model, changed, y, n_refits=2, **options)
    table = validate(model, X, y, n_refits=3, **options).to_frame().loc["c_harrell_t"]
    draws, lost = np.random.default_rng(0), []
    for _ in range(3):
        part = draws.integers(0, 80, 80)
        refit = clone(model).fit(X.iloc[part], y[part])
        for sign, some in ((1, part), (-1, np.arange(80))):
            survival = refit.predict_survival_function(X.iloc[some], 0.7)[:, 0]
            lost.append(sign * measure(HorizonRows.of(y[some], survival, 0.7), "c_harrell_t").value)
    assert table["corrected"] == pytest.approx(table["value"] - np.sum(lost) / 3, abs=1e-12)
    assert table["corrected"] < table["value"]


@pytest.mark.parametrize("competing", [False, True])
def test_training_rows_of_an_exact_tree_are_apparent(competing: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": [np.nan, *rng.normal(size=79)], "c": rng.choice(["a", "b"], 80)})
    y = Surv(rng.uniform(1, 9, 80), np.tile([0, 1, 2, 1], 20), causes=("a", "b"))
    y = y if competing else y.any_cause()
    OptimalSurvivalTree(max_depth=1).fit(X, y).save(tmp_path / "tree")
    tree = OptimalSurvivalTree.load(tmp_path / "tree")
    for n in (80, 70):
        assert validate(tree, X[:n], y[:n], horizon=5, n_resamples=0).facts.apparent == (n == 80)
