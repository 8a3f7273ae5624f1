"""More columns than rows: one ridge, rotation of the features, and the estimators that have them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sstorch import PrognosticTree, SurvivalRegression
from sstorch.data import Preprocessor, Schema
from sstorch.data.design_matrix import DesignMatrix
from sstorch.nn import make_family
from sstorch.objective import Sample
from sstorch.objective.rows import counted_weight
from sstorch.optim.evidence import estimate
from sstorch.soft.design import Design, null_start

pytestmark = pytest.mark.filterwarnings("ignore:.* columns after encoding", "ignore:4 events")


def simulate(
    n: int, p: int, n_effects: int, seed: int, size: float = 1.5
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Columns, times, events and linear predictors; effects of the first columns."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    predictor = x[:, :n_effects] @ rng.choice([-1.0, 1.0], n_effects) * size / np.sqrt(n_effects)
    death = 10 * (rng.exponential(size=n) / np.exp(predictor)) ** (1 / 1.5)
    censoring = rng.uniform(0, np.quantile(death, 0.9), n)
    return x, np.minimum(death, censoring), death <= censoring, predictor


def test_rotated_design_has_same_optimum_and_evidence() -> None:
    x, time, event, _ = simulate(25, 40, 3, 0)
    preprocessor = Preprocessor(Schema.of(x)).fit(x)
    times, events = torch.tensor(np.log(time))[None], torch.tensor(event, dtype=torch.float64)[None]
    features = torch.tensor(preprocessor.transform(x))[None]
    sample = Sample(DesignMatrix(features, (1,)), times, events, torch.ones_like(times))
    rotated = Design.of(sample, 40, preprocessor).of_many_lines()
    assert rotated.components is not None
    n_components = rotated.components[0].shape[-1]
    none = torch.zeros(40, dtype=torch.bool)
    plain = replace(Design.of(sample, 40, preprocessor), own=none, has_many=True)
    found = {}
    for design in (rotated, plain):
        hazards = design.hazards(make_family("exponential"), sample, counted_weight(sample))
        estimates = estimate(hazards, design.kinds_of(1, 0), null_start(hazards))
        found[hazards.width - 1] = estimates, design.leaves(estimates.theta, 1, 0), design
    (one, leaves, design), (other, plain_leaves, plain_design) = found[n_components], found[40]
    assert n_components < 25
    # Penalties stop within a hundredth of their fixed point.
    tolerance = 3e-3
    assert float(one.evidence) == pytest.approx(float(other.evidence), abs=tolerance)
    torch.testing.assert_close(leaves.slope, plain_leaves.slope, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(leaves.intercept, plain_leaves.intercept, rtol=tolerance, atol=tolerance)
    freedom = design.freedom(one, 0)
    torch.testing.assert_close(freedom, plain_design.freedom(other, 0), rtol=0.0, atol=3 * tolerance)
    assert float(freedom.sum()) == pytest.approx(float(one.freedom[0, 1:].sum()), abs=1e-8)


def test_many_columns_have_one_ridge(tmp_path: Path) -> None:
    x, time, event, predictor = simulate(350, 300, 300, 2)
    model = SurvivalRegression("weibull").fit(x[:150], (time[:150], event[:150]))
    assert model.choice_ is not None
    (estimation,) = model.choice_.estimations.values()
    assert np.corrcoef(np.log(model.predict(x[150:])), predictor[150:])[0, 1] > 0.35
    assert estimation.n_coefficients == (300,)
    assert sum(estimation.term_freedom.values()) == pytest.approx(sum(estimation.freedom), abs=1e-6)
    text = model.summary(details=True)
    assert "292 more" in text
    model.save(tmp_path / "model")
    again = SurvivalRegression.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    assert again.summary(details=True) == text


@pytest.mark.parametrize("leaf", ["weibull", "log_logistic", "log_normal"])
def test_more_columns_than_rows_do_not_fit_noise_perfectly(leaf: str) -> None:
    rng = np.random.default_rng(3)
    x, time = rng.normal(size=(70, 150)), rng.weibull(1.5, 70)
    y, new = (time[:50], np.ones(50, dtype=bool)), (time[50:], np.ones(20, dtype=bool))
    model = SurvivalRegression(leaf).fit(x[:50], y)
    null = SurvivalRegression(leaf).fit(x[:50, :1], y)
    shapes = [each.module_.leaf_parameters().shape.item() for each in (model, null)]
    assert abs(shapes[0] - shapes[1]) < 0.7  # logarithms
    assert model.log_likelihood(x[50:], new) > null.log_likelihood(x[50:, :1], new) - 0.5


@pytest.mark.nightly
def test_groups_divide_by_visible_columns() -> None:
    x, time, event, _ = simulate(150, 200, 2, 4)
    tree = PrognosticTree(depth=1, leaf="weibull").fit(x, (time, event))
    assert len(set(tree.apply(x))) == 2
    gates = tree.module_.gate_parameters().weight[0]
    assert gates.nonzero().squeeze(-1).tolist() in ([0], [1])
    leaves = tree.module_.leaf_parameters()
    torch.testing.assert_close(leaves.slope[0], leaves.slope[1])
