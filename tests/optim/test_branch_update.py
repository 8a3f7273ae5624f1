import numpy as np
import torch

from sstorch.nn import SoftTree
from sstorch.objective import Sample
from sstorch.objective.training import leaf_losses
from sstorch.optim.nodec import BranchUpdate, Thresholds, balancing_weights, classify, reassign
from tests.batches import blank_tree, random_sample, random_tree

PAPER, ORDERED = Thresholds(0.1, 0.3, 0.4), Thresholds(0.1, 0.03, 0.4)


def _at_shares(shares: list[float], n_rows: int = 200) -> tuple[SoftTree, Sample]:
    """Depth 1 trees whose gate sends the given share of the rows left."""
    tree, sample = random_tree(len(shares), 1), random_sample(len(shares), n_rows=n_rows)
    x = sample.x.to_dense()[0, :, 0]
    with torch.no_grad():
        tree.gate(1).weight.copy_(torch.tensor([[4.0, 0.0, 0.0]] * len(shares)))
        for r, share in enumerate(shares):
            level = torch.sort(x, descending=True).values
            k = round(share * n_rows)
            cut = 2.0 if k == 0 else (-1.0 if k == n_rows else float(level[k - 1 : k + 1].mean()))
            tree.gate(1).bias[r] = -4 * cut
    return tree, sample


def _classes(update: BranchUpdate) -> list[str]:
    return [
        "balanced" if b else ("high" if h else "moderate")
        for b, h in zip(update.balanced.tolist(), update.high.tolist(), strict=True)
    ]


def test_three_branches() -> None:
    shares = [0.0, 0.02, 0.06, 0.1, 0.3, 0.9, 0.95, 0.98, 1.0]
    tree, sample = _at_shares(shares)
    ordered = classify(tree, sample, 1, ORDERED, sample.n_rows)
    np.testing.assert_allclose(ordered.left_share, shares)
    assert _classes(ordered) == [
        "high", "high", "moderate", "moderate", "balanced", "moderate", "moderate", "high", "high"
    ]  # fmt: skip
    # With the paper's values e2 > e1, so that every imbalance is a high one.
    paper = classify(tree, sample, 1, PAPER, sample.n_rows)
    assert _classes(paper) == ["high"] * 4 + ["balanced"] + ["high"] * 4
    # e1 N < 1: too few rows for the notion of balance.
    few = classify(tree, sample, 1, PAPER, torch.full((9,), 9))
    assert _classes(few) == ["balanced"] * 9
    assert _classes(classify(tree, sample, 1, PAPER, torch.full((9,), 10))) == _classes(paper)


def test_reassignment_moves_the_worst_rows_of_the_crowded_side() -> None:
    tree, sample = _at_shares([0.05, 1.0, 0.97, 0.06])
    update = classify(tree, sample, 1, ORDERED, sample.n_rows)
    assert _classes(update) == ["moderate", "high", "high", "moderate"]
    left = reassign(tree, sample, 1, update, 0.4)
    moved = left != update.left
    assert moved.sum(-1).tolist() == [0, 80, int(0.4 * 194), 0]
    losses = leaf_losses(tree, sample, [2, 3]).detach()
    error = (tree.log_leaf_probability(sample.x).detach().exp() * losses).sum(1)
    for r in (1, 2):
        crowded = update.left[r]
        assert not moved[r][~crowded].any()
        assert error[r][moved[r]].min() >= error[r][crowded & ~moved[r]].max()


def test_at_least_one_row_moves_and_padding_never() -> None:
    tree, sample = _at_shares([1.0], n_rows=3)
    sample.weight[0, 2] = 0.0
    update = classify(tree, sample, 1, PAPER, torch.tensor([1000]))
    moved = reassign(tree, sample, 1, update, 0.1) != update.left
    assert moved.sum() == 1
    assert not moved[0, 2]


def test_weights_follow_the_original_routing() -> None:
    tree, sample = _at_shares([0.25, 1.0, 0.0])
    update = classify(tree, sample, 1, PAPER, sample.n_rows)
    weights = balancing_weights(sample, update)
    assert torch.isfinite(weights).all()
    np.testing.assert_allclose(weights[0][update.left[0]], 1 / (2 * 0.25))
    np.testing.assert_allclose(weights[0][~update.left[0]], 1 / (2 * 0.75))
    # One side is empty: only the weight of the side that has rows is used.
    np.testing.assert_allclose(weights[1:], 0.5)


def test_a_tie_goes_left_in_the_share_too() -> None:
    tree, sample = blank_tree(3, 1, batch_shape=(1,)), random_sample(1)
    assert float(classify(tree, sample, 1, PAPER, sample.n_rows).left_share) == 1.0


def test_a_row_that_overflows_where_it_cannot_be_is_not_the_worst() -> None:
    tree, sample = random_tree(1, 1, "weibull"), random_sample(1, n_rows=30)
    with torch.no_grad():
        tree.gate(1).weight.zero_()
        tree.gate(1).bias.fill_(800.0)
        tree.leaf(3).shape.fill_(8.0)
        tree.leaf(3).intercept.fill_(-50.0)
    update = classify(tree, sample, 1, PAPER, sample.n_rows)
    moved = reassign(tree, sample, 1, update, 0.4) != update.left
    losses = leaf_losses(tree, sample, [2]).detach()[:, 0]
    assert losses[moved].min() >= losses[~moved].max()
