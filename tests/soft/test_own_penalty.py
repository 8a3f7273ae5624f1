"""A penalty of one's own through the estimators."""

import numpy as np
import pytest
import torch
from torch import Tensor

from sstorch import GatePenalties, GroupPenalties, PrognosticTree, SoftSurvivalTree, SurvivalData
from sstorch.exceptions import ConfigError
from sstorch.nn import GateParameters, HazardFamily, LeafParameters, SurvivalDistribution
from sstorch.objective import Penalty, Ridge, RowPenalty, Sample, SmallLeaves
from sstorch.objective.row_penalties import TOO_SMALL
from sstorch.optim import Leaves
from sstorch.soft import train_batch

SEEN: list[tuple[int, ...]] = []


class Watched(Ridge):
    """The ridge, which notes of how many problems it was asked."""

    def forward(self, leaves: LeafParameters) -> Tensor:
        SEEN.append(tuple(leaves.slope.shape[:-2]))
        return super().forward(leaves)


def test_own_ridge_is_the_ridge(small_data: SurvivalData) -> None:
    X, y = small_data.frame, small_data.y
    plain = SoftSurvivalTree(
        1, init="random", n_starts=2, trainer="joint", penalties=GatePenalties(ridge=0.3)
    ).fit(X, y)
    own = GatePenalties(ridge=0.0, own=[Watched(0.3)])
    found = SoftSurvivalTree(1, init="random", n_starts=2, trainer="joint", penalties=own).fit(X, y)
    assert found.objective_ == pytest.approx(plain.objective_, abs=1e-6)
    times = np.quantile(small_data.time, [0.3, 0.7])
    np.testing.assert_allclose(
        found.predict_survival_function(X, times), plain.predict_survival_function(X, times), atol=2e-3
    )


def test_own_penalty_acts_in_every_fold_and_start(small_data: SurvivalData) -> None:
    splits = [small_data.subset(np.arange(120) % 3 != fold) for fold in range(3)]
    objectives = []
    for own in ((), (Watched(5.0),)):
        tree = SoftSurvivalTree(
            1, init="random", n_starts=2, trainer="joint", penalties=GatePenalties(own=own)
        )
        SEEN.clear()
        batch = train_batch(splits, tree._batch_settings())
        assert batch.tree.n_problems == 6
        assert ((6,) in SEEN) == bool(own)
        slopes = batch.tree.leaf_parameters().slope.detach().abs().amax(dim=(-1, -2))
        objectives.append(slopes)
    assert torch.all(objectives[1] < 0.5 * objectives[0])


class Summed(Watched):
    def forward(self, leaves: LeafParameters) -> Tensor:
        return super().forward(leaves).sum()


class Rows(RowPenalty):
    def forward(self, gates, leaves, family, sample, relaxed=False) -> Tensor:  # type: ignore[no-untyped-def]
        return leaves.linear_predictor(sample.x).square().sum()


@pytest.mark.parametrize(
    ("own", "trainer", "message"),
    [
        (["ridge"], Leaves(), "must hold LeafPenalty, GatePenalty or RowPenalty"),
        (Watched(1.0), Leaves(), "must be a list of penalties"),
        ([Rows(1.0)], Leaves(), r"Rows must give one value for each problem, shape \(1,\), got \(\)"),
        ([Summed(1.0)], Leaves(), r"one value for each problem, shape \(1,\), got \(\)"),
    ],
)
def test_own_penalties_that_cannot_act_raise(
    small_data: SurvivalData, own: list[Penalty], trainer: Leaves, message: str
) -> None:
    tree = PrognosticTree(1, "weibull", penalties=GroupPenalties(ridge=1e-3, own=own), trainer=trainer)
    with pytest.raises(ConfigError, match=message):
        tree.fit(small_data.frame, small_data.y)


def test_own_penalty_on_rows_is_that_of_small_leaves(small_data: SurvivalData) -> None:
    X, y = small_data.frame, small_data.y
    own = GatePenalties(own=[SmallLeaves(TOO_SMALL, 0.3)])
    found = SoftSurvivalTree(1, init="random", n_starts=2, penalties=own).fit(X, y)
    assert found.objective_ == pytest.approx(
        SoftSurvivalTree(1, init="random", n_starts=2, min_leaf=0.3).fit(X, y).objective_
    )


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
    gaps = []
    for rho in (1e-9, 100.0):
        penalties = GatePenalties(ridge=1e-3, own=[GroupMeans(rho)])
        tree = SoftSurvivalTree(1, "weibull", init="random", n_starts=2, trainer="joint", penalties=penalties)
        unit = float(np.exp(np.log(small_data.time).mean()))
        means = tree.fit(X, y, sensitive=group).predict_rmst(X, unit)
        gaps.append(abs(means[group == "high"].mean() - means[group == "low"].mean()))
    assert gaps[1] < 0.2 * gaps[0]
