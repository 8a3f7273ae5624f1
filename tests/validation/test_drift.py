"""Monitoring: what the record of training rows keeps, the stability index, and what a report finds."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelines import KaplanMeierFitter
from lifelines.utils import concordance_index
from matplotlib import pyplot as plt
from scipy.stats import chi2, poisson

from sstorch import OptimalSurvivalTree, PrognosticTree, Surv, SurvivalRegression
from sstorch.data import SurvivalData
from sstorch.data.columns import clean_features
from sstorch.data.training_record import NumericColumn, TrainingRecord
from sstorch.exceptions import ConfigError, DataError
from sstorch.validation import DriftReport, drift, population_stability_index
from sstorch.validation.column_drift import compared_columns
from tests.causes import simulated

MONTHS = np.array(["2024-01", "2024-02", "2024-03"])


@pytest.fixture(scope="module")
def parts(gbsg2: SurvivalData) -> tuple[SurvivalData, SurvivalData]:
    return gbsg2.subset(range(400)), gbsg2.subset(range(400, 686))


@pytest.fixture(scope="module")
def model(parts: tuple[SurvivalData, SurvivalData]) -> SurvivalRegression:
    train, _ = parts
    return SurvivalRegression("weibull", time_unit="days").fit(train.frame, train.y)


@pytest.fixture(scope="module")
def shifted(parts: tuple[SurvivalData, SurvivalData]) -> pd.DataFrame:
    """The later rows, a day each from 3 January 2024 on, altered from July on."""
    frame = parts[1].frame.copy()
    frame["seen"] = pd.date_range("2024-01-03", periods=len(frame), freq="D")
    late = frame["seen"] >= "2024-07-01"
    frame["tgrade"] = frame["tgrade"].astype(object)
    frame.loc[late, "age"] += 18
    frame.loc[frame["seen"] >= "2024-09-10", "tgrade"] = "IV"
    frame.loc[late & (np.arange(len(frame)) % 3 == 0), "progrec"] = np.nan
    return frame


@pytest.fixture(scope="module")
def report(
    model: SurvivalRegression, shifted: pd.DataFrame, parts: tuple[SurvivalData, SurvivalData]
) -> DriftReport:
    return drift(model, shifted, parts[1].y, by="seen")


def psi(p: np.ndarray, q: np.ndarray) -> float:
    return float(sum((b - a) * np.log(b / a) for a, b in zip(p, q, strict=True)))


def test_the_index_of_large_samples_is_the_formula() -> None:
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    assert population_stability_index(p * 1e9, q * 1e9) == pytest.approx(psi(p, q), abs=1e-8)
    # An empty bin is finite.
    assert population_stability_index([100, 0], [0, 50]) == pytest.approx(
        psi(np.array([100.5, 0.5]) / 101, np.array([0.5, 50.5]) / 51)
    )


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["numbers", "rare", "many"])
def test_without_drift_findings_are_as_rare_as_the_limit_says(kind: str) -> None:
    rng = np.random.default_rng(0)

    def draw(n: int) -> pd.DataFrame:
        if kind == "numbers":
            return pd.DataFrame(rng.normal(size=(n, 40)))
        shares = np.array([0.9, 0.09, 0.01]) if kind == "rare" else 1 / np.arange(1, 201)
        codes = pd.DataFrame(rng.choice(len(shares), size=(n, 40), p=shares / shares.sum()))
        return codes.astype(str).astype("category")

    found = []
    for _ in range(10):
        frame = draw(400).rename(columns=str)
        record = TrainingRecord.of(clean_features(frame))
        later = draw(200).rename(columns=str)
        # A confidence for one column, of forty: each is above its limit with a probability of 5 %.
        rows = compared_columns(later, record, [("all", np.ones(200, dtype=bool))], 1 - 40 * 0.05)
        found += [row["psi"] > row["limit"] for row in rows]  # type: ignore[operator]
    assert 0.005 < np.mean(found) < 0.075


def test_bins_are_tenths_or_values() -> None:
    column = NumericColumn.of(np.append(np.arange(1.0, 101.0), np.nan))
    assert column.cuts == tuple(range(10, 100, 10))
    assert column.counts == (*[10] * 10, 1)
    assert column.range == (1.0, 100.0)
    grades = NumericColumn.of(np.array([1.0, 1.0, 1.0, 2.0, 3.0]))
    assert (grades.cuts, grades.counts) == ((1.0, 2.0), (3, 1, 1, 0))
    assert grades.count(np.array([0.0, 2.0, 9.0, np.nan])).tolist() == [1, 1, 1, 1]
    # Where one value is most of a column, it is one bin.
    heavy = NumericColumn.of(np.concatenate([np.zeros(80), np.arange(1.0, 21.0)]))
    assert heavy.cuts[0] == 0.0
    assert heavy.counts == (80, 10, 10, 0)
    assert NumericColumn.of(np.array([3.0, 3.0])).counts == (2, 0)


def test_the_record_is_saved_and_loaded(
    model: SurvivalRegression, parts: tuple[SurvivalData, SurvivalData], tmp_path: Path
) -> None:
    train, later = parts
    assert model.training_record_ == TrainingRecord.of(train.frame)
    model.save(tmp_path / "soft")
    loaded = SurvivalRegression.load(tmp_path / "soft")
    assert loaded.training_record_ == model.training_record_
    exact = OptimalSurvivalTree(1).fit(train.frame, train.y)
    exact.save(tmp_path / "exact")
    again = OptimalSurvivalTree.load(tmp_path / "exact")
    assert again.training_record_ == model.training_record_
    one, two = (drift(tree, later.frame, later.y).columns for tree in (exact, again))
    pd.testing.assert_frame_equal(one, two)


def test_columns_are_compared_with_the_training_rows(
    report: DriftReport, shifted: pd.DataFrame, parts: tuple[SurvivalData, SurvivalData]
) -> None:
    train = parts[0].frame
    rows = shifted[shifted["seen"].dt.to_period("M") == "2024-09"]
    found = report.columns.loc["2024-09"]
    assert found.loc["progrec", "missing"] == rows["progrec"].isna().mean()
    assert found.loc["progrec", "training_missing"] == 0.0
    outside = (rows["age"] < train["age"].min()) | (rows["age"] > train["age"].max())
    assert found.loc["age", "outside"] == outside.mean()
    assert found.loc["tgrade", "unseen"] == (rows["tgrade"] == "IV").mean()
    assert found.loc["tgrade", "categories"] == "IV"
    cuts = np.unique(np.quantile(train["age"], np.arange(1, 10) / 10, method="inverted_cdf"))
    counts = [np.bincount(np.searchsorted(cuts, x["age"]), minlength=len(cuts) + 1) for x in (train, rows)]
    assert min(counts[0]) > 2 * len(train) / len(rows)  # no bins are joined
    assert found.loc["age", "psi"] == pytest.approx(population_stability_index(*counts))
    n_cells = len(report.columns)
    limit = (1 / len(train) + 1 / len(rows)) * chi2.isf(0.05 / n_cells, len(cuts))
    assert found.loc["age", "limit"] == pytest.approx(limit)


def test_what_was_altered_is_found_and_nothing_else(report: DriftReport) -> None:
    texts = report.columns["finding"]
    named = {(period, name) for (period, name), text in texts.items() if text}
    assert {name for _, name in named} == {"age", "tgrade", "progrec"}
    assert min(period for period, _ in named) == "2024-07"
    assert "category without training rows, 'IV'" in texts["2024-09", "tgrade"]
    assert "missing in 35 % of the rows, of training rows 0 %" in texts["2024-07", "progrec"]
    assert "outside the training range 25 to 80" in texts["2024-07", "age"]
    assert str(report).splitlines()[1:] == report.findings
    assert report.findings[0].startswith("2024-07, age: ")


def test_predictions_of_a_period_equal_other_software(
    report: DriftReport,
    model: SurvivalRegression,
    shifted: pd.DataFrame,
    parts: tuple[SurvivalData, SurvivalData],
) -> None:
    rows = np.flatnonzero(shifted["seen"].dt.to_period("M") == "2024-03")
    frame, y = shifted.iloc[rows], parts[1].y[rows]
    found, at = report.periods.loc["2024-03"], report.horizon
    assert at == model.horizon_
    survival = model.predict_survival_function(frame, [at])[:, 0]
    assert found["risk"] == pytest.approx(1 - survival.mean())
    assert y.time is not None
    assert y.event is not None
    event = y.event & (y.time <= at)
    upto = np.minimum(y.time, at)
    hazards = model.predict_cumulative_hazard_function(frame, upto)
    expected = float(hazards[np.arange(len(rows)), np.arange(len(rows))].sum())
    assert (found["events"], found["expected"]) == (event.sum(), pytest.approx(expected))
    assert found["oe_hazard"] == pytest.approx(event.sum() / expected)
    # Exact limits: with them as means, as many events or more (fewer) have a probability of 2.5 %.
    lower, upper = found["oe_hazard_lower"] * expected, found["oe_hazard_upper"] * expected
    assert poisson.sf(event.sum() - 1, lower) == pytest.approx(0.025)
    assert poisson.cdf(event.sum(), upper) == pytest.approx(0.025)
    km = KaplanMeierFitter().fit(y.time, y.event)
    assert found["oe_ratio"] == pytest.approx((1 - km.predict(at)) / (1 - survival.mean()))
    assert found["concordance"] == pytest.approx(concordance_index(upto, survival, event))
    assert found["reason"] == ""


def test_a_model_that_predicts_too_little_is_found(
    model: SurvivalRegression, parts: tuple[SurvivalData, SurvivalData]
) -> None:
    later = parts[1]
    half = np.where(np.arange(286) < 143, "a", "b")
    y = Surv(np.where(half == "b", later.time / 3, later.time), later.event)
    report = drift(model, later.frame, y, by=half, horizon=600)
    texts = report.periods["finding"]
    assert texts["a"] == ""
    assert texts["b"].startswith("observed over expected events 4.")
    assert report.findings == [f"b: {texts['b']}"]
    # 95 % limits of a period are narrower than those of a finding.
    assert report.periods.loc["a", "oe_hazard_upper"] > 1.0


def test_periods_that_were_not_followed_to_the_horizon_have_a_reason(
    model: SurvivalRegression, parts: tuple[SurvivalData, SurvivalData]
) -> None:
    later = parts[1].subset(range(60))
    time = np.where(np.arange(60) < 30, np.minimum(later.time, 200.0), 2000.0)
    y = Surv(time, later.event & (later.time <= 200.0) & (np.arange(60) < 30))
    report = drift(model, later.frame, y, by=np.repeat(["new", "old"], 30), horizon=1000)
    new, old = report.periods.loc["new"], report.periods.loc["old"]
    assert np.isnan(new["oe_ratio"])
    assert "follow-up of the period ends at 200, before the horizon" in new["reason"]
    assert np.isfinite([new["oe_hazard"], new["oe_hazard_upper"]]).all()
    assert old["events"] == 0
    assert old["reason"] == "no time of the period is as short as the horizon"
    assert np.isnan(old["oe_hazard"])


def test_without_events_the_ratio_is_zero_with_an_upper_limit(
    model: SurvivalRegression, parts: tuple[SurvivalData, SurvivalData]
) -> None:
    later = parts[1]
    report = drift(model, later.frame, Surv(np.minimum(later.time, 900.0), np.zeros(286, dtype=bool)))
    row = report.periods.loc["all rows"]
    assert (row["oe_hazard"], row["oe_hazard_lower"]) == (0.0, 0.0)
    assert row["oe_hazard_upper"] == pytest.approx(-np.log(0.025) / row["expected"])
    assert "concordance" in row["reason"]


def test_competing_causes_have_a_row_each(tmp_path: Path) -> None:
    frame, y = simulated(600)
    tree = PrognosticTree().fit(frame, y)
    by = np.resize(MONTHS, len(frame))
    report = drift(tree, frame, y, by=by)
    assert report.periods.index.names == ["period", "cause"]
    assert list(report.periods.loc["2024-01"].index) == list(tree.causes_)
    assert report.periods[["oe_ratio", "oe_ratio_lower", "concordance"]].notna().all().all()
    assert report.periods["oe_hazard"].isna().all()
    assert not report.columns["finding"].any()
    one = drift(tree, frame, y, by=by, cause=2)
    second = report.periods.xs(tree.causes_[1], level="cause", drop_level=False)
    pd.testing.assert_frame_equal(one.periods, second)
    assert tree.causes_[1] in report.to_html(tmp_path / "drift.html").read_text()


def test_rows_of_weight_0_are_excluded(
    model: SurvivalRegression, parts: tuple[SurvivalData, SurvivalData]
) -> None:
    later, weight = parts[1], np.where(np.arange(286) % 3, 1.0, 0.0)
    counted, months = weight > 0, MONTHS[np.arange(286) % 3]
    frame = later.frame.assign(age=later.frame["age"].where(counted, 150))
    one = drift(model, frame, later.y.weighted(weight), by=months)
    other = drift(model, frame[counted], later.y[counted], by=months[counted])
    assert set(one.periods.index) == {"2024-02", "2024-03"}
    pd.testing.assert_frame_equal(one.columns, other.columns)
    pd.testing.assert_frame_equal(one.periods, other.periods)


def test_weights_count_as_repeated_rows(
    model: SurvivalRegression, parts: tuple[SurvivalData, SurvivalData]
) -> None:
    later, weight = parts[1], np.where(np.arange(286) % 3, 1.0, 2.0)
    again = np.repeat(np.arange(286), weight.astype(int))
    one = drift(model, later.frame, later.y.weighted(weight)).periods.loc["all rows"]
    two = drift(model, later.frame.iloc[again], later.y[again]).periods.loc["all rows"]
    names = ["events", "expected", "oe_hazard", "concordance"]
    np.testing.assert_allclose(one[names].astype(float), two[names].astype(float), rtol=1e-9)


def test_start_stop_rows_count_the_time_they_were_observed() -> None:
    rng = np.random.default_rng(0)
    subject = np.repeat(np.arange(150), 2)
    entry = np.tile([0.0, 50.0], 150)
    time = np.where(entry > 0, entry + rng.exponential(100, 300) + 1, 50.0)
    event = (entry > 0) & (rng.uniform(size=300) < 0.7)
    frame = pd.DataFrame({"x": rng.normal(size=300)})
    y = Surv(time, event, entry=entry, id=subject)
    model = SurvivalRegression("weibull").fit(frame, y)
    report = drift(model, frame, y, horizon=120)
    row = report.periods.loc["all rows"]
    ends = np.column_stack([np.minimum(entry, 120), np.minimum(time, 120)])
    hazards = [
        np.diff(model.predict_cumulative_hazard_function(frame.iloc[[k]], ends[k], after=0)[0])
        for k in range(300)
    ]
    assert row["expected"] == pytest.approx(np.sum(hazards))
    assert row["events"] == (event & (time <= 120)).sum()
    assert "left truncation" in row["reason"]


def test_dates_are_binned_and_names_are_kept(model: SurvivalRegression, shifted: pd.DataFrame) -> None:
    def periods(by: object, **options: object) -> list[str]:
        found = drift(model, shifted, by=by, **options)  # type: ignore[arg-type]
        return list(found.periods.index)

    assert periods("seen", every="quarter") == ["2024Q1", "2024Q2", "2024Q3", "2024Q4"]
    text = shifted["seen"].dt.strftime("%Y-%m-%d")
    assert periods(text, every="year") == ["2024"]
    assert periods(shifted["seen"].dt.date)[:2] == ["2024-01", "2024-02"]
    assert periods(np.resize([2024, 2023], 286)) == ["2023", "2024"]
    order = pd.Categorical(np.resize(["late", "early"], 286), categories=["early", "never", "late"])
    assert periods(order) == ["early", "late"]
    assert periods(None) == ["all rows"]


def test_what_cannot_be_monitored_raises(
    model: SurvivalRegression, shifted: pd.DataFrame, parts: tuple[SurvivalData, SurvivalData]
) -> None:
    with pytest.raises(DataError, match=r"no column 'sen'; .* Did you mean 'seen'"):
        drift(model, shifted, by="sen")
    with pytest.raises(DataError, match=r"by is missing in 1 row \(0-based position 4\)"):
        drift(model, shifted, by=shifted["seen"].where(np.arange(286) != 4))
    with pytest.raises(DataError, match="by has 3 values; give one for each of 286 rows"):
        drift(model, shifted, by=MONTHS)
    with pytest.raises(DataError, match="by is '2024-13-01' in 1 row"):
        drift(model, shifted, by=["2024-13-01", *["2024-01-01"] * 285])
    with pytest.raises(DataError, match="X has 286 rows but y has 400"):
        drift(model, shifted, parts[0].y)
    with pytest.raises(ConfigError, match="got 'minute'"):
        drift(model, shifted, by="seen", every="minute")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="the data have no rows"):
        drift(model, shifted.iloc[:0])
    with pytest.raises(ConfigError, match="has no record of its training rows"):
        drift(KaplanModel(), shifted)


class KaplanModel:
    """A model of another package."""

    def predict_survival_function(self, X: object, times: object) -> np.ndarray:
        raise NotImplementedError


def test_the_page_and_the_figure_show_findings(report: DriftReport, tmp_path: Path) -> None:
    page = report.to_html(tmp_path / "drift.html").read_text()
    assert "without training rows" in page
    assert "2024-07, age" in page
    assert "670 days" in page or f"{report.horizon:.4g} days" in page
    assert not any(word in page for word in ("http://localhost", "<script", 'src="http'))
    figure = report.plot()
    assert len([ax for ax in figure.axes if ax.get_ylabel()]) == 4
    assert figure.axes[3].get_xticklabels()[0].get_text() == "2024-01"
    framed = len(figure.axes[0].patches)
    assert framed == (report.columns["finding"] != "").sum()
    plt.close("all")
