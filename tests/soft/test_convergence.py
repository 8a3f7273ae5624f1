"""Fits that stop before their optimum."""

import pytest
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from sstorch import Columns, Penalties, PrognosticTree, SoftSurvivalTree, SurvivalData, SurvivalRegression
from sstorch.exceptions import TrainingError
from sstorch.nn import LeafParameters
from sstorch.objective import LeafPenalty
from sstorch.optim import LBFGSOptions, Leaves
from sstorch.soft.estimator import SoftEstimator


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


def test_too_few_iterations_warn(small_data: SurvivalData) -> None:
    trainer = Leaves(LBFGSOptions(max_iterations=0, gradient_tolerance=0.0))
    model = SurvivalRegression("weibull", Penalties(ridge=0.1), trainer=trainer)
    with pytest.warns(ConvergenceWarning, match="SurvivalRegression with leaf weibull has not converged"):
        model.fit(small_data.frame, small_data.y)


@pytest.mark.parametrize(
    "model",
    [
        SurvivalRegression("weibull"),
        PrognosticTree(1, "weibull"),
        SurvivalRegression("weibull", Penalties(ridge=1e-3), Columns(strata="c")),
    ],
)
def test_too_few_steps_of_newton_warn(
    small_data: SurvivalData, model: SoftEstimator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sstorch.newton.minimize._MAX_STEPS", 1)
    monkeypatch.setattr("sstorch.optim.evidence._MAX_ROUNDS", 1)
    data = small_data
    frame = data.frame.assign(c=["left" if k % 2 else "right" for k in range(len(data))])
    with pytest.warns(ConvergenceWarning, match="has not converged"):
        model.fit(frame, data.y)
