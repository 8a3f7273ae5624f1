"""More columns than rows: priors by column, rotation of the features, and the estimators that have them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from sstorch import PrognosticTree, Surv, SurvivalRegression
from sstorch.data import Preprocessor, Schema
from sstorch.data.columns import is_wide
from sstorch.nn import make_family
from sstorch.nn.design_matrix import DesignMatrix
from sstorch.objective import Sample, counted_weight
from sstorch.optim.compiled.mixture_sweeps import mixture_sweeps
from sstorch.optim.evidence import Kinds, estimate
from sstorch.optim.linear_design import LinearDesign
from sstorch.soft.design import Design, null_start
from sstorch.soft.wide import PRIORS, _Expansion

pytestmark = pytest.mark.filterwarnings(
    "ignore:.* columns after encoding", "ignore:4 events", "ignore:the curves of leaf"
)


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


@pytest.mark.parametrize("known", [True, False])
def test_rotated_design_has_same_optimum_and_evidence(known: bool) -> None:
    x, time, event, _ = simulate(25, 40, 3, 0)
    preprocessor = Preprocessor(Schema.of(x)).fit(x)
    times, events = torch.tensor(np.log(time))[None], torch.tensor(event, dtype=torch.float64)[None]
    features = torch.tensor(preprocessor.transform(x))[None]
    sample = Sample(DesignMatrix(features, (1,)), times, events, torch.ones_like(times))
    variance = torch.tensor(np.random.default_rng(1).uniform(0.01, 0.1, 40))[None]
    variance[:, :5] = 0.0  # columns without a part
    rotated = Design.of(sample, 40, preprocessor).rotated(variance)
    rotation = rotated.rotation
    assert rotation is not None
    columns = LinearDesign.of(torch.nn.functional.pad(rotation.z, (1, 0), value=1.0))
    plain = replace(rotated, columns=columns, rotation=None, own=torch.zeros(40, dtype=torch.bool))
    kinds_known = ("line",) if known else ()
    found = {}
    for design in (rotated, plain):
        hazards = design.hazards(make_family("exponential"), sample, counted_weight(sample))
        kinds = replace(design.kinds_of(1, 0), known=kinds_known)
        estimates = estimate(hazards, kinds, null_start(hazards))
        found[design.z.shape[-1]] = estimates, design.leaves(estimates.theta, 1, 0), design
    (one, leaves, design), (other, plain_leaves, plain_design) = found[rotation.scores.shape[-1]], found[40]
    assert rotation.scores.shape[-1] < 25
    # Free penalties stop within a hundredth of their fixed point.
    tolerance = 1e-7 if known else 3e-3
    assert float(one.evidence) == pytest.approx(float(other.evidence), abs=tolerance)
    torch.testing.assert_close(leaves.slope, plain_leaves.slope, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(leaves.intercept, plain_leaves.intercept, rtol=tolerance, atol=tolerance)
    assert not leaves.slope[..., :5].any()
    freedom = design.freedom(one, 0)
    torch.testing.assert_close(freedom, plain_design.freedom(other, 0), rtol=0.0, atol=3 * tolerance)
    assert float(freedom.sum()) == pytest.approx(float(one.freedom[0, 1:].sum()), abs=1e-8)


def test_known_variance_is_not_estimated() -> None:
    kinds = Kinds(("line", "curve"), torch.tensor([-1, 0, 1]), frozenset({"curve"}))
    assert kinds.estimated.tolist() == [True, False]


def test_mixture_of_orthogonal_columns_is_exact() -> None:
    rng = np.random.default_rng(0)
    x = np.linalg.qr(rng.normal(size=(30, 6)))[0].T.copy() * 2.0
    target = rng.normal(size=30)
    variance, share = np.array([0.0, 0.1, 1.0]), np.array([0.5, 0.3, 0.2])
    mean, score, shrinkage, given = np.zeros(6), target.copy(), np.zeros(6), share.copy()
    _, bound = mixture_sweeps(x, x, np.full(6, 4.0), score, mean, variance, given, shrinkage, 0, 1, 0.0)

    def density(b: float, j: int, power: int) -> float:
        prior = sum(w * norm.pdf(b, scale=np.sqrt(v)) for w, v in zip(share[1:], variance[1:], strict=True))
        return float(b**power * prior * np.exp((x[j] @ target) * b - 2 * b**2))

    total = 0.0
    for j in range(6):
        mass, moment = (quad(density, -9, 9, args=(j, power))[0] for power in (0, 1))
        assert mean[j] == pytest.approx(moment / (mass + share[0]), abs=1e-7)
        total += np.log(mass + share[0])
    # The bound counts from residuals at the means, the evidence from the targets.
    assert bound - score @ score / 2 == pytest.approx(total - target @ target / 2, abs=1e-7)
    assert given.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(mean, shrinkage * (x @ target), rtol=1e-9)


def test_ridge_by_evidence_is_that_of_normal_densities() -> None:
    rng = np.random.default_rng(1)
    x, weight = rng.normal(size=(25, 60)), rng.uniform(0.5, 2.0, 25)
    target = x @ rng.normal(0, 0.2, 60) + rng.normal(0, weight**-0.5)
    near = _Expansion(weight, target - target @ weight / weight.sum())
    variance, dual = near.best_ridge(x @ x.T)
    root = np.sqrt(weight)
    # Contrasts of the rows, which the level does not touch.
    contrasts = np.linalg.svd(np.eye(25) - np.outer(root, root) / weight.sum())[0][:, :24]
    scaled = contrasts.T @ (root[:, None] * x)

    def evidence(value: float) -> float:
        return float(
            multivariate_normal(cov=np.eye(24) + value * scaled @ scaled.T).logpdf(
                contrasts.T @ (root * target)
            )
        )

    assert evidence(variance) > max(evidence(0.9 * variance), evidence(1.1 * variance))
    gram = variance * x @ x.T
    moments = scaled.T @ contrasts.T @ (root * target)
    coefficient = np.linalg.solve(scaled.T @ scaled + np.eye(60) / variance, moments)
    np.testing.assert_allclose(x.T @ dual, coefficient, atol=1e-8)
    np.testing.assert_allclose(variance * x.T @ near.dual(gram), coefficient, atol=1e-8)


@pytest.fixture(scope="module")
def sparse() -> tuple[SurvivalRegression, np.ndarray, np.ndarray]:
    """A regression on 300 columns of which three matter, and held-out rows with their linear predictors."""
    x, time, event, predictor = simulate(350, 300, 3, 2)
    model = SurvivalRegression("weibull").fit(x[:150], (time[:150], event[:150]))
    return model, x[150:], predictor[150:]


def test_few_effects_among_many_columns_are_found(
    sparse: tuple[SurvivalRegression, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    model, x, predictor = sparse
    assert model.choice_ is not None
    (estimation,) = model.choice_.estimations.values()
    assert estimation.column_prior in PRIORS
    first = sorted(estimation.term_freedom, key=lambda name: -estimation.term_freedom[name])[:3]
    assert set(first) == {"x0", "x1", "x2"}
    assert np.corrcoef(np.log(model.predict(x)), predictor)[0, 1] > 0.9
    assert estimation.n_coefficients == (300,)
    assert sum(estimation.term_freedom.values()) == pytest.approx(sum(estimation.freedom), abs=1e-6)
    text = model.summary(details=True)
    assert "columns with no visible effect of their own" in text
    assert f"prior variances {estimation.column_prior}" in text
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


@pytest.mark.nightly
def test_competing_causes_have_priors_of_their_own() -> None:
    x, time, event, _ = simulate(140, 120, 2, 5)
    cause = np.where(event, 1 + (np.random.default_rng(0).random(140) < 0.4), 0)
    model = SurvivalRegression("weibull").fit(x, Surv(time, cause, causes=("a", "b")))
    assert model.choice_ is not None
    priors = [each.column_prior for each in model.choice_.estimations.values()]
    assert set(priors) <= set(PRIORS)
    assert np.isfinite(model.predict(x, cause="b")).all()


@pytest.mark.parametrize(
    ("p", "n", "wide"), [(99, 50, False), (100, 200, True), (100, 201, False), (500, 9_000, True)]
)
def test_width_from_which_columns_have_priors(p: int, n: int, wide: bool) -> None:
    assert is_wide(p, n) == wide


def test_too_few_events_for_folds_have_the_dense_prior() -> None:
    x, time, _, _ = simulate(60, 110, 2, 6)
    event = np.zeros(60, dtype=bool)
    event[:4] = True
    model = SurvivalRegression("weibull").fit(x, (time, event))
    assert model.choice_ is not None
    assert model.choice_.estimations["event"].column_prior == "dense"
