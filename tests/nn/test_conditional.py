"""Prediction evaluates the nodes on each row's path and no others."""

from typing import Any

import pytest
import torch
from torch import Tensor

from sstorch.nn import LogLogistic, SoftTree, leaves, routing, soft_tree
from tests.batches import blank_tree


def _tree(depth: int, leaf: Any = "weibull", n_features: int = 4, seed: int = 0) -> SoftTree:
    rng = torch.Generator().manual_seed(seed)
    tree = blank_tree(n_features, depth, leaf)
    with torch.no_grad():
        for parameter in tree.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=rng, dtype=torch.float64))
        for node in tree.topology.branches:  # rows on both sides of most gates
            gate = tree.gate(node)
            gate.bias.copy_(-0.5 * gate.weight.sum())
    return tree


def _rows(n: int, n_features: int = 4) -> Tensor:
    return torch.rand(n, n_features, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


TIMES = torch.tensor([0.0, 0.3, 1.0, 7.0], dtype=torch.float64)


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, Tensor]]:
    """Biases of the nodes that rows can meet, and the node that each row meets, at every step."""
    found: list[tuple[Tensor, Tensor]] = []
    score_at = routing.score_at

    def counted(x: Tensor, weight: Tensor, bias: Tensor, node: Tensor) -> Tensor:
        found.append((bias, node))
        return score_at(x, weight, bias, node)

    for module in (routing, leaves):
        monkeypatch.setattr(module, "score_at", counted)
    return found


@pytest.mark.parametrize("depth", [5, 6])
def test_every_row_meets_depth_gates_and_one_leaf(
    depth: int, met: list[tuple[Tensor, Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, x = _tree(depth), _rows(500)
    monkeypatch.setattr(SoftTree, "gate_logits", None)  # of all gates
    monkeypatch.setattr(SoftTree, "linear_predictor", None)  # of all leaves
    tree.most_probable(x).survival(TIMES)
    pairs = [(len(bias), row) for bias, node in met for row in range(len(node))]
    n_leaves = 2**depth
    assert sum(size == n_leaves - 1 for size, _ in pairs) == 500 * depth
    assert sum(size == n_leaves for size, _ in pairs) == 500
    # The gates that a row meets are the ancestors of its leaf.
    path = torch.stack([node + 1 for _, node in met[:depth]], 1)
    leaf = met[depth][1]
    for row in range(500):
        assert path[row].tolist() == [n for n, _ in tree.topology.ancestors(int(leaf[row]) + n_leaves)]
    assert len(leaf.unique()) > 10


@pytest.mark.parametrize(
    ("depth", "n_features", "expected"),
    [(4, 2, False), (5, 16, True), (5, 17, False), (6, 32, True), (6, 33, False)],
)
def test_wide_rows_and_shallow_trees_meet_all_nodes(
    depth: int,
    n_features: int,
    expected: bool,
    met: list[tuple[Tensor, Tensor]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree, x = _tree(depth, n_features=n_features), _rows(50, n_features)
    one_way = tree.most_probable(x).survival(TIMES).detach()
    assert bool(met) == routing.path_is_faster(tree.topology, n_features) == expected
    monkeypatch.setattr(soft_tree, "path_is_faster", lambda topology, n_features: not expected)
    torch.testing.assert_close(
        tree.most_probable(x).survival(TIMES).detach(), one_way, rtol=1e-10, atol=1e-14
    )


@pytest.mark.parametrize("leaf", ["weibull", "spline_po"])
@pytest.mark.parametrize("depth", [3, 6])
def test_nodes_off_the_path_do_not_matter_to_the_last_bit(depth: int, leaf: str) -> None:
    tree, x = _tree(depth, leaf), _rows(300)
    first_leaf = 2**depth
    before = tree.most_probable(x).survival(TIMES).detach()
    for node in (1, 2, 5, first_leaf + 2, first_leaf + 5):
        other = _tree(depth, leaf)
        module: Any = other.gate(node) if node < first_leaf else other.leaf(node)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.fill_(torch.nan)
        after = other.most_probable(x).survival(TIMES).detach()
        passes = tree.visits(x, node)
        assert torch.equal(after[~passes], before[~passes])
        if node >= first_leaf:
            assert after[passes][:, 1:].isnan().all()


@pytest.mark.parametrize("ancillary", ["constant", "linear"])
def test_the_same_as_evaluating_all_nodes(ancillary: Any) -> None:
    tree, x = _tree(5, LogLogistic(ancillary=ancillary)), _rows(400).requires_grad_()
    by_path = tree.most_probable(x).survival(TIMES)
    gradient = torch.autograd.grad(by_path.sum(), [x, tree.leaf(40).slope])
    batched = blank_tree(4, 5, LogLogistic(ancillary=ancillary), batch_shape=(1,))
    batched.load_state_dict({name: value[None] for name, value in tree.state_dict().items()})
    everywhere = batched.most_probable(x).survival(TIMES)[0]
    torch.testing.assert_close(by_path, everywhere, rtol=1e-12, atol=1e-15)
    expected = torch.autograd.grad(everywhere.sum(), [x, batched.leaf(40).slope])
    torch.testing.assert_close(gradient[0], expected[0], rtol=1e-9, atol=1e-13)
    torch.testing.assert_close(gradient[1], expected[1][0], rtol=1e-9, atol=1e-13)
    assert torch.equal(tree.apply_leaf(x), batched.apply_leaf(x)[0])


def test_a_row_is_predicted_alike_in_any_company() -> None:
    tree, x = _tree(6), _rows(97)
    whole = tree.most_probable(x).survival(TIMES).detach()
    assert torch.equal(tree.most_probable(x[40:41]).survival(TIMES).detach(), whole[40:41])
    assert tree.most_probable(x[:0]).survival(TIMES).shape == (0, 4)
