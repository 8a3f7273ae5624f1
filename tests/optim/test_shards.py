"""Rows in shards: the same sums, the same trees, in one process and in several."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sstorch.exceptions import ConfigError
from sstorch.nn import SoftTree
from sstorch.objective import Sample, Shards, TrainingObjective
from sstorch.optim import Checkpoint, Nodec
from sstorch.optim.nodec import THRESHOLDS, balancing_weights, classify, reassign
from sstorch.optim.steps import BranchStep, JointStep, LeafStep, ShardedStep
from tests.batches import random_sample, random_tree
from tests.optim.sharded_run import train

OBJECTIVE = TrainingObjective(0.02, 0.03, 0.04)


@pytest.mark.parametrize("make", [JointStep.make, None, "leaf"])
def test_steps_over_shards_add_up(make: object) -> None:
    tree, sample = random_tree(4, 2), random_sample(4, n_splits=2, n_rows=61)

    def step(part: Sample):  # type: ignore[no-untyped-def]
        if make == "leaf":
            return LeafStep.make(tree, OBJECTIVE, part, 2)
        return JointStep.make(tree, OBJECTIVE, part) if make else BranchStep.make(tree, OBJECTIVE, part, 1)

    whole = ShardedStep.make(Shards.of(sample), step)
    cut = ShardedStep.make(Shards.cut(sample, 7), step)
    x = whole.read()
    for own, expected in zip(cut.value_and_gradient(x), whole.value_and_gradient(x), strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(cut.value(), whole.value(), rtol=1e-12, atol=0)
    for own, expected in zip(cut.metric(x).inverses, whole.metric(x).inverses, strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-5, atol=1e-8)
    some = torch.tensor([1, 3])
    torch.testing.assert_close(cut.select(some).value_and_gradient(x[some])[0], whole.value()[some])


def test_the_branch_update_over_shards() -> None:
    tree, sample = random_tree(5, 2, scale=3.0), random_sample(5, n_rows=80)
    with torch.no_grad():
        tree.gate(1).bias.copy_(torch.tensor([9.0, -9.0, 0.0, 4.0, -4.0]))
    found = []
    for n in (1, 6):
        rows = Shards.cut(sample, n)
        update = classify(tree, rows, 1, THRESHOLDS["eps_paper"], rows.n_rows)
        left = reassign(tree, rows, 1, update, 0.4)
        found.append(
            [
                update.left_share,
                torch.cat(left, -1),
                torch.cat(balancing_weights(rows, update), -1),
                rows.n_rows,
            ]
        )
    assert int((found[0][1] != torch.cat(update.left, -1)).sum()) > 20
    for own, expected in zip(*found, strict=True):
        torch.testing.assert_close(own, expected)


@pytest.mark.nightly
def test_a_run_on_shards_finds_what_a_run_on_all_rows_finds() -> None:
    (one, value), (many, own) = train(1), train(8)
    assert abs(own - value) < 0.01 * abs(value)
    sample = random_sample(6, n_splits=2, n_rows=240, seed=2)
    values = [TrainingObjective(1e-3, 1e-3)(tree, sample).mean() for tree in (one, many)]
    torch.testing.assert_close(values[0], values[1], rtol=2e-3, atol=0)


@pytest.mark.nightly
@pytest.mark.parametrize("n_processes", [2, 4])
def test_processes_of_torchrun_train_the_same_tree(n_processes: int, tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(n_processes),
    ]
    script = [str(Path(__file__).with_name("sharded_run.py")), str(tmp_path), "8"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(command + script, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    alone, _ = train(8)
    files = sorted(tmp_path.glob("*.pt"))
    assert len(files) == n_processes
    for file in files:
        theirs = torch.load(file, weights_only=True)
        for name, value in alone.state_dict().items():
            torch.testing.assert_close(theirs[name], value, rtol=0, atol=1e-8)


def test_what_does_not_go_with_shards() -> None:
    sample, tree = random_sample(2, n_rows=30), SoftTree(3, 1, batch_shape=(2,))
    for n_shards in (0, 2.5, True):
        with pytest.raises(ConfigError, match="n_shards must be "):
            Nodec(n_shards=n_shards)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="n_shards must be an integer from 1 to 30"):
        Nodec(n_shards=31).train(tree, OBJECTIVE, sample)
    with pytest.raises(ConfigError, match="gate_sparsity needs all rows"):
        Nodec(n_shards=2).train(tree, TrainingObjective(gate_sparsity=0.1), sample)


def test_another_number_of_shards_is_another_run(tmp_path: Path) -> None:
    sample = random_sample(2, n_rows=60)
    Nodec(macro_iterations=1, n_shards=2).train(
        random_tree(2, 1), OBJECTIVE, sample, checkpoint=Checkpoint(tmp_path / "run")
    )
    with pytest.raises(ConfigError, match="n_shards"):
        Nodec(macro_iterations=1, n_shards=3).train(
            random_tree(2, 1), OBJECTIVE, sample, checkpoint=Checkpoint(tmp_path / "run")
        )
