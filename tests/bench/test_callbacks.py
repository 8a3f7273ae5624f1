"""What callbacks are told of each inner step."""

import pytest
import torch

from sstorch.monitoring import Callback, History, StepContext
from sstorch.nn import SoftTree
from sstorch.objective import TrainingObjective
from sstorch.optim import Joint, Nodec, NodecJoint, Trainer
from sstorch.optim.starts.clusters import initialize_random, problem_seed
from tests.batches import blank_tree, random_sample

NODEC = Nodec(macro_iterations=3, patience=4)


class _Steps(Callback):
    """Compares each step with the batch around it, and remembers it."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, str, list[int]]] = []
        self.passes: list[tuple[int, int]] = []
        self.moved = 0

    def on_train_begin(self, tree: SoftTree, macro_iterations: int) -> None:
        self.batch = tree

    def on_step(self, context: StepContext) -> None:
        before, after = self.batch.select(context.problems), context.tree
        assert after.n_problems == len(context.problems)
        nodes = {"LN": after.topology.leaves_under(context.node), "JOINT": [*after.topology.branches]}
        nodes["JOINT"] += after.topology.leaves
        branches = after.topology.branches_under(context.node) if context.node > 1 else [1]
        nodes |= {"BN": branches, "WLR": [context.node]}
        for name, value in after.named_parameters():
            changed = not torch.equal(value, before.get_parameter(name))
            _, node, _ = name.split(".")
            if int(node) not in nodes[context.step]:
                assert not changed, (context.step, context.node, name)
            self.moved += changed
        self.seen.append(
            (context.macro_iteration, context.node, context.step, sorted(context.problems.tolist()))
        )

    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        self.passes.append((macro_iteration, len(self.seen)))


@pytest.mark.parametrize("trainer", [NODEC, Joint(), NodecJoint(NODEC)])
def test_every_inner_step_is_told_before_it_enters_the_batch(trainer: Trainer) -> None:
    sample = random_sample(6, n_splits=2, n_rows=120, seed=4)
    tree = blank_tree(3, 2, "weibull", (6,))
    initialize_random(tree, sample, [problem_seed(1, 0, k) for k in range(6)])
    steps = _Steps()
    history = trainer.train(tree, TrainingObjective(1e-3, 1e-3), sample, [steps])
    blocks = history._steps
    told = [
        (int(b["macro_iteration"][0]), int(b["node"][0]), str(b["step"][0]), b["problem"].tolist())
        for b in blocks
    ]
    assert steps.seen == told
    assert steps.moved > len(told)
    # Steps of a pass come before its record.
    for number, count in steps.passes:
        assert all(at <= number for at, *_ in steps.seen[:count])
        assert all(at > number for at, *_ in steps.seen[count:])
    assert {step for _, _, step, _ in told} >= ({"BN", "LN"} if trainer != Joint() else {"JOINT"})
