"""Estimated variances and the evidence against closed forms, importance sampling and mgcv in R."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import multivariate_t
from torch import Tensor

from sstorch.data import Preprocessor, Schema
from sstorch.data.encodings import ColumnEncodings, Encodings
from sstorch.newton import Gaussian, System, newton
from sstorch.nn import DesignMatrix, make_family
from sstorch.objective import Sample
from sstorch.objective.rows import counted_weight
from sstorch.optim.evidence import Estimates, Kinds, estimate
from sstorch.optim.linear_hazards import LinearHazards
from sstorch.optim.soft_gate import SoftGate
from sstorch.soft.design import Design, null_start


def hazards(leaf: str, x: np.ndarray, time: np.ndarray, event: np.ndarray) -> LinearHazards:
    """One problem; the first column of x is the intercept."""
    design, log_time, events = (
        torch.as_tensor(np.asarray(each, dtype=float))[None] for each in (x, np.log(time), event)
    )
    ones = torch.ones_like(log_time)
    sample = Sample(DesignMatrix(design, (1,)), log_time, events, ones)
    family = make_family(leaf).prepare(log_time, events, ones, torch.zeros(1, dtype=torch.float64))
    return LinearHazards(family, sample, ones, DesignMatrix(design[..., 1:], (1,)))


def simulated(n: int, slopes: tuple[float, ...], seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standardised columns with a one before them, times and events."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, len(slopes)))
    x = (x - x.mean(0)) / x.std(0)
    time, censoring = rng.exponential(np.exp(-x @ np.array(slopes))), rng.uniform(0.5, 4, n)
    return np.column_stack([np.ones(n), x]), np.minimum(time, censoring), time <= censoring


def covariance(found: Estimates) -> Tensor:
    return found.quadratic(torch.eye(found.theta.shape[-1], dtype=torch.float64)[None])[0]


def kinds_of(problem: LinearHazards, *names: str | None) -> Kinds:
    """Kinds of slopes; intercept and shapes have none."""
    known = tuple(dict.fromkeys(name for name in names if name is not None))
    codes = [-1 if name is None else known.index(name) for name in names]
    n_shapes = problem.n_coefficients - 1 - len(names)
    return Kinds(known, torch.tensor([-1, *codes, *[-1] * n_shapes]))


def test_gaussian_likelihood_has_the_closed_form() -> None:
    # Log-normal times without censoring, an orthogonal design and a scale that the rows determine: given
    # Hessian s in each slope and estimates b, the evidence is largest where 1/lambda + 1/s = mean b^2.
    rng = np.random.default_rng(2)
    n, p = 4096, 12
    x = np.linalg.qr(np.column_stack([np.ones(n), rng.normal(size=(n, p))]))[0][:, 1:] * np.sqrt(n)
    time = np.exp(x @ rng.normal(0, 0.1, p) + rng.normal(size=n))
    problem = hazards("log_normal", np.column_stack([np.ones(n), x]), time, np.ones(n))
    found = estimate(problem, kinds_of(problem, *["line"] * p), null_start(problem))
    log_time = np.log(time)
    least_squares = x.T @ log_time / n
    variance = np.mean((log_time - log_time.mean() - x @ least_squares) ** 2)
    expected = 1 / (np.mean(least_squares**2) - variance / n)
    assert float(found.penalty) == pytest.approx(expected, rel=0.01)
    shrunk = least_squares * (n / variance) / (n / variance + expected)
    np.testing.assert_allclose(found.theta[0, 1 : 1 + p], shrunk, atol=2e-4)
    freedom = p * (n / variance) / (n / variance + expected)
    assert float(found.kinds.sums(found.freedom)) == pytest.approx(freedom, abs=0.01)


# ------------------------------------------------------------------ what has to hold


def noise_and_signal(seed: int = 4) -> LinearHazards:
    return hazards("weibull", *simulated(200, (0.8, -0.6, 0, 0, 0), seed))


def estimated(problem: LinearHazards) -> Estimates:
    kinds = kinds_of(problem, "signal", "signal", "noise", "noise", "noise")
    return estimate(problem, kinds, null_start(problem))


def test_kind_without_effect_is_all_but_zero() -> None:
    found = estimated(noise_and_signal())
    assert (found.penalty >= 1e5).tolist() == [[False, True]]
    assert float(found.theta[0, 3:6].abs().max()) < 1e-3
    signal, noise = found.kinds.sums(found.freedom)[0].tolist()
    assert signal > 1.9
    assert noise < 0.01


def test_batch_of_problems_is_each_alone() -> None:
    parts = [noise_and_signal(seed) for seed in (4, 6)]
    joined = LinearHazards(
        parts[0].family,
        Sample(
            DesignMatrix(torch.cat([each.sample.x.to_dense() for each in parts]), (1, 1)),
            *(
                torch.cat([getattr(each.sample, name) for each in parts])
                for name in ("log_time", "event", "weight")
            ),
        ),
        torch.cat([each.weight for each in parts]),
        DesignMatrix(torch.cat([each.x.to_dense() for each in parts]), (1, 1)),
    )
    both = estimated(joined)
    for k, each in enumerate(parts):
        alone = estimated(each)
        torch.testing.assert_close(both.penalty[k], alone.penalty[0], rtol=1e-8, atol=0)
        torch.testing.assert_close(both.theta[k], alone.theta[0], rtol=0, atol=1e-8)
        torch.testing.assert_close(both.evidence[k], alone.evidence[0], rtol=0, atol=1e-8)


# ------------------------------------------------------------------ gates


def test_evidence_of_a_gate_with_two_leaves_is_that_of_integration() -> None:
    """Laplace's approximation against importance sampling over leaves and the gate."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    time = rng.exponential(np.where(x > 0.2, 0.5, 2.0))
    plain = hazards("exponential", np.ones((300, 1)), time, time < 4)
    z = torch.as_tensor(x)[None, :, None]
    problem = SoftGate((plain,), torch.zeros(0, dtype=torch.long), z)
    kinds = Kinds(("level", "gate"), torch.tensor([-1, 0, 0, -1, 1]))
    start = torch.tensor([[0.0, 0.3, -0.3, 0.0, 2.0]], dtype=torch.float64)
    mean = torch.tensor([[0.0, 0.0, 0.0, 0.0, 2.0]], dtype=torch.float64)
    first = {"level": torch.full((1,), 100.0).double()}
    found = estimate(problem, kinds, start, first, mean=mean, careful=True)
    assert bool(found.converged)
    assert abs(float(found.theta[0, 1] - found.theta[0, 2])) > 1
    precision = kinds.precision(found.penalty)[0]
    generator = torch.Generator().manual_seed(0)
    n, d, freedom = 4000, 5, 8.0
    normal = torch.randn(n, d, generator=generator, dtype=torch.float64)
    shrink = (torch.as_tensor(rng.chisquare(freedom, n)) / freedom).sqrt()[:, None]
    root = torch.linalg.cholesky(covariance(found))
    theta = found.theta + (normal / shrink) @ root.mT
    proposal = multivariate_t.logpdf(theta.numpy(), found.theta[0], covariance(found).numpy(), freedom)
    loss = problem.select(torch.zeros(n, dtype=torch.long)).value(theta)
    centre = torch.where(kinds.of >= 0, mean, start)
    prior = (precision.log() - np.log(2 * np.pi) - precision * (theta - centre).square()).sum(-1) / 2
    weight = prior - loss - torch.as_tensor(proposal)
    integral = float(torch.logsumexp(weight, 0)) - np.log(n)
    assert float(found.evidence) == pytest.approx(integral, abs=0.2)
    # The variances are where it is largest: others, with the coefficients of their optimum, have less.
    for factor in (0.3, 3.0):
        given = {name: factor * found.penalty[:, k] for k, name in enumerate(kinds.names)}
        other = torch.stack(list(given.values()), -1)
        own = newton(problem, Gaussian(kinds.precision(other), centre), found.theta)
        system = System.of(own.hessian, kinds.precision(other))
        volume = (kinds.precision(other).log().sum(-1) - system.log_determinant()) / 2
        value = volume - own.loss - Gaussian(kinds.precision(other), centre).value(own.theta)
        assert float(value) < float(found.evidence)


