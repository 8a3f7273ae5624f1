"""Estimated penalties through the estimators: groups by evidence, files, rows and weights, restrictions."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sstorch import (
    GroupPenalties,
    Penalties,
    PrognosticTree,
    SoftSurvivalTree,
    SurvivalRegression,
    load_dataset,
)
from sstorch.data import SurvivalData
from sstorch.objective import Ridge
from sstorch.soft import estimation
from sstorch.soft.batch import train_batch
from sstorch.soft.group_choice import REGRESSION, GroupChoice
from sstorch.soft.settings import BatchSettings
from tests.conftest import nightly

Outcome = tuple[np.ndarray, np.ndarray]


def simulated(n: int = 400, interaction: float = 0.0, seed: int = 0) -> tuple[pd.DataFrame, Outcome]:
    """Exponential times; "b" acts where "a" is above a half, or everywhere, but for its interaction."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.uniform(-1, 2, size=(n, 4)), columns=list("abcd"))
    risk = 0.5 * frame.c + interaction * np.where(frame.a > 0.5, frame.b - 0.5, 0.0)
    time, censoring = rng.exponential(np.exp(-risk)), rng.uniform(0.5, 4, n)
    return frame, (np.minimum(time, censoring), np.asarray(time <= censoring))


def chosen(model: Any) -> GroupChoice:
    choice = model.choice_
    assert isinstance(choice, GroupChoice)
    return choice


# ------------------------------------------------------------------ groups by evidence


def test_interaction_is_found_in_residuals_and_not_by_the_predictor() -> None:
    frame, y = simulated(interaction=2.5)
    tree = PrognosticTree(depth=1, leaf="weibull", only_if_needed=True).fit(frame, y)
    evidence = chosen(tree).evidence
    assert chosen(tree).chosen == "residuals 2"
    assert evidence["residuals 2"] > evidence[REGRESSION] + 20
    assert evidence["predictor 2"] < evidence["residuals 2"] - 20
    assert chosen(tree).differences == ("b",)
    finding = "he groups explain what the regression misses: they differ in the effect of b (evidence +"
    assert finding in tree.describe()
    assert finding in tree.summary(details=True)
    assert chosen(tree).n_groups == 2
    above, below = (tree.apply(frame)[side] for side in (frame.a > 0.6, frame.a < 0.4))
    assert (above == above[0]).mean() > 0.95
    assert (below == above[0]).mean() < 0.05


@pytest.mark.parametrize("kind", [PrognosticTree, SoftSurvivalTree])
def test_rows_without_interaction_have_groups_that_summarise_the_regression_or_one(kind: Any) -> None:
    frame, y = simulated()
    tree, groups = (kind(leaf="weibull", only_if_needed=needed).fit(frame, y) for needed in (True, False))
    assert (chosen(tree).chosen, chosen(tree).n_groups) == (REGRESSION, 1)
    assert set(tree.apply(frame)) == {1}
    assert "no interaction found" in tree.summary()
    regression, times = SurvivalRegression("weibull").fit(frame, y), [0.5, 1.0, 2.0]
    expected = regression.predict_survival_function(frame, times)
    np.testing.assert_allclose(tree.predict_survival_function(frame, times), expected, atol=1e-8)
    assert len(set(groups.apply(frame))) > 1
    assert groups.score(frame, y) == pytest.approx(regression.score(frame, y), abs=1e-3)
    assert "summarise the regression" in str(chosen(groups))


@pytest.mark.filterwarnings("ignore::sstorch.exceptions.DataWarning")
def test_few_events_give_proper_predictions(gbsg2: SurvivalData) -> None:
    few = gbsg2.subset(np.r_[np.flatnonzero(gbsg2.event)[:5], np.flatnonzero(~gbsg2.event)[:55]])
    regression = SurvivalRegression().fit(few.frame, few.y)
    (estimation,) = chosen(regression).estimations.values()
    assert sum(estimation.freedom) < 5  # of 31 coefficients
    assert regression.log_likelihood(gbsg2.frame, gbsg2.y) > -6


