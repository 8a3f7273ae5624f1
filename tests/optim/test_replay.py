"""A run of NODEC-DR-SST replayed step by step in plain code from the printed procedure."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from sstorch.monitoring import Callback, StepContext
from sstorch.monitoring.history import Columns
from sstorch.nn import SoftTree
from sstorch.objective import Sample, TrainingObjective
from sstorch.objective.training import expected_loss, leaf_losses
from sstorch.optim import LBFGSOptions, Nodec, Thresholds
from sstorch.optim.starts.clusters import initialize_random, problem_seed
from tests.batches import blank_tree, random_sample
from tests.conftest import nightly

OBJECTIVE = TrainingObjective(1e-3, 1e-3)


Seen = list[tuple[int, int, str, Tensor, SoftTree, SoftTree]]


class _States(Callback):
    """Keeps the trees before and after every step."""

    def __init__(self, tree: SoftTree) -> None:
        self.tree = tree
        self.seen: Seen = []

    def on_step(self, context: StepContext) -> None:
        before = self.tree.select(context.problems)
        after = context.tree.select(torch.arange(len(context.problems)))
        where = context.macro_iteration, context.node, context.step, context.problems.clone()
        self.seen.append((*where, before, after))


def _run(
    eps: str | Thresholds, n: int = 8, depth: int = 2, **settings: int
) -> tuple[SoftTree, Sample, Seen, list[Columns]]:
    sample = random_sample(n, n_splits=2, n_rows=150, seed=2)
    tree = blank_tree(3, depth, "log_logistic", (n,))
    initialize_random(tree, sample, [problem_seed(0, 0, k) for k in range(n)])
    states = _States(tree)
    tight = LBFGSOptions(max_iterations=300, gradient_tolerance=1e-9, relative_tolerance=0.0)
    history = Nodec(eps=eps, lbfgs=tight, **settings).train(tree, OBJECTIVE, sample, [states])
    blocks = history._steps
    assert len(blocks) == len(states.seen)
    return tree, sample, states.seen, blocks


@pytest.mark.parametrize("eps", [(0.1, 0.3, 0.4), nightly((0.1, 0.03, 0.4)), nightly((0.012, 0.3, 0.4))])
def test_every_step_is_the_printed_one(eps: tuple[float, float, float]) -> None:
    e = Thresholds(*eps)
    _, sample, seen, blocks = _run(e, macro_iterations=3)
    routing: dict[int, Tensor] = {}
    latest: dict[int, dict[str, Tensor]] = {}
    n_high = 0
    for (m, s, kind, problems, before, after), block in zip(seen, blocks, strict=True):
        own = sample.select(problems)
        for k, r in enumerate(problems.tolist()):
            state = {n: v[k] for n, v in before.state_dict().items()}
            if r in latest:  # the step starts from the last point, best or not
                assert all(torch.equal(v, latest[r][n]) for n, v in state.items())
            latest[r] = {n: v[k] for n, v in after.state_dict().items()}
        if kind != "LN":
            routing = {**routing, **{r: before.visits(own.x, s)[k] for k, r in enumerate(problems.tolist())}}
        visit = torch.stack([routing[r] for r in problems.tolist()]) & (own.weight > 0)
        count = visit.sum(-1)
        assert count.tolist() == block["rows"].tolist()
        with torch.no_grad():
            p = before.log_leaf_probability(own.x, s).exp()
            losses = leaf_losses(before, own, before.topology.leaves_under(s))
            weight = own.weight * visit
        n_rows = (own.weight > 0).sum(-1)
        e1, e2, e3 = (value * 0.8 ** (m - 1) for value in eps)
        if kind in ("BN", "LN"):
            gates, leaves = before.gate_parameters(), before.leaf_parameters()
            share_of_row = (weight / weight.sum(-1, keepdim=True))[:, None]
            with torch.no_grad():
                value = expected_loss(p * share_of_row, losses)
                value += OBJECTIVE.gate_penalty(gates) if kind == "BN" else OBJECTIVE.leaf_penalty(leaves)
            np.testing.assert_allclose(block["objective_before"], value, rtol=1e-10)
        if kind == "LN":
            continue
        left = (before.gate_logits(own.x, [s]).squeeze(1) >= 0).detach()
        for k in range(len(problems)):
            rows = visit[k].nonzero().squeeze(1)
            x, y = own.x.to_dense()[0 if problems[k] < 4 else 1][rows].numpy(), left[k][rows].numpy()
            share = y.mean()
            balanced = e1 < share < 1 - e1 or e1 * int(n_rows[k]) < 1
            assert balanced == (kind == "BN")
            if balanced:
                continue
            o = np.where(y, 1 / (2 * share) if share else 0, 1 / (2 * (1 - share)) if share < 1 else 0)
            label = y.copy()
            if share <= e2 or share >= 1 - e2:
                n_high += 1
                crowded = np.flatnonzero(y == (share >= 0.5))
                error = (p[k] * losses[k]).sum(0)[rows].numpy()[crowded]
                worst = crowded[np.argsort(-error, kind="stable")[: max(1, int(e3 * len(crowded)))]]
                label[worst] = ~label[worst]
            gate = after.gate(s)
            if label.all() or not label.any():
                continue
            peer = LogisticRegression(tol=1e-10, max_iter=2000).fit(x, label, sample_weight=o)
            np.testing.assert_allclose(gate.weight[k].detach(), peer.coef_[0], atol=1e-3)
            np.testing.assert_allclose(gate.bias[k].detach(), peer.intercept_[0], atol=1e-3)
    assert n_high > 0


@pytest.mark.parametrize("patience", [1, 2, nightly(4)])
def test_patience_counts_inner_iterations_and_best_is_the_lowest(patience: int) -> None:
    tree, sample, seen, _ = _run("eps_paper", macro_iterations=5, patience=patience)
    start = blank_tree(3, 2, "log_logistic", (8,))
    initialize_random(start, sample, [problem_seed(0, 0, k) for k in range(8)])
    with torch.no_grad():
        best, final = OBJECTIVE(start, sample), OBJECTIVE(tree, sample)
    decided = 0
    for r in range(8):
        visits = {  # the last step of each inner iteration
            (m, s): {n: v[p.tolist().index(r)] for n, v in a.state_dict().items()}
            for m, s, _, p, _, a in seen
            if r in p.tolist()
        }
        order = [(m, s) for m in range(1, 6) for s in (1, 2, 3)]
        lowest, idle, one = float(best[r]), 0, blank_tree(3, 2, "log_logistic", (1,))
        tied = False
        state = {n: v[r] for n, v in start.state_dict().items()}
        stopped = None
        for at in order:
            state = visits.get(at, state)
            one.load_state_dict({n: v[None] for n, v in state.items()})
            with torch.no_grad():
                value = float(OBJECTIVE(one, sample.select(torch.tensor([r]))))
            # Whether a change of the size of a rounding error counts as an improvement is anybody's guess.
            tied = tied or 0 < abs(value - lowest) < 1e-12
            lowest, idle = (value, 0) if value < lowest - 1e-14 else (lowest, idle + 1)
            if idle >= patience:
                stopped = at
                break
        assert abs(lowest - float(final[r])) < 1e-9
        decided += not tied
        if tied:
            continue
        if stopped is not None:
            assert max(visits) <= stopped
        else:
            assert max(visits)[0] == 5
    assert decided >= 5
