"""Node numbers, and probabilities of paths against products node by node."""

import pytest
import torch

from sstorch.exceptions import ConfigError
from sstorch.nn import Topology
from sstorch.nn.routing import log_path_probability
from tests.batches import random_tree


@pytest.mark.parametrize("depth", range(7))
def test_counts_and_paths(depth: int) -> None:
    tree = Topology(depth)
    assert (len(tree.branches), len(tree.leaves)) == (2**depth - 1, 2**depth)
    for leaf in tree.leaves:
        node = 1
        path = tree.ancestors(leaf)
        assert len(path) == depth == tree.level(leaf)
        for gate, left in path:
            assert gate == node
            node = 2 * node + (not left)
        assert node == leaf
    for node in (*tree.branches, *tree.leaves):
        leaves, gates = (
            [n for n in of if f"{n:b}".startswith(f"{node:b}")] for of in (tree.leaves, tree.branches)
        )
        assert (tree.leaves_under(node), tree.branches_under(node)) == (leaves, gates)


@pytest.mark.parametrize("depth", [-1, 7, 2.0, True, "2"])
def test_depth_out_of_range_raises(depth: object) -> None:
    with pytest.raises(ConfigError, match="integer from 0 to 6"):
        Topology(depth)  # type: ignore[arg-type]


@pytest.mark.parametrize("bound", [1.0, 1e3])
def test_probabilities_sum_to_one_at_depth_6(bound: float) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = bound * (2 * torch.rand(2, 63, 400, generator=generator, dtype=torch.float64) - 1)
    log_p = log_path_probability(Topology(6), logits)
    assert torch.isfinite(log_p).all()
    assert (log_p.exp().sum(-2) - 1).abs().max() < 1e-12


def test_probabilities_and_leaves_are_those_of_the_gates_one_by_one() -> None:
    tree, x = random_tree(2, 3), torch.rand(11, 3, dtype=torch.float64)
    x[0] = 0.0
    with torch.no_grad():
        tree.gate(1).bias.zero_()  # a row at the boundary goes left
    logits = tree.gate_logits(x)
    expected = torch.ones(2, 8, 11, dtype=torch.float64)
    follows = torch.ones(2, 8, 11, dtype=torch.bool)
    for k, leaf in enumerate(tree.topology.leaves):
        for gate, left in tree.topology.ancestors(leaf):
            score = logits[:, gate - 1] if left else -logits[:, gate - 1]
            expected[:, k] *= torch.sigmoid(score)
            follows[:, k] &= (score >= 0) if left else (score > 0)
    torch.testing.assert_close(tree.log_leaf_probability(x).exp(), expected, rtol=1e-12, atol=0)
    # Under a node the probabilities are conditional on being there.
    under = tree.log_leaf_probability(x, 3).exp()
    torch.testing.assert_close(under, expected[:, 4:] / expected[:, 4:].sum(1, keepdim=True))
    assert torch.equal(tree.apply_leaf(x), follows.double().argmax(1))
    assert (tree.apply_leaf(x)[:, 0] < 4).all()
    for node in (1, 3, 6, 13):
        passes = follows[:, [leaf - 8 for leaf in tree.topology.leaves_under(node)]].any(1)
        assert torch.equal(tree.visits(x, node), passes)