# script and values: tests/optim/penalties.R
HERE = Path(__file__).parent
IN_R: dict[str, Any] = json.loads((HERE / "penalties_in_r.json").read_text())
KINDS = ("line", "curve", "category")
# Precision of the vague prior of the intercept in `estimate`.
VAGUE = 1e-2


def problem() -> tuple[Design, LinearHazards, Kinds]:
    """The rows of the script as a problem of an exponential regression with a curve of x."""
    rows = pd.read_csv(HERE / "penalties_in_r.csv").astype({"g": "category"})
    encodings = ColumnEncodings.of({"x": "spline(4)"})
    preprocessor = Preprocessor(
        Schema.of(rows[["x", "z1", "z2", "g"]]), encodings=Encodings(encodings, encodings)
    )
    features = torch.tensor(preprocessor.fit(rows).transform(rows))
    time, event = (torch.tensor(rows[name].to_numpy(dtype=float))[None] for name in ("time", "event"))
    sample = Sample(DesignMatrix(features[None], (1,)), time.log(), event, torch.ones_like(time))
    design = Design.of(sample, features.shape[1], preprocessor)
    hazards = design.hazards(make_family("exponential"), sample, counted_weight(sample))
    return design, hazards, design.kinds_of(1, 0)


def test_lambda_and_freedom_of_each_kind_are_those_of_mgcv() -> None:
    _, hazards, kinds = problem()
    expected = IN_R["columns"]
    found = estimate(hazards, kinds, null_start(hazards))
    assert kinds.names == KINDS
    freedom = kinds.sums(found.freedom)[0].tolist()
    # The fixed point takes the Hessian as given; the maximum of mgcv moves it with the penalties.
    assert found.penalty[0].tolist() == pytest.approx([expected["penalty"][k] for k in KINDS], rel=0.03)
    assert freedom == pytest.approx([expected["freedom"][k] for k in KINDS], abs=0.03)
    log_hazard = hazards.parameters(found.theta)[0][0, :12]
    assert log_hazard.tolist() == pytest.approx(expected["log_hazard"], abs=0.01)
    # A flat prior of the intercept there, a vague one here.
    flat = np.log(VAGUE / (2 * np.pi)) / 2
    assert float(found.evidence) - flat == pytest.approx(expected["log_marginal"], abs=2e-3)


