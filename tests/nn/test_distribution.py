"""Distributions of event times: likelihoods, curves, times of samples, derivatives."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import scipy.stats
import torch
from scipy.integrate import quad
from torch import Tensor, nn

from sstorch.exceptions import ConfigError, DataError
from sstorch.nn import (
    FAMILIES,
    HazardFamily,
    HazardHead,
    LogLogistic,
    SoftTree,
    SurvivalDistribution,
    competing_nll,
)
from tests.batches import blank_tree, distribution, random_tree
from tests.conftest import covering

DRAWS = torch.Generator().manual_seed(5)
X = torch.rand(9, 3, dtype=torch.float64, generator=DRAWS)
TIME = 20 * torch.rand(9, dtype=torch.float64, generator=DRAWS) + 0.5
EVENT = (torch.rand(9, generator=DRAWS) < 0.6).double()
WEIGHT = torch.rand(9, dtype=torch.float64, generator=DRAWS)


def tree_of(leaf: str, scale: float = 7.0) -> SoftTree:
    """A tree of depth 2 with random parameters, whose unit of time is not 1."""
    tree: SoftTree = random_tree(1, 2, leaf).select(0)
    tree.log_time_scale.fill_(math.log(scale))
    return tree


# ------------------------------------------------------------------ likelihood


@pytest.mark.parametrize("prediction", ["mixture", "hbp"])
@pytest.mark.parametrize("leaf", sorted(FAMILIES))
def test_nll_is_that_of_the_curves(leaf: str, prediction: str) -> None:
    rows = distribution(tree_of(leaf), X, prediction)
    own, entry, until = TIME[:, None], 0.3 * TIME, 1.5 * TIME
    before = rows.log_survival(entry[:, None])[:, 0]
    exact = -(EVENT * rows.log_hazard(own)[:, 0] + rows.log_survival(own)[:, 0])
    within = -(rows.survival(own) - rows.survival(until[:, None]))[:, 0].log()
    for given, expected in (
        ({"time": TIME, "event": EVENT}, exact),
        ({"time": TIME, "event": EVENT, "entry": entry}, exact + before),
        ({"lower": TIME, "upper": until}, within),
        ({"lower": TIME, "upper": until, "entry": entry}, within + before),
        ({"lower": TIME, "upper": torch.where(EVENT > 0, TIME, math.inf)}, exact),
        ({"lower": 0 * TIME, "upper": TIME}, -torch.log1p(-rows.survival(own)[:, 0])),
    ):
        found = rows.nll(**given, reduction="none")
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_rows_without_information_have_likelihood_one() -> None:
    rows, zero = tree_of("weibull")(X), torch.zeros(9)
    for given in (
        {"lower": zero, "upper": zero + math.inf},  # never seen after time zero
        {"time": zero, "event": zero},
        {"time": TIME, "event": zero, "entry": TIME},
    ):
        assert float(rows.nll(**given).detach()) == pytest.approx(0.0, abs=1e-14)


def test_two_causes_and_censoring_share_all_probability() -> None:
    causes = {1: tree_of("weibull")(X[:1]), 2: HazardHead(3, "gompertz", 2, dtype=torch.float64)(X[:1])}
    entry, end = torch.tensor([1.0]).double(), 6.0

    def likelihood(t: float, cause: int) -> float:
        value = competing_nll(
            causes, torch.tensor([t], dtype=torch.float64), torch.tensor([cause]), entry=entry
        )
        return math.exp(-float(value.detach()))

    shares = [quad(likelihood, 1.0, end, args=(k,), epsabs=1e-12)[0] for k in (1, 2)]
    assert sum(shares) + likelihood(end, 0) == pytest.approx(1.0, abs=1e-9)
    cause = torch.tensor([0, 1, 2] * 3)
    both = {1: tree_of("weibull")(X), 2: tree_of("log_logistic", 3.0)(X)}
    expected = sum(
        each.nll(TIME, (cause == k).double(), weight=WEIGHT, reduction="sum") for k, each in both.items()
    )
    found = competing_nll(both, TIME, cause, weight=WEIGHT, reduction="sum")
    torch.testing.assert_close(found, torch.as_tensor(expected), rtol=1e-13, atol=0)


def test_reductions_and_weights() -> None:
    rows = tree_of("log_normal")(X)
    each = rows.nll(TIME, EVENT, reduction="none")
    assert torch.equal(rows.nll(TIME, EVENT), each.mean())
    assert torch.equal(rows.nll(TIME, EVENT, reduction="sum"), each.sum())
    for reduction, expected in (
        ("none", WEIGHT * each),
        ("sum", (WEIGHT * each).sum()),
        ("mean", (WEIGHT * each).sum() / WEIGHT.sum()),
    ):
        torch.testing.assert_close(rows.nll(TIME, EVENT, weight=WEIGHT, reduction=reduction), expected)


def test_a_row_without_weight_may_be_impossible() -> None:
    head = HazardHead(1, "exponential", dtype=torch.float64)
    with torch.no_grad():
        head.leaf.intercept.fill_(800.0)  # the hazard overflows at time 1
    rows = head(torch.zeros(2, 1).double())
    time = torch.tensor([1.0, 1e-300], dtype=torch.float64)
    weight = torch.tensor([0.0, 1.0]).double()
    assert rows.nll(time, torch.ones(2), reduction="none")[0].isposinf()
    value = rows.nll(time, torch.ones(2), weight=weight)
    (slope,) = torch.autograd.grad(value, head.leaf.intercept)
    assert value.isfinite()
    assert slope.isfinite().all()


@pytest.mark.parametrize("leaf", ["weibull", "exponential", "spline_ph"])
def test_a_component_that_overflows_at_weight_zero_has_no_gradient(leaf: str) -> None:
    tree = tree_of(leaf)
    with torch.no_grad():
        tree.gate(1).weight.zero_()
        tree.gate(1).bias.fill_(-2000.0)  # all rows go right at the root
        tree.leaf(4).intercept.fill_(-2e3 if leaf == "weibull" else 2e3)
    value = tree(X).nll(TIME, EVENT)
    gradients = torch.autograd.grad(value, list(tree.parameters()), allow_unused=True)
    assert value.isfinite()
    assert all(part.isfinite().all() for part in gradients if part is not None)
    assert not dict(zip(tree.parameters(), gradients, strict=True))[tree.leaf(4).intercept].any()


# ------------------------------------------------------------------ derivatives


def differences(function: Callable[[], Tensor], parameter: Tensor, step: float = 1e-6) -> Tensor:
    """Central differences of a number in each element of a parameter, changed in place."""
    found = torch.zeros_like(parameter).flatten()
    values = parameter.detach().view(-1)
    for k in range(len(values)):
        ends = []
        for sign in (1.0, -1.0):
            values[k] += sign * step
            ends.append(float(function()))
            values[k] -= sign * step
        found[k] = (ends[0] - ends[1]) / (2 * step)
    return found.reshape(parameter.shape)


@pytest.mark.parametrize(
    ("leaf", "kind", "rows"),
    covering(sorted(FAMILIES), ["head", "mixture", "tree"], ["exact", "intervals", "entry"], strength=2),
)
def test_a_network_in_front_gets_its_gradient(leaf: str, kind: str, rows: str) -> None:
    torch.manual_seed(2)
    modules = {"head": (1, HazardHead), "mixture": (3, HazardHead), "tree": (1, SoftTree)}
    number, make = modules[kind]
    last = make(2, number, leaf) if make is SoftTree else make(2, leaf, number)  # type: ignore[arg-type]
    last = last.double().initialize(TIME, EVENT)
    net = nn.Sequential(nn.Linear(3, 2), nn.Tanh()).double()
    given: dict[str, Any] = {"time": TIME, "event": EVENT}
    if rows == "intervals":
        given = {"lower": 0.5 * TIME, "upper": torch.where(EVENT > 0, TIME, math.inf)}
    elif rows == "entry":
        given["entry"] = 0.2 * TIME

    def loss() -> Tensor:
        return last(net(X)).nll(**given)  # type: ignore[no-any-return]

    weight = net[0].weight
    (gradient,) = torch.autograd.grad(loss(), weight)
    assert gradient.abs().max() > 1e-4
    with torch.no_grad():
        expected = differences(loss, weight)
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-7)
    # In single precision the same to its digits.
    double = loss()
    last, net = last.float(), net.float()
    single = last(net(X.float())).nll(**{name: part.float() for name, part in given.items()})
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), double, rtol=2e-4, atol=2e-4)


@pytest.mark.filterwarnings("ignore")  # those of torch itself
@pytest.mark.parametrize("leaf", ["exponential", "logistic_hazard", "spline_po", "log_normal"])
def test_second_derivatives_are_those_of_plain_operations(leaf: str) -> None:
    head = HazardHead(3, leaf, 2, dtype=torch.float64).initialize(TIME, EVENT)
    x = X.clone().requires_grad_()
    loss = head(x).nll(TIME, EVENT)
    (first,) = torch.autograd.grad(loss, x, create_graph=True)
    parts = [x, head.leaf.slope, head.leaf.shape]  # of which the exponential has no shape
    second = torch.autograd.grad(first.square().sum(), parts, allow_unused=True, materialize_grads=True)

    def total() -> Tensor:
        at = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(head(at).nll(TIME, EVENT), at)
        return slope.square().sum()

    for found, parameter in zip(second[1:], (head.leaf.slope, head.leaf.shape), strict=True):
        torch.testing.assert_close(found, differences(total, parameter), rtol=1e-5, atol=1e-8)
    by_torch = torch.func.hessian(lambda at: head(at).nll(TIME, EVENT))(X)
    by_autograd = torch.autograd.functional.hessian(lambda at: head(at).nll(TIME, EVENT), X)
    torch.testing.assert_close(by_torch, by_autograd, rtol=1e-9, atol=1e-12)
    assert by_autograd.abs().max() > 1e-4


def test_batch_of_trees_equals_loop() -> None:
    batch = random_tree(100, 1, "weibull")
    batch.log_time_scale.copy_(torch.linspace(1.0, 9.0, 100).double().log())
    found = batch(X).nll(TIME, EVENT, weight=WEIGHT)
    assert found.shape == (100,)
    gradients = torch.autograd.grad(found.sum(), batch.leaf(2).slope)[0]
    for k in (0, 57, 99):
        alone = batch.select(k)
        loss = alone(X).nll(TIME, EVENT, weight=WEIGHT)
        torch.testing.assert_close(found[k], loss, rtol=1e-13, atol=1e-14)
        (slope,) = torch.autograd.grad(loss, alone.leaf(2).slope)
        torch.testing.assert_close(gradients[k], slope, rtol=1e-11, atol=1e-14)
    deep = SoftTree(3, 1, "weibull", batch_shape=(2, 3), dtype=torch.float64)
    own_times = TIME.expand(2, 3, 9)
    assert deep(X).nll(own_times, EVENT).shape == (2, 3)


# ------------------------------------------------------------------ times, samples, components


def test_own_times_and_grids_are_told_apart() -> None:
    rows = tree_of("weibull")(X)
    grid = torch.linspace(1.0, 9.0, 9).double()
    whole = rows.survival(grid)
    assert whole.shape == (9, 9)
    assert torch.equal(rows.survival(grid[None]), whole)
    assert torch.equal(rows.survival(grid[:, None])[:, 0], whole.diagonal())
    assert torch.equal(rows.survival(grid.flip(0)[None]), whole.flip(1))
    assert rows.survival(grid[:4].flip(0)).shape == (9, 4)
    assert rows.survival(grid.expand(9, 9).clone()).shape == (9, 9)
    with pytest.raises(ConfigError, match=r"`t` of shape \(9,\) must increase.*use t\[:, None\]"):
        rows.survival(TIME)
    for t in (torch.tensor(1.0), grid[:4, None], grid.expand(2, 9, 9)):
        with pytest.raises(ConfigError, match="`t` must be a grid of shape"):
            rows.log_hazard(t)
    with pytest.raises(DataError, match="`t` must be at least 0, got nan at position 1"):
        rows.survival(torch.tensor([1.0, math.nan]))
    with pytest.raises(ConfigError, match="`t` must be a tensor of times, got float"):
        rows.survival(3.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"time": TIME}, ConfigError, "needs time and event.*got time"),
        ({"lower": TIME}, ConfigError, "got lower"),
        ({"time": TIME, "event": EVENT, "lower": TIME, "upper": TIME}, ConfigError, "got time, event, lower"),
        ({"time": TIME[:, None], "event": EVENT}, ConfigError, "`time` must have one value"),
        ({"time": TIME, "event": EVENT[:3]}, ConfigError, "`event` must have one value"),
        ({"time": TIME, "event": EVENT, "reduction": "max"}, ConfigError, "reduction must be one of mean"),
        ({"time": -TIME, "event": EVENT}, DataError, "`time` must be finite, at least 0 .* at position 0"),
        ({"time": TIME * math.nan, "event": EVENT}, DataError, "`time` must be finite"),
        ({"time": TIME, "event": 2 * EVENT}, DataError, "`event` must be 0 or 1, got 2 at position"),
        ({"time": 0 * TIME, "event": EVENT}, DataError, "above 0 at an event, got 0"),
        ({"time": TIME, "event": EVENT, "entry": TIME}, DataError, "`entry` must be at least 0 and before"),
        ({"time": TIME, "event": EVENT, "weight": -WEIGHT}, DataError, "`weight` must be finite"),
        ({"time": TIME, "event": EVENT, "weight": 0 * WEIGHT}, DataError, "`weight` must be above 0"),
        ({"lower": -TIME, "upper": TIME}, DataError, "`lower` must be finite and at least 0"),
        ({"lower": TIME, "upper": TIME / 2}, DataError, "`upper` must be above 0 and at least lower"),
        ({"lower": TIME, "upper": 2 * TIME, "entry": 1.5 * TIME}, DataError, "before the end of the row"),
    ],
)
def test_outcomes_out_of_range_raise(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tree_of("weibull")(X).nll(**given)


def test_unknown_causes_raise() -> None:
    rows = tree_of("weibull")(X)
    with pytest.raises(DataError, match="`cause` must be 0 or one of 1, 2, got 3 at position 8"):
        competing_nll({1: rows, 2: rows}, TIME, torch.tensor([0, 1, 2] * 2 + [1, 2, 3]))
    for causes in ({}, {0: rows, 1: rows}):
        with pytest.raises(ConfigError, match="`distributions` must have causes other than 0"):
            competing_nll(causes, TIME, torch.zeros(9))


@pytest.mark.parametrize("leaf", ["weibull", "spline_po", "piecewise_exponential"])
def test_samples_have_the_distribution(leaf: str) -> None:
    rows = tree_of(leaf)(X[:1].expand(4000, -1))
    draws = rows.sample(generator=torch.Generator().manual_seed(0))
    again = rows.sample(generator=torch.Generator().manual_seed(0))
    assert torch.equal(draws, again)
    assert not draws.requires_grad
    uniform = rows.survival(draws[:, None].clamp(max=1e300))[:, 0].detach()
    assert scipy.stats.kstest(uniform, "uniform").pvalue > 0.01


def test_samples_of_the_cured_are_infinite() -> None:
    head = HazardHead(1, "gompertz", dtype=torch.float64)
    with torch.no_grad():
        head.leaf.shape.fill_(-1.0)  # S falls to exp(-1)
    draws = head(torch.zeros(4000, 1).double()).sample(generator=torch.Generator().manual_seed(0))
    assert float(draws.isinf().double().mean()) == pytest.approx(math.exp(-1), abs=0.03)


def test_most_probable_is_the_path_of_a_tree_and_the_largest_weight_of_others() -> None:
    tree = blank_tree(1, 2, "exponential")
    with torch.no_grad():
        for node, logit in ((1, 0.4), (2, 0.0), (3, -9.0)):  # leaves have .3, .3, 0 and .4
            tree.gate(node).bias.fill_(logit)
        for node in tree.topology.leaves:
            tree.leaf(node).intercept.fill_(float(node))
    x = torch.zeros(2, 1).double()
    assert tree(x).most_probable().linear.tolist() == [[4.0, 4.0]]
    mixture = tree(x)
    alone = SurvivalDistribution(mixture.family, mixture.log_weight, mixture.linear, mixture.shape)
    assert alone.most_probable().linear.tolist() == [[7.0, 7.0]]
    assert alone.most_probable().most_probable().n_components == 1


def test_parameters_of_other_shapes_raise() -> None:
    linear = torch.zeros(2, 5)
    for log_weight, shape in (
        (torch.zeros(2, 4), torch.zeros(2, 1, 1)),
        (linear, torch.zeros(2, 4, 1)),
        (linear, torch.zeros(2, 1, 2)),
    ):
        with pytest.raises(ConfigError, match="`log_weight`, `linear` and `shape` must have the shapes"):
            SurvivalDistribution(LogLogistic(), log_weight, linear, shape)
    text = "SurvivalDistribution(log_logistic, n_components=2, n_rows=5, batch_shape=())"
    assert repr(SurvivalDistribution(LogLogistic(), linear, linear, torch.zeros(2, 1, 1))) == text


# ------------------------------------------------------------------ families with modules


class Tilted(HazardFamily):
    """A hazard bent by a network of log time, which all components share."""

    name, shape_names = "tilted", ()

    def __init__(self) -> None:
        super().__init__()
        self.bend = nn.Sequential(nn.Linear(1, 4), nn.Softplus(), nn.Linear(4, 1))
        self.power = nn.Parameter(torch.zeros(()))

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        bent = 0.1 * self.bend(log_time[..., None].clamp(-5, 5))[..., 0].tanh()
        return torch.exp(linear + log_time + bent) * self.power.exp()


def test_a_family_may_hold_modules() -> None:
    torch.manual_seed(0)
    family = Tilted()
    tree = SoftTree(3, 1, family, dtype=torch.float64).initialize(TIME, EVENT)
    assert dict(tree.named_parameters())["family.power"] is family.power
    tree(X).nll(TIME, EVENT).backward()
    assert family.bend[0].weight.grad.abs().max() > 1e-6
    assert family.power.grad.abs() > 1e-3

    def loss() -> Tensor:
        return tree(X).nll(TIME, EVENT)  # type: ignore[no-any-return]

    with torch.no_grad():
        expected = differences(loss, family.bend[2].weight)
    torch.testing.assert_close(family.bend[2].weight.grad, expected, rtol=1e-5, atol=1e-8)
    # Parameters that are passed to the module are those of its result, also after the call.
    parameters = {name: part.detach().clone().requires_grad_() for name, part in tree.named_parameters()}
    found = torch.func.functional_call(tree, parameters, X).nll(TIME, EVENT)
    (slope,) = torch.autograd.grad(found, parameters["family.power"])
    torch.testing.assert_close(slope, family.power.grad)