def test_charge_on_gates_is_taken_off_their_evidence() -> None:
    frame, y = simulated(200, interaction=2.5)
    evidence = [
        chosen(
            PrognosticTree(depth=1, leaf="weibull", penalties=GroupPenalties(gate_charge=charge)).fit(
                frame, y
            )
        ).evidence["residuals 2"]
        for charge in (0.0, 10.0)
    ]
    assert evidence[0] - evidence[1] == pytest.approx(10.0, abs=1e-9)


def test_sides_of_a_chosen_gate_are_divided_by_their_own_predictions() -> None:
    """Below the gate on "a" the hazard of one side depends on "b", that of the other on "c"."""
    frame, y = simulated(interaction=2.5)
    tree = PrognosticTree(leaf="weibull").fit(frame, y)
    assert chosen(tree).chosen == "residuals 2"
    weights = [tree.module_.gate(node).weight.detach() for node in (1, 2, 3)]
    places = [int(weight.nonzero()) for weight in weights]
    used = "".join(tree.preprocessor_.gate_features[place].columns[0] for place in places)
    assert used == ("abc" if float(weights[0].sum()) > 0 else "acb")  # left is above or below


@pytest.mark.parametrize(("n_draws", "starts"), [(3, (100.0,)), nightly(10, (100.0, 1.0, 0.1))])
def test_variances_of_groups_reach_the_best_of_many_starts(
    n_draws: int, starts: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failure times that a category all but determines: begun with narrow priors, fits end 30 nats below."""
    data = load_dataset("maintenance")
    draws = [np.random.default_rng(seed).permutation(len(data))[:300] for seed in range(n_draws)]
    splits = [data.subset(np.sort(rows)) for rows in draws]
    settings = PrognosticTree(depth=1, teacher="residuals")._batch_settings()

    def evidence() -> np.ndarray:
        return np.array([choice.evidence["residuals 2"] for choice in train_batch(splits, settings).choices])

    found = evidence()
    others = []
    for value in starts:
        monkeypatch.setattr(estimation, "FIRST_OWN", dict.fromkeys(estimation.FIRST_OWN, value))
        others.append(evidence())
    assert (found > others[0] + 5).all()
    assert (found > np.max(others, 0) - 0.5).all()


# ------------------------------------------------------------------ rows and weights


def survival(model: Any, frame: pd.DataFrame) -> np.ndarray:
    return np.asarray(model.predict_survival_function(frame, times=[0.5, 1.0, 2.0]))


def test_splits_of_a_batch_are_each_alone() -> None:
    frame, y = simulated(160, interaction=2.0)
    data = SurvivalData(frame, y)
    splits = [data.subset(np.arange(160) < n) for n in (160, 120)]
    settings = BatchSettings.check(depth=1, leaf="spline_po")
    both = train_batch(splits, settings)
    for number, split in enumerate(splits):
        alone = train_batch([split], settings)
        own, other = both.choices[number], alone.choices[0]
        assert own.chosen == other.chosen
        assert own.evidence == pytest.approx(other.evidence, abs=1e-6)
        torch.testing.assert_close(both.objective[number], alone.objective[0], rtol=0, atol=1e-8)
        for name, value in alone.tree.select(0).state_dict().items():
            torch.testing.assert_close(both.tree.select(number).state_dict()[name], value, rtol=0, atol=1e-6)


def test_single_precision_is_near_double() -> None:
    frame, y = simulated(150)
    models = [SurvivalRegression("weibull", dtype=dtype).fit(frame, y) for dtype in ("float64", "float32")]
    np.testing.assert_allclose(*(survival(each, frame) for each in models), atol=1e-4)


# ------------------------------------------------------------------ restrictions


def test_own_ridge_adds_to_the_estimated_variances() -> None:
    frame, y = simulated(200)
    plain, weak, strong = (
        SurvivalRegression("weibull", Penalties(own=own)).fit(frame, y)
        for own in ((), (Ridge(1e-9),), (Ridge(1e3),))
    )
    np.testing.assert_allclose(survival(weak, frame), survival(plain, frame), atol=0.01)
    assert survival(strong, frame).std(0).max() < 0.01