@pytest.mark.parametrize("case", ["columns", "columns_low", "columns_high"])
def test_coefficients_at_given_penalties_are_those_of_mgcv(case: str) -> None:
    _, hazards, kinds = problem()
    expected = IN_R[case]
    penalty = torch.tensor([[expected["penalty"][k] for k in KINDS]], dtype=torch.float64)
    start = null_start(hazards)
    prior = Gaussian(kinds.spread(penalty, 0.0), torch.zeros_like(start))
    found = newton(hazards, prior, start)
    assert -float(found.loss) == pytest.approx(expected["log_likelihood"], abs=1e-8)
    log_hazard = hazards.parameters(found.theta)[0][0, :12]
    assert log_hazard.tolist() == pytest.approx(expected["log_hazard"], abs=1e-6)
    freedom = 1 - prior.precision * torch.linalg.inv(
        found.hessian + torch.diag_embed(prior.precision)
    ).diagonal(dim1=-2, dim2=-1)
    assert kinds.sums(freedom)[0].tolist() == pytest.approx([expected["freedom"][k] for k in KINDS], abs=1e-6)
    factor = torch.linalg.cholesky(found.hessian + torch.diag_embed(prior.precision))
    volume = kinds.spread(penalty, 1.0).log().sum() / 2 - factor.diagonal(dim1=-2, dim2=-1).log().sum()
    evidence = -found.loss - prior.value(found.theta) + volume + np.log(2 * np.pi) / 2
    assert float(evidence) == pytest.approx(expected["log_marginal"], abs=1e-6)
