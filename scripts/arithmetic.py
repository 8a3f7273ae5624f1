"""The bare arithmetic of an evaluation: matrix products, exponentials and logarithms, and nothing else.

A lower limit for any program that evaluates these steps in passes over the rows: one product of features and
parameters, one exponential for each logit (and one logarithm where there is a loss), one product of features
and derivatives. No penalties, no sums, no optimiser, no gathering of rows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pandas as pd
import torch

from sstorch.nn import Topology
from sstorch.objective.rows import problem_blocks

REPEATS = 5


def bare_seconds(steps: pd.DataFrame, depth: int, n_features: int) -> dict[str, float]:
    """CPU seconds of the bare arithmetic of all evaluations of a run on the CPU, by kind of step.

    Args:
        steps: records of the run, :attr:`History.steps`; each step counts with its own rows.
        depth: of the trees.
        n_features: p.
    """
    topology, seconds = Topology(depth), {"BN": 0.0, "LN": 0.0, "WLR": 0.0}
    for (kind, number), records in steps.groupby(["step", "node"]):
        node = int(number)
        evaluated_rows = float((records["evaluations"] * records["rows"]).sum())
        n_rows = max(2, round(evaluated_rows / records["evaluations"].sum()))
        if kind == "BN":
            width = 1 if node == 1 else len(topology.branches_under(node))
        else:
            width = len(topology.leaves_under(node)) if kind == "LN" else 1
        seconds[kind] += evaluated_rows * _per_row(kind, width, n_rows, n_features)
    return seconds


def _per_row(kind: str, width: int, n_rows: int, n_features: int) -> float:
    """CPU seconds per row of an evaluation with so many gates or leaves, in blocks that fit the cache."""
    block = problem_blocks(10**6, (width + 1) * n_rows, torch.device("cpu"))[0]
    n_problems = min(block.stop - block.start, 20)
    x = torch.rand(n_features + 1, n_rows, dtype=torch.float64)
    parameters = torch.rand(n_problems * width, n_features + 1, dtype=torch.float64)
    scores = torch.empty(n_problems * width, n_rows, dtype=torch.float64)
    gradient = torch.empty_like(parameters)

    def evaluate() -> None:
        torch.mm(parameters, x, out=scores)
        torch.exp(scores, out=scores)
        if kind != "BN":  # the losses of a BN step are known
            torch.log1p(scores, out=scores)
        torch.mm(scores, x.mT, out=gradient)

    return _median_cpu_seconds(evaluate) / (n_problems * n_rows)


def _median_cpu_seconds(function: Callable[[], None]) -> float:
    function()
    begin = time.process_time()
    function()
    calls = max(1, round(0.02 / max(1e-6, time.process_time() - begin)))
    found = []
    for _ in range(REPEATS):
        begin = time.process_time()
        for _ in range(calls):
            function()
        found.append((time.process_time() - begin) / calls)
    return statistics.median(found)
