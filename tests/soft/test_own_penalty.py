"""Penalties of users through the estimators, and fits that stop before their optimum."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from sstorch import (
    Columns,
    GatePenalties,
    GroupPenalties,
    Penalties,
    PrognosticTree,
    SoftSurvivalTree,
    SurvivalData,
    SurvivalRegression,
)
from sstorch.exceptions import ConfigError, TrainingError
from sstorch.nn import GateParameters, HazardFamily, LeafParameters, SurvivalDistribution
from sstorch.objective import LeafPenalty, Penalty, Ridge, RowPenalty, Sample
from sstorch.optim import LBFGSOptions, Leaves
from sstorch.soft.batch import train_batch
from sstorch.soft.estimator import SoftEstimator

STOPPED = Leaves(LBFGSOptions(max_iterations=0, gradient_tolerance=0.0))
SEEN: list[tuple[int, ...]] = []


class Watched(Ridge):
    """The ridge, which notes of how many problems it was asked."""

    def forward(self, leaves: LeafParameters) -> Tensor:
        SEEN.append(tuple(leaves.slope.shape[:-2]))
        return super().forward(leaves)


def joint(penalties: GatePenalties, leaf: str = "log_logistic") -> SoftSurvivalTree:
    return SoftSurvivalTree(1, leaf, init="random", n_starts=2, trainer="joint", penalties=penalties)


def test_own_ridge_is_the_ridge(small_data: SurvivalData) -> None:
    X, y, times = small_data.frame, small_data.y, np.quantile(small_data.time, [0.3, 0.7])
    plain = joint(GatePenalties(ridge=0.3)).fit(X, y)
    found = joint(GatePenalties(ridge=0.0, own=[Watched(0.3)])).fit(X, y)
    assert found.objective_ == pytest.approx(plain.objective_, abs=1e-6)
    expected = plain.predict_survival_function(X, times)
    np.testing.assert_allclose(found.predict_survival_function(X, times), expected, atol=2e-3)


def test_own_penalty_acts_in_every_fold_and_start(small_data: SurvivalData) -> None:
    splits = [small_data.subset(np.arange(120) % 3 != fold) for fold in range(3)]
    slopes = []
    for own in ((), (Watched(5.0),)):
        SEEN.clear()
        batch = train_batch(splits, joint(GatePenalties(own=own))._batch_settings())
        assert batch.tree.n_problems == 6
        assert ((6,) in SEEN) == bool(own)
        slopes.append(batch.tree.leaf_parameters().slope.detach().abs().amax(dim=(-1, -2)))
    assert torch.all(slopes[1] < 0.5 * slopes[0])


class GroupMeans(RowPenalty):
    """Squared difference between the restricted means of two groups, up to the unit of time."""

    trains_gates = True

    def forward(
        self,
        gates: GateParameters,
        leaves: LeafParameters,
        family: HazardFamily,
        sample: Sample,
        relaxed: bool = False,
    ) -> Tensor:
        log_p = gates.leaf_probability(sample.x).log()
        linear, shape = leaves.linear_predictor(sample.x), leaves.shape_parameters(sample.x)
        mean = SurvivalDistribution(family, log_p, linear, shape).restricted_mean(1.0)
        weights = [sample.weight * (sample.group == number) for number in range(sample.n_groups)]
        first, second = ((weight * mean).sum(-1) / weight.sum(-1) for weight in weights)
        return self.at(mean) * (first - second).square()


def test_own_penalty_on_groups_of_sensitive(small_data: SurvivalData) -> None:
    X, y = small_data.frame, small_data.y
    group = np.where(X.iloc[:, 0] > X.iloc[:, 0].median(), "high", "low")
    unit, gaps = float(np.exp(np.log(small_data.time).mean())), []
    for rho in (1e-9, 100.0):
        tree = joint(GatePenalties(ridge=1e-3, own=[GroupMeans(rho)]), "weibull")
        means = tree.fit(X, y, sensitive=group).predict_rmst(X, unit)
        gaps.append(abs(means[group == "high"].mean() - means[group == "low"].mean()))
    assert gaps[1] < 0.2 * gaps[0]


class Summed(Watched):
    def forward(self, leaves: LeafParameters) -> Tensor:
        return super().forward(leaves).sum()


class Rows(RowPenalty):
    def forward(self, gates, leaves, family, sample, relaxed=False) -> Tensor:  # type: ignore[no-untyped-def]
        return leaves.linear_predictor(sample.x).square().sum()


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (["ridge"], "must be a list of LeafPenalty, GatePenalty"),
        (Watched(1.0), "must be a list of LeafPenalty"),
        ([Rows(1.0)], r"Rows must give one value for each problem, shape \(1,\), got \(\)"),
        ([Summed(1.0)], r"one value for each problem, shape \(1,\), got \(\)"),
    ],
)
def test_own_penalties_that_cannot_act_raise(
    small_data: SurvivalData, own: list[Penalty], message: str
) -> None:
    tree = PrognosticTree(1, "weibull", penalties=GroupPenalties(ridge=1e-3, own=own))
    with pytest.raises(ConfigError, match=message):
        tree.fit(small_data.frame, small_data.y)


class Norm(LeafPenalty):
    """The norm of slopes, whose derivative at zero is NaN, where slopes start; or NaN itself."""

    def __init__(self, factor: float) -> None:
        super().__init__(1.0)
        self.factor = factor

    def forward(self, leaves: LeafParameters) -> Tensor:
        return self.factor * leaves.slope.square().sum((-2, -1)).sqrt()


@pytest.mark.parametrize(
    "estimator", [SurvivalRegression("weibull"), SoftSurvivalTree(1, "weibull", n_starts=1)]
)
@pytest.mark.parametrize(
    ("factor", "message"),
    [(0.1, "Norm has no finite gradient .*leaves.slope"), (float("nan"), "Norm is nan")],
)
def test_own_penalty_that_is_not_differentiable_raises(
    small_data: SurvivalData, estimator: SoftEstimator, factor: float, message: str
) -> None:
    estimator.penalties = estimator._penalties(ridge=1e-3, own=[Norm(factor)])
    with pytest.raises(TrainingError, match=message):
        estimator.fit(small_data.frame, small_data.y)


@pytest.mark.parametrize(
    "model",
    [
        SurvivalRegression("weibull"),
        PrognosticTree(1, "weibull"),
        SurvivalRegression("weibull", Penalties(ridge=1e-3), Columns(strata="c")),
        SurvivalRegression("weibull", Penalties(ridge=0.1), trainer=STOPPED),
    ],
)
def test_too_few_steps_warn(
    small_data: SurvivalData, model: SoftEstimator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sstorch.newton._MAX_STEPS", 1)
    monkeypatch.setattr("sstorch.optim.evidence._MAX_ROUNDS", 1)
    frame = small_data.frame.assign(c=["left" if k % 2 else "right" for k in range(120)])
    with pytest.warns(ConvergenceWarning, match="with leaf weibull has not converged"):
        model.fit(frame, small_data.y)
