"""Penalties with a trainer: of users, of fairness, monotone effects, linear shapes; fits that stop early."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from sstorch import (
    Columns,
    GatePenalties,
    GroupPenalties,
    Penalties,
    PrognosticTree,
    SoftSurvivalTree,
    Surv,
    SurvivalData,
    SurvivalRegression,
    load_dataset,
)
from sstorch.exceptions import ConfigError, TrainingError
from sstorch.nn import GateParameters, HazardFamily, LeafParameters, Spline, SurvivalDistribution
from sstorch.objective import LeafPenalty, Penalty, Ridge, RowPenalty, Sample, TrainingObjective
from sstorch.optim import Joint, LBFGSOptions, Leaves, Nodec
from sstorch.optim.evidence import Estimates
from sstorch.soft.batch import train_batch
from sstorch.soft.estimation import Estimator
from sstorch.soft.estimator import SoftEstimator
from tests.conftest import nightly

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


# ------------------------------------------------------------------ under estimated variances

FEW = GroupPenalties(gate_charge=0.0)


class Nothing(LeafPenalty):
    """Leaves are trained by a trainer, towards what they are."""

    def forward(self, leaves: LeafParameters) -> torch.Tensor:
        return 0.0 * leaves.slope.sum((-2, -1))


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_value_at_the_optimum_of_the_evidence_is_that_of_the_prior(
    gbsg2: SurvivalData, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss and variances by kind, put together from the estimates, against the trainer's objective there."""
    found: dict[str, Any] = {}
    choose = Estimator.choose

    def noted(self: Estimator) -> Any:
        choices = choose(self)
        found.update(estimator=self, prior=self.prior("event"))
        return choices

    monkeypatch.setattr(Estimator, "choose", noted)
    model = PrognosticTree(depth, penalties=FEW)
    batch = train_batch([gbsg2], model._batch_settings())
    estimator, tree = found["estimator"], batch.tree
    estimates: Estimates = estimator._models[0].estimates["event"]
    count = estimator._hazards["event"].weight.sum()
    precision = torch.where(estimates.kinds.of >= 0, estimates.kinds.precision(estimates.penalty), 0.0)
    squares = float((precision * estimates.rounded.square()).sum() / 2 / count)
    prior = float(found["prior"](tree.leaf_parameters()).detach())
    assert prior == pytest.approx(squares, abs=1e-8)
    assert squares > 1e-3
    if depth == 0:  # where rows have one leaf whatever the gates are
        objective = TrainingObjective().with_prior(found["prior"])
        hazards = estimator._hazards["event"]
        value = float(hazards.value(estimates.rounded) / count) + squares
        assert float(objective(tree, estimator.samples["event"]).detach()) == pytest.approx(value, abs=1e-8)


@pytest.mark.parametrize("model", [SurvivalRegression(), PrognosticTree(penalties=FEW)])
def test_trainer_ends_where_newton_does(
    gbsg2: SurvivalData, model: SurvivalRegression | PrognosticTree
) -> None:
    plain, trained = clone(model), clone(model).set_params(penalties__own=[Nothing(1.0)])
    plain.fit(gbsg2.frame, gbsg2.y)
    trained.fit(gbsg2.frame, gbsg2.y)
    assert trained.history_.steps["status"].tolist() == ["CONVERGED"]
    np.testing.assert_allclose(
        trained.predict_survival_function(gbsg2.frame, [500.0, 1500.0]),
        plain.predict_survival_function(gbsg2.frame, [500.0, 1500.0]),
        atol=2e-5,
    )
    assert trained.choice_.evidence == plain.choice_.evidence


@pytest.mark.parametrize("trainer", [Joint(), Nodec(macro_iterations=2)])
def test_trainer_of_gates_lowers_the_objective_under_the_variances(
    gbsg2: SurvivalData, trainer: Joint | Nodec
) -> None:
    penalties = GatePenalties(gate_charge=0.0)
    tree = SoftSurvivalTree(1, trainer=trainer, penalties=penalties).fit(gbsg2.frame, gbsg2.y)
    passes = tree.history_.macro_iterations["best_objective"]
    assert passes.iloc[-1] < passes.iloc[0] - 1e-2
    assert tree.module_.family.name == "spline_po"
    slopes = tree.module_.leaf_parameters().slope.detach()
    curved = [feature.curved for feature in tree.preprocessor_.leaf_features]
    torch.testing.assert_close(slopes[0, curved], slopes[1, curved], rtol=0, atol=1e-9)
    assert tree.score(gbsg2.frame, gbsg2.y) > 0.71


