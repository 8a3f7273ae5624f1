"""Soft trees: curves, batches, devices, refusals."""

import pytest
import torch

from sstorch.exceptions import ConfigError
from sstorch.fitted.tree import PREDICTIONS, Prediction
from sstorch.nn import FAMILIES, DesignMatrix, HazardFamily, Spline
from tests.batches import blank_tree, distribution, random_tree
from tests.conftest import covering, devices

X = torch.rand(17, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
TIMES = torch.tensor([0.0, 1e-9, 0.2, 1.0, 4.0, 50.0, 1e9], dtype=torch.float64)
predictions = pytest.mark.parametrize("prediction", PREDICTIONS)


@predictions
@pytest.mark.parametrize("leaf", sorted(FAMILIES))
@pytest.mark.parametrize("depth", [0, 2])
def test_curves(depth: int, leaf: str, prediction: Prediction) -> None:
    tree = random_tree(2, depth, leaf)
    tree.log_time_scale.copy_(torch.tensor([2.0, 0.5]).double().log())
    survival = distribution(tree, X, prediction).survival(TIMES).detach()
    assert survival.shape == (2, 17, 7)
    # The average of leaves falls up to rounding, a leaf's own curve without exception.
    rounding = 0.0 if prediction == "hbp" else 1e-14
    assert (survival[..., 0] == 1).all()
    assert ((survival >= 0) & (survival <= 1)).all()
    assert (survival.diff(dim=-1) <= rounding).all()
    hazard = distribution(tree, X, prediction).cumulative_hazard(TIMES).detach()
    kept = survival > 1e-300
    torch.testing.assert_close(hazard[kept], -survival[kept].log(), rtol=1e-10, atol=1e-15)


@predictions
def test_hazard_is_the_derivative_in_original_time(prediction: Prediction) -> None:
    tree = random_tree(2, 2)
    tree.log_time_scale.copy_(torch.tensor([30.0, 4.0]).double().log())
    times = torch.tensor([0.7, 3.0, 20.0], dtype=torch.float64).expand(17, 3).clone().requires_grad_()
    rows = distribution(tree, X, prediction)
    for cumulative, hazard in zip(rows.cumulative_hazard(times), rows.hazard(times), strict=True):
        (slope,) = torch.autograd.grad(cumulative.sum(), times, retain_graph=True)
        torch.testing.assert_close(hazard, slope, rtol=1e-10, atol=0)


def test_mixture_is_the_average_of_the_leaves() -> None:
    tree = random_tree(1, 2).select(0)
    expected = torch.zeros(17, 7, dtype=torch.float64)
    for node, log_weight in zip(tree.topology.leaves, tree.log_leaf_probability(X), strict=True):
        alone = blank_tree(3, 0)
        alone.leaf(1).load_state_dict(tree.leaf(node).state_dict())
        expected += log_weight.exp()[:, None] * alone(X).survival(TIMES)
    torch.testing.assert_close(tree(X).survival(TIMES), expected, rtol=1e-12, atol=1e-300)


def test_batch_equals_loop_and_design_matrix_equals_tensors() -> None:
    tree = random_tree(4, 2)
    matrices = torch.rand(2, 9, 3, dtype=torch.float64)
    design, per_problem = DesignMatrix(matrices, (1, 3)), matrices[torch.tensor([0, 1, 1, 1])]
    full = tree.gate_logits(design)
    torch.testing.assert_close(full, tree.gate_logits(per_problem), rtol=1e-13, atol=1e-14)
    for r in range(4):
        alone = tree.select(r)
        torch.testing.assert_close(alone.gate_logits(per_problem[r]), full[r])
        torch.testing.assert_close(alone(X).survival(TIMES), tree(X).survival(TIMES)[r])
    some = torch.tensor([1, 3])
    found = tree.leaf_parameters().select(some).linear_predictor(design.select(some))
    torch.testing.assert_close(found, tree.leaf_parameters().linear_predictor(design)[some])
    rows = design.restrict(torch.tensor([[0, 2], [1, 1], [8, 3], [4, 5]]))
    again = rows.restrict(torch.tensor([[1], [0], [1], [0]]))
    torch.testing.assert_close(tree.gate_logits(rows)[2], full[2][:, [8, 3]])
    torch.testing.assert_close(tree.gate_logits(again)[0], full[0][:, [2]])
    deep = blank_tree(3, 2, batch_shape=(2, 2))
    deep.load_state_dict({name: v.reshape(2, 2, *v.shape[1:]) for name, v in tree.state_dict().items()})
    torch.testing.assert_close(deep(X).survival(TIMES).reshape(4, 17, 7), tree(X).survival(TIMES))


@pytest.mark.parametrize(
    ("leaf", "prediction"),
    covering(["weibull", "spline_po", "gompertz", Spline("hazard", ancillary="linear")], ["hbp", "mixture"]),
)
def test_quantiles_and_restricted_means_of_a_batch(leaf: str | HazardFamily, prediction: Prediction) -> None:
    tree = random_tree(3, 2, leaf)
    tree.log_time_scale.copy_(torch.tensor([1.0, 3.0, 20.0]).double().log())
    rows = distribution(tree, X, prediction)
    median, mean = rows.quantile(0.5), rows.restricted_mean(7.0)
    assert median.shape == mean.shape == (3, len(X))
    grid = torch.linspace(0, 7, 20001, dtype=torch.float64)
    for r in range(3):
        alone = distribution(tree.select(r), X, prediction)
        torch.testing.assert_close(alone.quantile(0.5), median[r], rtol=1e-9, atol=0)
        torch.testing.assert_close(alone.restricted_mean(7.0), mean[r], rtol=1e-9, atol=0)
        own = alone.survival(median[r][:, None].clamp(max=1e300))[:, 0][torch.isfinite(median[r])]
        torch.testing.assert_close(own, torch.full_like(own, 0.5), rtol=1e-8, atol=0)
        rough = torch.trapezoid(alone.survival(grid), grid)
        torch.testing.assert_close(mean[r], rough, rtol=1e-4, atol=0)


@devices
@pytest.mark.parametrize("leaf", sorted(FAMILIES))
def test_every_family_on_every_device(leaf: str, device: str) -> None:
    here = random_tree(2, 1, leaf)
    there = blank_tree(3, 1, leaf, (2,), device=device)
    there.load_state_dict(here.state_dict())
    x, times = X.to(device), TIMES.to(device)
    for mine, expected in (
        (there(x).survival(times), here(X).survival(TIMES)),
        (there(x).hazard(times), here(X).hazard(TIMES)),
        (there(x).quantile(0.5), here(X).quantile(0.5)),
    ):
        assert mine.device.type == device
        torch.testing.assert_close(mine.cpu(), expected, rtol=1e-9, atol=1e-12)


def test_assign_writes_some_problems() -> None:
    tree, other = random_tree(5, 1), random_tree(2, 1, seed=9)
    before = {name: value.clone() for name, value in tree.state_dict().items()}
    tree.assign(torch.tensor([0, 3]), other)
    for name, value in tree.state_dict().items():
        if name != "log_time_scale":
            assert torch.equal(value[[0, 3]], other.state_dict()[name])
        assert torch.equal(value[[1, 2, 4]], before[name][[1, 2, 4]])


@predictions
def test_nothing_lands_on_a_default_device(prediction: Prediction) -> None:
    tree = blank_tree(3, 3, "weibull", (4,), device="meta")
    x, times = torch.empty(6, 3, device="meta", dtype=torch.float64), torch.empty(5, device="meta").double()
    curves = distribution(tree, x, prediction).hazard(times)
    assert curves.device.type == tree.apply_leaf(x).device.type == "meta"
    assert curves.shape == (4, 6, 5)


def test_parameters_are_those_of_gates_and_leaves() -> None:
    assert sum(p.numel() for p in blank_tree(7, 3).parameters()) == 7 * 8 + 8 * (8 + 1)
    for x in (torch.zeros(5, 4).double(), X.numpy(), X.float()):
        with pytest.raises(ConfigError, match="`x` must be"):
            blank_tree(3, 1)(x)
