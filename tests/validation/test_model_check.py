"""Model checks: tests against an independent likelihood and cox.zph, faults that are found, messages."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize

from sstorch import Columns, Penalties, Surv, SurvivalRegression, load_dataset
from sstorch.exceptions import ConfigError, DataError
from sstorch.validation import check
from tests.histories import halved

PLAIN = {"penalties": Penalties(ridge=0), "columns": Columns(numeric="linear")}


def simulated(kind: str, n: int = 600) -> tuple[pd.DataFrame, Surv]:
    """Exponential data: the effect of a is a line, a U, or ends at time 1."""
    generator = np.random.default_rng(3)
    X = pd.DataFrame({"a": generator.normal(size=n), "b": generator.uniform(-1, 1, n)})
    total, rate = generator.exponential(size=n), np.exp(0.7 * X["a"].to_numpy())
    if kind == "u":
        rate = np.exp(0.7 * (X["a"].to_numpy() ** 2 - 1))
    time = total / rate
    if kind == "fades":
        time = np.where(total > rate, 1 + total - rate, time)
    end = generator.uniform(0.5, 4, n)
    return X, Surv(np.minimum(time, end), time <= end)


def test_effects_in_time_are_those_of_cox_zph() -> None:
    data = load_dataset("gbsg2")
    model = SurvivalRegression("spline_ph", **PLAIN).fit(data.frame, data.y)
    found = check(model, data.frame, data.y).tests.loc[("event", "time")]
    # R: cox.zph(coxph(Surv(time, event) ~ ., gbsg2), transform = "rank"), survival 3.5-3. Here the baseline
    # is a spline and time is in ten periods.
    in_r = {"horTh": 0.238, "age": 9.696, "menostat": 4.865, "tsize": 0.168, "pnodes": 1.123, "all": 22.003}
    for term, statistic in in_r.items():
        assert found.loc[term, "statistic"] == pytest.approx(statistic, rel=0.3, abs=0.5)
    assert found.loc["tgrade", "df"] == 2
    assert found.loc["all", "df"] == 9


def test_curvature_is_the_likelihood_ratio_of_an_independent_likelihood() -> None:
    X, y = simulated("line", 300)
    model = SurvivalRegression("weibull", **PLAIN).fit(X, y)
    statistic = check(model, X, y).tests.loc[("event", "curve", "b"), "statistic"]
    rank = 2 * (X["b"].rank().to_numpy() - 0.5) / len(X) - 1
    added = np.stack([1.5 * rank**2 - 0.5, 2.5 * rank**3 - 1.5 * rank], 1)
    design = np.column_stack([np.ones(len(X)), X, added])
    log_time, event = torch.tensor(np.log(y.time)), torch.tensor(y.event).double()

    def loss(theta: torch.Tensor) -> torch.Tensor:
        z = (log_time - torch.as_tensor(design) @ theta[:-1]) * theta[-1].exp()
        return (z.exp() - event * (z + theta[-1])).sum()

    def least(free: list[int]) -> float:
        def of_free(values: np.ndarray) -> tuple[float, np.ndarray]:
            theta = torch.zeros(6, dtype=torch.float64)
            theta[free] = torch.as_tensor(values)
            theta.requires_grad_()
            value = loss(theta)
            value.backward()
            assert theta.grad is not None
            return value.item(), theta.grad.numpy()[free]

        return float(
            minimize(of_free, np.zeros(len(free)), jac=True, method="BFGS", options={"gtol": 1e-7}).fun
        )

    expected = 2 * (least([0, 1, 2, 5]) - least([0, 1, 2, 3, 4, 5]))
    assert statistic == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("leaf", ["weibull", "spline_ph"])
def test_faults_are_found_and_named(leaf: str) -> None:
    X, y = simulated("fades")
    found = check(SurvivalRegression(leaf, **PLAIN).fit(X, y), X, y)
    assert found.tests.loc[("event", "time", "a"), "p"] < 1e-4
    assert any(text.startswith("Effects that change with time: a (p < .001)") for text in found.findings)
    change = found.effects.loc[("event", "a")]  # the effect on the hazard, .7, ends at time 1
    late, early = change[change["time"] > 1]["change"], change[change["time"] < 1]["change"]
    assert (early.mean() - late.mean()) * (-1 if leaf == "weibull" else 1) > 0.3
    X, y = simulated("u")
    found = check(SurvivalRegression(leaf, **PLAIN).fit(X, y), X, y)
    assert found.tests.loc[("event", "curve", "a"), "p"] < 1e-4
    assert "Columns(numeric=" in str(found)
    curved = check(SurvivalRegression(leaf).fit(X, y), X, y)
    assert curved.tests.loc[("event", "curve", "a"), "p"] > 0.01


def test_category_whose_effect_changes_with_time_has_strata_proposed_as_code() -> None:
    X, _ = simulated("line", 800)
    generator = np.random.default_rng(4)
    arm = generator.choice(["x", "y"], len(X))
    time = np.exp(
        (np.log(generator.exponential(size=len(X))) - 0.7 * X["a"]) / np.where(arm == "x", 0.6, 2.0)
    )
    X, y = X.assign(arm=arm), Surv(np.minimum(time, 3.0), time <= 3.0)
    found = check(SurvivalRegression("weibull", **PLAIN).fit(X, y), X, y)
    (text,) = [each for each in found.findings if "arm" in each and each.startswith("Effects that change")]
    (code,) = re.findall(r"Columns\(strata='arm'\)", text)
    columns = eval(code, {"Columns": Columns}).set_params(numeric="linear")
    stratified = check(SurvivalRegression("weibull", Penalties(ridge=0), columns).fit(X, y), X, y)
    assert "arm" not in stratified.tests.loc[("event", "time")].index
    assert stratified.tests.loc[("event", "time", "all"), "p"] > 0.01
    assert not any("strata" in each for each in stratified.findings)


def test_tests_do_not_depend_on_how_histories_are_cut() -> None:
    X, y = simulated("line", 200)
    twice, cut = pd.concat([X, X], ignore_index=True), halved(y)
    whole = check(SurvivalRegression("weibull", **PLAIN).fit(X, y), X, y)
    parts = check(SurvivalRegression("weibull", **PLAIN).fit(twice, cut), twice, cut)
    same = ["time"]
    assert parts.tests.loc["event"].loc[same, "statistic"].to_numpy() == pytest.approx(
        whole.tests.loc["event"].loc[same, "statistic"].to_numpy(), rel=1e-4
    )
    assert parts.influence["change"].to_numpy() == pytest.approx(
        whole.influence["change"].to_numpy(), rel=1e-3
    )
    assert parts.influence["row"].to_list() == whole.influence["row"].to_list()


def test_rows_without_weight_count_in_no_check() -> None:
    """They were in the ranks of columns and the quantiles of time."""
    X, y = simulated("line", 200)
    weight = np.arange(200) % 3 * 1.0
    counted = weight > 0
    model = SurvivalRegression("weibull", **PLAIN).fit(X, y, weight)
    found = check(model, X, y, weight)
    expected = check(model, X[counted], y[counted], weight[counted])
    pd.testing.assert_frame_equal(found.tests, expected.tests, rtol=1e-9)
    pd.testing.assert_frame_equal(found.risk_groups, expected.risk_groups, rtol=1e-9)
    assert found.influence["row"].tolist() == expected.influence["row"].tolist()


def test_influential_row_is_named_by_its_label() -> None:
    X, y = simulated("line", 150)
    X.index = pd.Index([f"subject {k}" for k in range(len(X))])
    X.loc["subject 7", "b"] = -30.0
    outcome = Surv(np.asarray(y.time), np.asarray(y.event))
    found = check(SurvivalRegression("weibull", **PLAIN).fit(X, outcome), X, outcome)
    assert found.influence.loc[("event", "b", "per unit"), "row"] == "subject 7"
    assert any("Row subject 7 moves estimates" in text for text in found.findings)


def test_rows_of_weight_zero_change_no_test() -> None:
    data = load_dataset("gbsg2")
    kept = data.frame["age"] < 60  # others would change the ranks
    few = data.subset(np.flatnonzero(kept))
    model = SurvivalRegression("weibull", **PLAIN).fit(data.frame, data.y, kept)
    pd.testing.assert_frame_equal(
        check(model, data.frame, data.y, kept).tests, check(model, few.frame, few.y).tests, rtol=1e-6
    )


def test_competing_causes_have_checks_of_their_own() -> None:
    X, y = simulated("fades")
    cause = np.where(y.event, 1 + (np.arange(len(X)) % 2), 0)
    outcome = Surv(y.time, cause, causes=("relapse", "death"))
    found = check(SurvivalRegression("weibull", **PLAIN).fit(X, outcome), X, outcome)
    assert set(found.tests.index.get_level_values("cause")) == {"relapse", "death"}
    assert set(found.risk_groups.index.get_level_values("cause")) == {"relapse", "death"}
    expected = found.risk_groups.groupby("cause")[["events", "expected"]].sum()
    assert expected["events"].to_numpy() == pytest.approx(expected["expected"].to_numpy(), rel=1e-5)


def test_other_rows_or_intervals_raise() -> None:
    X, y = simulated("line", 200)
    model = SurvivalRegression("weibull", **PLAIN).fit(X, y)
    with pytest.raises(DataError, match="was not fitted to these rows"):
        check(model, X[:100], y[:100])
    with pytest.raises(ConfigError, match="transform must be one of rank, log"):
        check(model, X, y, transform="km")  # type: ignore[arg-type]
    bounds = Surv.interval(np.asarray(y.time) * 0.9, np.where(y.event, np.asarray(y.time) * 1.1, np.inf))
    fitted = SurvivalRegression("weibull", **PLAIN).fit(X, bounds)
    with pytest.raises(DataError, match="check does not support interval-censored outcomes"):
        check(fitted, X, bounds)
