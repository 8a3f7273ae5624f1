"""Estimated penalties with a trainer: fairness, monotone effects, linear shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from sstorch import (
    Columns,
    GatePenalties,
    GroupPenalties,
    PrognosticTree,
    SoftSurvivalTree,
    Surv,
    SurvivalData,
    SurvivalRegression,
)
from sstorch.bench import fairness_path
from sstorch.nn import LeafParameters, Spline
from sstorch.objective import LeafPenalty, TrainingObjective
from sstorch.optim import Joint, Nodec
from sstorch.optim.evidence import Estimates
from sstorch.soft.batch import train_batch
from sstorch.soft.estimation import Estimator
from tests.conftest import nightly

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


def test_gap_falls_on_a_fairness_path(gbsg2: SurvivalData) -> None:
    data = gbsg2.with_sensitive("menostat")
    model = PrognosticTree(1, "weibull", penalties=FEW).set_params(penalties__fairness="l2")
    table = fairness_path(model, data, [0.0, 0.1, 1.0], n_folds=2).table().loc["train"]
    gap = table["parity"].to_numpy()
    assert gap[0] > 3 * gap[1] > 3 * gap[2]
    assert table["c_harrell"].min() > 0.68
