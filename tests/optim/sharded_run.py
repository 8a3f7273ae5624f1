"""Train on row shards under torchrun and write the tree: ``sharded_run.py FOLDER N_SHARDS``."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

from sstorch.nn import SoftTree
from sstorch.objective import TrainingObjective
from sstorch.optim import LBFGSOptions, Nodec, NodecJoint, initialize_random, problem_seed
from tests.batches import random_sample


def train(n_shards: int) -> tuple[SoftTree, float]:
    """Nodec, then joint training, with reassignments, on rows in shards."""
    torch.set_num_threads(1)
    sample = random_sample(6, n_splits=2, n_rows=240, seed=2)
    tree = SoftTree(3, 2, "log_logistic", (6,))
    initialize_random(tree, sample, [problem_seed(0, 0, k) for k in range(6)])
    trainer = NodecJoint(Nodec(macro_iterations=3, lbfgs=LBFGSOptions(max_iterations=30)), n_shards=n_shards)
    history = trainer.train(tree, TrainingObjective(1e-3, 1e-3), sample)
    assert {"BN", "WLR", "LN", "JOINT"} <= set(history.steps["step"])
    return tree, float(history.macro_iterations["objective"].iloc[-1])


if __name__ == "__main__":
    folder, shards = Path(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo")
    trained, _ = train(shards)
    torch.save(trained.state_dict(), folder / f"{dist.get_world_size()}_{dist.get_rank()}.pt")
    dist.destroy_process_group()
