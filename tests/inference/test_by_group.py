"""Effects within groups: against lifelines with the groups as given, and at the optimum itself."""

import numpy as np
import pandas as pd
import pytest
import torch
from lifelines import WeibullAFTFitter

from sstorch import Columns, PrognosticTree, Surv, SurvivalRegression
from sstorch.exceptions import ConfigError, DataError
from sstorch.inference import HazardRows, coefficients, effect_by_group
from sstorch.inference.added import AddedFeatures

N = 2500


@pytest.fixture(scope="module")
def trial() -> tuple[pd.DataFrame, Surv]:
    """A treatment that helps where x is low alone."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"x": rng.normal(size=N), "arm": rng.choice(["a", "b"], N), "site": rng.choice(["u", "v", "w"], N)}
    )
    mean = 1.5 * (X["x"] < 0) + 0.8 * ((X["arm"] == "b") & (X["x"] < 0))
    life, end = np.exp(mean) * rng.weibull(1.5, N), rng.uniform(1, 8, N)
    return X, Surv(np.minimum(life, end), life <= end)


@pytest.fixture(scope="module")
def tree(trial: tuple[pd.DataFrame, Surv]) -> PrognosticTree:
    return PrognosticTree(1, "weibull", columns=Columns(numeric="linear")).fit(*trial)


def test_effects_are_those_of_lifelines_with_the_groups_as_given(
    tree: PrognosticTree, trial: tuple[pd.DataFrame, Surv]
) -> None:
    X, y = trial
    found = effect_by_group(tree, X, y, "arm", "b", "a")
    lines = pd.DataFrame({"time": y.time, "event": y.event, "x": X["x"]})
    for name in ("v", "w"):
        lines[name] = (X["site"] == name).astype(float)
    group = tree.apply(X)
    columns = ["time", "event", "x", "v", "w"]
    for number in (1, 2):
        own = lines[group == number].assign(arm=(X["arm"] == "b")[group == number].astype(float))
        fit = WeibullAFTFitter().fit(own[[*columns, "arm"]], "time", "event").summary.loc[("lambda_", "arm")]
        row = found.table.loc[number]
        # Other coefficients are shared or shrunk here, and free there.
        assert row["estimate"] == pytest.approx(fit["coef"], abs=0.25 * fit["se(coef)"])
        assert row["standard error"] == pytest.approx(fit["se(coef)"], rel=0.05)
    assert found.table["rows"].sum() == N
    assert found.heterogeneity.loc["event", "p"] < 1e-6
    assert "given the gates" in str(found)


def test_coefficients_name_the_prognostic_groups_of_each_hazard(
    tree: PrognosticTree, trial: tuple[pd.DataFrame, Surv]
) -> None:
    X, _ = trial
    table = coefficients(tree)
    assert table.index.names == ["groups", "term", "contrast"]
    assert set(table.index.get_level_values("groups")) == {"1", "2"}
    for number in (1, 2):
        row = X[tree.apply(X) == number][:1]
        medians = [tree.predict_quantile(row.assign(arm=arm), 0.5, extrapolate=True).item() for arm in "ba"]
        rows = table.xs(str(number), level="groups").xs("arm", level="term")
        sign = 1 if rows.index[0] == "b vs a" else -1
        assert sign * rows["estimate"].item() == pytest.approx(np.log(medians[0] / medians[1]), abs=1e-9)


def test_effects_are_not_shrunk_towards_each_other_and_add_up_at_the_optimum(
    tree: PrognosticTree, trial: tuple[pd.DataFrame, Surv]
) -> None:
    X, y = trial
    (rows,) = HazardRows.by_cause(tree, tree._scored(X, y))
    group, arm = torch.as_tensor(tree.apply(X)), torch.as_tensor((X["arm"] == "b").to_numpy()).double()
    added = torch.stack([arm * (group == number) for number in (1, 2)], 1)
    fit = AddedFeatures.at_optimum(rows, added)
    gradient, hessian = fit.derivatives()
    assert float(gradient.abs().max()) < 1e-5
    # Derivatives are those of the penalised likelihood.
    away = AddedFeatures(rows, added, fit.theta + 0.05)
    slope, bend = away.derivatives()
    step = 1e-5
    for place in (0, 2, -2, -1):
        ends = []
        for sign in (1, -1):
            theta = away.theta.clone()
            theta[place] += sign * step
            ends.append(AddedFeatures(rows, added, theta))
        rise = (ends[0].value() - ends[1].value()) / (2 * step)
        assert float(slope[place]) == pytest.approx(rise, rel=1e-5, abs=1e-4)
        turn = (ends[0].derivatives()[0] - ends[1].derivatives()[0]) / (2 * step)
        torch.testing.assert_close(bend[place], turn, rtol=1e-4, atol=1e-3)
    assert hessian.shape == (len(fit.theta), len(fit.theta))


def test_causes_numbers_and_refusals(tree: PrognosticTree, trial: tuple[pd.DataFrame, Surv]) -> None:
    X, y = trial
    assert effect_by_group(tree, X, y, "x").text.startswith("x ")
    with pytest.raises(ConfigError, match="several values"):
        effect_by_group(tree, X, y, "site")
    with pytest.raises(ConfigError, match="value and reference"):
        effect_by_group(tree, X, y, "arm", "b")
    with pytest.raises(DataError, match="no category 'c'"):
        effect_by_group(tree, X, y, "arm", "c", "a")
    with pytest.raises(DataError, match="one value in group"):
        effect_by_group(tree, X.assign(arm="a"), y, "arm", "b", "a")
    regression = SurvivalRegression("weibull").fit(X[:200], y[:200])
    with pytest.raises(ConfigError, match="see effect"):
        effect_by_group(regression, X[:200], y[:200], "arm")
    cause = np.where(y.event, 1 + (np.arange(N) % 3 == 0), 0)
    both = Surv(y.time, cause, causes=("one", "two"))
    causes = PrognosticTree(1, "weibull").fit(X, both)
    found = effect_by_group(causes, X, both, "arm")
    assert found.table.index.names == ["cause", "group"]
    assert list(found.heterogeneity.index) == ["one", "two"]


def test_groups_that_say_nothing_of_the_effect_have_a_reason(
    tree: PrognosticTree, trial: tuple[pd.DataFrame, Surv]
) -> None:
    X, y = trial
    group, treated = tree.apply(X), (X["arm"] == "b").to_numpy()
    silent = Surv(y.time, y.event & (group == 1))
    assert "the same rows chose" in str(effect_by_group(tree, X, y, "arm", "b", "a"))
    assert "other rows chose" in str(effect_by_group(tree, X, silent, "arm", "b", "a"))
    row = effect_by_group(tree, X, silent, "arm", "b", "a").table.loc[2]
    assert row["reason"] == "no events in the group"
    assert row[["estimate", "standard error", "time ratio", "lower", "upper", "p"]].isna().all()
    found = effect_by_group(tree, X, Surv(y.time, y.event & ~((group == 2) & treated)), "arm", "b", "a")
    assert found.table.loc[2, "reason"] == "no events with the value that is compared"
    assert found.table.loc[1, "reason"] == ""
    assert np.isfinite(found.table.loc[1, "upper"])
    assert np.isnan(found.heterogeneity.loc["event", "p"])
    assert "no events with" in str(found)
    with pytest.raises(DataError, match="on both sides"):
        effect_by_group(tree, X, y, "x", 1.0, 1.0)