def test_trainer_keeps_groups_that_share_their_hazard(gbsg2: SurvivalData) -> None:
    """Nothing depends on their gates but a ridge, which would shrink them until all rows are one group."""
    whas = load_dataset("whas500")
    (plain, trained), (some, others) = (
        [
            SoftSurvivalTree(leaf="weibull", trainer=trainer).fit(data.frame, data.y)
            for trainer in (None, Nodec(macro_iterations=2))
        ]
        for data in (gbsg2, whas)
    )
    assert plain.choice_.chosen == "regression"
    np.testing.assert_array_equal(trained.apply(gbsg2.frame), plain.apply(gbsg2.frame))
    assert len(set(plain.apply(gbsg2.frame))) == 4
    # Gate 1 divides hazards, gate 3 the rows below it by what is predicted for them.
    assert some.choice_.chosen == "residuals 2"
    torch.testing.assert_close(others.module_.gate(3).weight, some.module_.gate(3).weight)
    assert others.module_.gate(1).weight.norm() < 0.5 * some.module_.gate(1).weight.norm()


@pytest.mark.parametrize("trainer", [None, Joint()])
def test_trained_gate_keeps_its_estimated_variance(trainer: Joint | None) -> None:
    """With the ridge of a published gate its weights, of hundreds, would cost a hundred nats a row."""
    rng = np.random.default_rng(2)
    X = pd.DataFrame(rng.normal(size=(400, 4)), columns=list("abde"))
    time = rng.exponential(np.exp(-np.where(X.d + X.e > 0, X.a, -X.a)))
    y = Surv(np.minimum(time, 3), time < 3)
    columns, own = Columns(numeric="linear"), GatePenalties(own=[Nothing(1.0)])
    plain = SoftSurvivalTree(1, "weibull", columns=columns).fit(X, y)
    tree = SoftSurvivalTree(1, "weibull", trainer, columns=columns, penalties=own).fit(X, y)
    assert plain.choice_.chosen.startswith("spectral")
    assert tree.objective_ == pytest.approx(plain.objective_, abs=0.02)
    assert tree.score(X, y) == pytest.approx(plain.score(X, y), abs=0.005)
    assert tree.history_.macro_iterations["best_objective"].iloc[0] < 1.5


@pytest.mark.parametrize(("depth", "leaf"), [(0, "spline_po"), nightly(1, "log_logistic")])
def test_monotone_effects_are_monotone(gbsg2: SurvivalData, depth: int, leaf: str) -> None:
    ways = {"pnodes": "up", "age": "down"}
    columns = Columns(numeric={"age": "piecewise", "pnodes": "piecewise"}, monotone=ways)
    tree = PrognosticTree(depth, leaf, penalties=FEW, columns=columns)
    free = clone(tree).set_params(columns__monotone=None)
    wrong = []
    for model in (tree, free):
        model.fit(gbsg2.frame, gbsg2.y)
        slope = model.module_.leaf_parameters().slope.detach().double().numpy()
        risk = -1 if model.module_.family.ratio == "time ratio" else 1
        signs = (("pnodes", risk), ("age", -risk))
        found = [sign * model.preprocessor_.leaf_slopes(name) @ slope.T for name, sign in signs]
        wrong.append(-min(each.min() for each in found))
    assert wrong[0] <= 1e-9 < wrong[1]


def test_linear_shapes_are_trained_by_a_trainer(gbsg2: SurvivalData) -> None:
    plain = PrognosticTree(0, Spline("hazard", knots=1), penalties=FEW).fit(gbsg2.frame, gbsg2.y)
    tree = PrognosticTree(0, Spline("hazard", knots=1, ancillary="linear"), penalties=FEW)
    tree.fit(gbsg2.frame, gbsg2.y)
    assert tree.history_.steps["status"].iloc[-1] == "CONVERGED"
    gain = tree.log_likelihood(gbsg2.frame, gbsg2.y) - plain.log_likelihood(gbsg2.frame, gbsg2.y)
    assert gain > 0.01
