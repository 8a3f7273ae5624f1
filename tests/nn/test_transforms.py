"""`torch.compile` of a tree, and `torch.func` over the parameters of several: values and gradients."""

import shutil
from itertools import product
from pathlib import Path

import pytest
import torch
from torch.func import functional_call, grad, hessian, jacfwd, stack_module_state, vmap

from sstorch.fitted.tree import PREDICTIONS, Prediction
from sstorch.nn import FAMILIES, LogisticHazard, SoftTree
from tests.batches import distribution, random_tree
from tests.conftest import covering, nightly, nightly_but
from tests.nn.test_hazards import CASES

X = torch.rand(17, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
TIMES = torch.tensor([0.2, 1.0, 4.0, 50.0], dtype=torch.float64)


@pytest.mark.filterwarnings("ignore")  # those of torch itself
@pytest.mark.parametrize("leaf", nightly_but({"generalized_gamma", "spline_po"}, FAMILIES))
def test_vmap_over_parameters_gives_each_tree(leaf: str) -> None:
    batch = random_tree(3, 2, leaf)
    trees = [batch.select(k) for k in range(3)]
    parameters, buffers = stack_module_state(trees)  # type: ignore[arg-type]

    def total(own: dict[str, torch.Tensor], fixed: dict[str, torch.Tensor]) -> torch.Tensor:
        return curves_of(own, fixed).sum()

    def curves_of(own: dict[str, torch.Tensor], fixed: dict[str, torch.Tensor]) -> torch.Tensor:
        return functional_call(trees[0], (own, fixed), X).survival(TIMES)  # type: ignore[no-any-return]

    curves = vmap(curves_of)(parameters, buffers)
    torch.testing.assert_close(curves, batch(X).survival(TIMES), rtol=1e-12, atol=1e-14)
    slopes = vmap(grad(total))(parameters, buffers)
    for k, tree in enumerate(trees):
        (expected,) = torch.autograd.grad(tree(X).survival(TIMES).sum(), tree.leaf(4).slope)
        torch.testing.assert_close(slopes["leaves.4.slope"][k], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore")  # those of torch itself
@pytest.mark.parametrize(
    ("leaf", "prediction"),
    [
        *covering(["derived", "log_normal"], PREDICTIONS),
        *(nightly(*case) for case in product(["spline_po", "generalized_gamma"], PREDICTIONS)),
    ],
)
@pytest.mark.parametrize("of", ["log_survival", "log_hazard", "quantile", "restricted_mean"])
def test_derivatives_in_features_by_both_modes(leaf: str, prediction: Prediction, of: str) -> None:
    tree: SoftTree = random_tree(1, 1, CASES[leaf]()).select(0)
    after = torch.tensor([0.3], dtype=torch.float64)

    def total(row: torch.Tensor) -> torch.Tensor:
        function = getattr(distribution(tree, row[None], prediction), of)
        if of in ("quantile", "restricted_mean"):
            return function(0.4, after=after).sum()  # type: ignore[no-any-return]
        return function(TIMES).sum()  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(total, X[0].clone().requires_grad_(), rtol=1e-5)
    torch.testing.assert_close(jacfwd(total)(X[0]), grad(total)(X[0]))
    assert torch.autograd.gradcheck(grad(total), X[0].clone().requires_grad_(), rtol=1e-4, atol=1e-7)
    by_autograd = torch.autograd.functional.hessian(total, X[0])
    torch.testing.assert_close(vmap(hessian(total))(X[:2])[0], by_autograd, rtol=1e-7, atol=1e-9)


def test_derived_hazard_in_inference_mode() -> None:
    tree: SoftTree = random_tree(1, 1, CASES["derived"]()).select(0)
    with torch.inference_mode():
        found = tree(X).log_hazard(TIMES)
    assert torch.equal(found, tree(X).log_hazard(TIMES))


@pytest.mark.parametrize("prediction", PREDICTIONS)
@pytest.mark.parametrize("leaf", sorted(FAMILIES))
def test_survival_far_out_has_two_finite_derivatives(leaf: str, prediction: Prediction) -> None:
    tree: SoftTree = random_tree(1, 1, leaf).select(0)
    times = torch.tensor([0.0, 1e-12, 1.0, 1e12], dtype=torch.float64)
    for linear in (-800.0, 800.0):
        with torch.no_grad():
            for node in tree.topology.leaves:
                tree.leaf(node).intercept.fill_(linear)
        row = X[:1].clone().requires_grad_()
        for of in ("survival", "log_survival"):
            curves = getattr(distribution(tree, row, prediction), of)(times)
            (first,) = torch.autograd.grad(curves.sum(), row, create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), row, allow_unused=True, materialize_grads=True)
            assert first.isfinite().all()
            assert second.isfinite().all()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.parametrize(
    ("leaf", "backend"),
    [("weibull", "aot_eager"), *(nightly(leaf, "inductor") for leaf in sorted(FAMILIES))],
)
def test_compiled_losses_curves_and_gradients(
    leaf: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch._dynamo.reset()
    # A run that was killed leaves half a file in the usual folder.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    # A kernel of thirty intervals takes the C++ compiler minutes.
    family = LogisticHazard(times=4) if leaf == "logistic_hazard" else leaf
    tree: SoftTree = random_tree(1, 1, family).select(0)
    time, event = torch.linspace(0.1, 3.0, 17, dtype=torch.float64), torch.ones(17)

    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return tree(x).nll(time, event), tree(x).log_survival(TIMES)

    found, expected = torch.compile(both, fullgraph=True, backend=backend)(X), both(X)
    for own, plain in zip(found, expected, strict=True):
        torch.testing.assert_close(own, plain, rtol=1e-10, atol=1e-12)
    parameters = [each for each in tree.parameters() if each.numel()]
    slopes = (torch.autograd.grad(loss + curve.sum(), parameters) for loss, curve in (found, expected))
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)
