import numpy as np
import pytest
import torch

from sstorch.exceptions import ConfigError
from sstorch.nn import Topology
from sstorch.nn.routing import log_path_probability, most_probable_leaf
from tests.batches import random_tree


@pytest.mark.parametrize("depth", range(7))
def test_counts_and_paths(depth: int) -> None:
    tree = Topology(depth)
    assert len(tree.branches) == 2**depth - 1
    assert len(tree.leaves) == 2**depth
    for leaf in tree.leaves:
        path = tree.ancestors(leaf)
        assert len(path) == depth == tree.level(leaf)
        node = 1
        for gate, left in path:
            assert gate == node
            node = 2 * node + (0 if left else 1)
        assert node == leaf


def test_subtrees() -> None:
    tree = Topology(3)
    assert tree.branches_under(2) == [2, 4, 5]
    assert tree.leaves_under(2) == [8, 9, 10, 11]
    assert tree.leaves_under(3) == [12, 13, 14, 15]
    assert tree.branches_under(9) == []
    assert tree.leaves_under(9) == [9]
    assert Topology(0).leaves_under(1) == [1]


@pytest.mark.parametrize("depth", [-1, 7, 2.0, True, "2"])
def test_depth_out_of_range_raises(depth: object) -> None:
    with pytest.raises(ConfigError, match="integer from 0 to 6"):
        Topology(depth)  # type: ignore[arg-type]


@pytest.mark.parametrize("bound", [1.0, 30.0, 1e3])
def test_probabilities_sum_to_one_at_depth_6(bound: float) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = bound * (2 * torch.rand(2, 63, 400, generator=generator, dtype=torch.float64) - 1)
    log_p = log_path_probability(Topology(6), logits)
    assert torch.isfinite(log_p).all()
    assert (log_p.exp().sum(-2) - 1).abs().max() < 1e-12


def test_against_products_of_probabilities() -> None:
    tree, x = random_tree(2, 3), torch.rand(11, 3, dtype=torch.float64)
    p_left = torch.sigmoid(tree.gate_logits(x))
    expected = torch.ones(2, 8, 11, dtype=torch.float64)
    for k, leaf in enumerate(tree.topology.leaves):
        for gate, left in tree.topology.ancestors(leaf):
            p = p_left[:, gate - 1]
            expected[:, k] *= p if left else 1 - p
    torch.testing.assert_close(tree.log_leaf_probability(x).exp(), expected, rtol=1e-12, atol=0)
    # Under a node the probabilities are conditional on being there.
    under = tree.log_leaf_probability(x, 3).exp()
    torch.testing.assert_close(under, expected[:, 4:] / expected[:, 4:].sum(1, keepdim=True))


def test_most_probable_leaf_follows_the_gates_and_ties_go_left() -> None:
    logits = torch.tensor([[0.0], [-1.0], [5.0]], dtype=torch.float64)
    assert most_probable_leaf(Topology(2), logits).tolist() == [1]
    tree, x = random_tree(3, 4), torch.rand(25, 3, dtype=torch.float64)
    z = tree.gate_logits(x).detach().numpy()
    expected = np.empty((3, 25), dtype=int)
    for r in range(3):
        for i in range(25):
            node = 1
            for _ in range(4):
                node = 2 * node + (0 if z[r, node - 1, i] >= 0 else 1)
            expected[r, i] = node - 16
    np.testing.assert_array_equal(tree.apply_leaf(x).numpy(), expected)
    for node in (1, 3, 6, 13, 20):
        passes = [[node in _path(leaf + 16) for leaf in row] for row in expected]
        np.testing.assert_array_equal(tree.visits(x, node).numpy(), passes)


def _path(node: int) -> set[int]:
    path = set()
    while node:
        path.add(node)
        node //= 2
    return path
