"""Derivatives of linear hazards against differences, and Newton's optimum against that of L-BFGS."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from sstorch import Columns, Penalties, SurvivalRegression
from sstorch.data import Preprocessor, Schema, SurvivalData
from sstorch.data.design_matrix import DesignMatrix
from sstorch.newton import Gaussian, newton
from sstorch.nn import FAMILIES, HazardFamily, LogisticHazard, make_family
from sstorch.objective import Sample
from sstorch.objective.rows import counted_weight
from sstorch.optim.linear_hazards import LinearHazards
from sstorch.soft.design import null_start
from sstorch.soft.problems import stack_splits
from sstorch.soft.settings import BatchSettings
from tests.batches import random_sample, with_entry, within_intervals
from tests.conftest import nightly

KINDS: dict[str, Callable[[Sample], Sample]] = {
    "exact": lambda sample: sample,
    "entry": with_entry,
    "entry and intervals": lambda sample: within_intervals(with_entry(sample)),
}
# No shape, one, and several; second derivatives written out, and by differences.
DAILY = {
    *product(("exponential", "logistic_hazard", "spline_po", "weibull"), (True,), KINDS),
    *product(("generalized_gamma", "spline_po", "weibull"), (False,), ("exact",)),
}


def problems(leaf: str | HazardFamily, groups: bool, kind: str = "exact", n: int = 40) -> LinearHazards:
    """Two problems with weights, padding in the second, and three groups or none."""
    sample = KINDS[kind](random_sample(2, 2, n, 3))
    generator = torch.Generator().manual_seed(5)
    weight = sample.weight * (0.5 + torch.rand(2, n, generator=generator, dtype=torch.float64))
    sample = replace(sample, weight=weight)
    scale = torch.zeros(2, dtype=torch.float64)
    family = make_family(leaf).prepare(sample.log_time, sample.event, weight, scale)
    hazards = LinearHazards(family, sample, weight, DesignMatrix(sample.x.to_dense() - 0.5, (1, 1)))
    if not groups:
        return hazards
    group = torch.randint(3, (2, n), generator=generator)
    return replace(hazards, group=group, own=torch.tensor([1, 2]), n_groups=3)


def somewhere(hazards: LinearHazards) -> Tensor:
    """Coefficients around those that a hazard without covariates begins with."""
    generator = torch.Generator().manual_seed(1)
    sample = hazards.sample
    intercept, shape = hazards.family.guess(sample.log_time, sample.event, hazards.weight, sample.log_entry)
    start = intercept.new_zeros(len(intercept), hazards.n_coefficients)
    start[:, 0] = intercept
    start[:, hazards.n_linear :: 1 + hazards.n_groups] = shape
    return start + 0.1 * torch.randn(start.shape, generator=generator, dtype=torch.float64)


def differences(function: Callable[[Tensor], Tensor], theta: Tensor, step: float = 1e-5) -> Tensor:
    moves = step * torch.eye(theta.shape[-1], dtype=theta.dtype)
    return torch.stack([(function(theta + m) - function(theta - m)) / (2 * step) for m in moves], -1)


@pytest.mark.parametrize(
    ("leaf", "groups", "kind"),
    [
        (leaf, groups, kind) if (leaf, groups, kind) in DAILY else nightly(leaf, groups, kind)
        for leaf, groups, kind in product(sorted(FAMILIES), (False, True), KINDS)
    ],
)
def test_gradient_and_hessian_are_those_of_differences(leaf: str, groups: bool, kind: str) -> None:
    family = LogisticHazard([0.2, 1.0, 4.0]) if leaf == "logistic_hazard" else make_family(leaf)
    hazards = problems(family, groups, kind, n=8 if leaf == "generalized_gamma" else 24)
    theta = somewhere(hazards)
    value, gradient, hessian = hazards.derivatives(theta)
    torch.testing.assert_close(value, hazards.value(theta), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(gradient, differences(hazards.value, theta), rtol=1e-6, atol=1e-6)
    of_gradient = differences(lambda at: hazards.derivatives(at)[1], theta)
    torch.testing.assert_close(hessian, of_gradient, rtol=1e-5, atol=1e-5)
    assert torch.equal(hessian, hessian.mT)


CLOSED = ["exponential", "log_logistic", "log_normal", "spline_ph", "spline_po", "spline_probit", "weibull"]


@pytest.mark.parametrize("leaf", [*CLOSED, "logistic_hazard"])
def test_second_derivatives_of_the_family_and_of_autograd_agree(leaf: str) -> None:
    family = LogisticHazard([0.2, 1.0, 4.0]) if leaf == "logistic_hazard" else make_family(leaf)
    assert family.closed_form
    hazards = problems(family, groups=False)
    late = replace(hazards.sample, log_entry=torch.full_like(hazards.sample.log_time, -torch.inf))
    by_autograd = replace(hazards, sample=late)
    theta = somewhere(hazards)
    for own, other in zip(hazards.derivatives(theta), by_autograd.derivatives(theta), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-10, atol=1e-10)


def test_padding_adds_nothing_whatever_it_holds() -> None:
    hazards = problems("weibull", groups=True)
    theta = somewhere(hazards)
    strange = hazards.sample.log_time.masked_fill(hazards.weight == 0, 1e4)
    other = replace(hazards, sample=replace(hazards.sample, log_time=strange))
    for own, same in zip(hazards.derivatives(theta), other.derivatives(theta), strict=True):
        assert torch.equal(own, same)


@pytest.mark.parametrize("leaf", ["spline_po", "weibull"])
def test_rows_cut_in_two_have_the_derivatives_of_whole_ones(leaf: str) -> None:
    hazards = problems(leaf, groups=True)
    sample = hazards.sample
    middle = sample.log_time - 0.7
    early = replace(sample, log_time=middle, event=torch.zeros_like(sample.event))
    late = replace(sample, log_entry=middle)
    theta = somewhere(hazards)
    parts = [replace(hazards, sample=each).derivatives(theta) for each in (early, late)]
    for whole, first, second in zip(hazards.derivatives(theta), *parts, strict=True):
        torch.testing.assert_close(first + second, whole, rtol=1e-9, atol=1e-9)


# ------------------------------------------------------------------ optima


@pytest.mark.parametrize("leaf", ["spline_po", "log_logistic", "weibull"])
def test_optimum_is_that_of_lbfgs(leaf: str, gbsg2: SurvivalData) -> None:
    columns = Columns(numeric="smooth")
    ridge, roughness = 1e-2, 3e-2
    model = SurvivalRegression(leaf, Penalties(ridge, roughness), columns).fit(
        gbsg2.frame, (gbsg2.time, gbsg2.event)
    )
    settings = BatchSettings.check(depth=0, leaf=leaf, numeric="smooth", ridge=ridge, roughness=roughness)
    preprocessor = Preprocessor(Schema.of(gbsg2.frame), encodings=settings.encodings).fit(gbsg2.frame)
    features = DesignMatrix.stack([preprocessor.transform(gbsg2.frame)])
    tree, sample = stack_splits([gbsg2], features, preprocessor, settings)
    hazards = LinearHazards(tree.family, sample, counted_weight(sample), sample.x)
    curved = torch.tensor([feature.curved for feature in preprocessor.leaf_features])
    precision = torch.zeros(1, hazards.n_coefficients, dtype=torch.float64)
    precision[0, 1 : 1 + len(curved)] = len(gbsg2) * torch.where(curved, roughness, ridge)
    prior = Gaussian(precision, torch.zeros_like(precision))
    found = newton(hazards, prior, null_start(hazards))
    objective = float(found.loss + prior.value(found.theta)) / len(gbsg2)
    assert objective == pytest.approx(model.objective_, abs=1e-8)
    assert float((found.gradient + prior.gradient(found.theta)).abs().max()) < 1e-3


def test_one_covariate_of_exponential_times_has_the_closed_form() -> None:
    # Of a binary column without penalty: the logarithm of events over time at risk in each group.
    rng = np.random.default_rng(1)
    group, time = rng.integers(0, 2, 50), rng.exponential(2.0, 50)
    event = rng.uniform(size=50) < 0.7
    sample = random_sample(1, 1, 50, 1)
    log_time, events = (torch.tensor(each, dtype=torch.float64)[None] for each in (np.log(time), event))
    sample = replace(sample, log_time=log_time, event=events)
    x = DesignMatrix(torch.tensor(group, dtype=torch.float64)[None, :, None], (1,))
    hazards = LinearHazards(make_family("exponential"), sample, sample.weight, x)
    none = torch.zeros(1, 2, dtype=torch.float64)
    theta = newton(hazards, Gaussian(none, none), none).theta[0]
    rates = [np.log(event[group == k].sum() / time[group == k].sum()) for k in (0, 1)]
    np.testing.assert_allclose(theta.numpy(), [rates[0], rates[1] - rates[0]], atol=1e-8)


# ------------------------------------------------------------------ difficult data


def difficult(n: int = 150) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    time = rng.exponential(np.exp(-0.8 * frame.a - 0.4 * frame.b))
    censoring = rng.uniform(0.3, 3, n)
    return frame, np.minimum(time, censoring), time <= censoring


def fitted(frame: pd.DataFrame, time: np.ndarray, event: np.ndarray, leaf: str) -> SurvivalRegression:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few events, or many columns
        model = SurvivalRegression(leaf, columns=Columns(numeric="linear")).fit(frame, (time, event))
    assert np.isfinite(model.predict_survival_function(frame, times=[0.5, 1.0])).all()
    return model


def freedom(model: SurvivalRegression) -> dict[str, float]:
    assert model.choice_ is not None
    return dict(model.choice_.terms["event"])


@pytest.mark.parametrize("leaf", ["auto", "weibull"])
def test_separation_is_held_by_the_variance_of_its_kind(leaf: str) -> None:
    frame, time, event = difficult()
    model = fitted(frame.assign(group=np.where(event, "yes", "no")), time, event, leaf)
    # Maximum likelihood has an infinite coefficient; here those with and without events differ, finitely.
    assert 0.5 < freedom(model)["group"] < 1
    survival = model.predict_survival_function(frame.assign(group="no"), times=[1.0])
    assert survival.min() > 0.9
