"""How far trees of a lookahead are from the best: SurTree's data sets, depth 5, all rows.

    OMP_NUM_THREADS=1 python experiments/exact_trees/lookahead.py        # extra "datasets"

Prints a Markdown table. The excess of a tree is its loss above the optimum's, in percent of what the
optimum is below one leaf.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

import torch

from sstorch.exact import LogLikelihood, Solution, solve

SCRIPTS = Path(__file__).parents[2] / "scripts"


def bench() -> Any:
    """The script that reads these data sets."""
    sys.path.insert(0, str(SCRIPTS))
    loader = importlib.machinery.SourceFileLoader("bench_optimal", str(SCRIPTS / "bench_optimal"))
    spec = importlib.util.spec_from_loader("bench_optimal", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_optimal"] = module
    loader.exec_module(module)
    return module


def timed(features: Any, task: LogLikelihood, depth: int, lookahead: int | None) -> tuple[Solution, float]:
    """A search, and its CPU seconds."""
    begin = time.process_time()
    found = solve(features, task, depth, engine="compiled", lookahead=lookahead)
    found.tree()
    return found, time.process_time() - begin


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    source = bench()
    columns = ["set", "rows", "features", "optimum, depth 5", "s", "lookahead 1: excess, %", "s"]
    columns += ["2: excess, %", "s", "depth 6 by 2", "s"]
    print("| " + " | ".join(columns) + " |")
    print(f"|{'---|' * 11}", flush=True)
    for name in source.SURTREE:
        data = source.surtree_data(name)
        task = LogLikelihood(data.time, data.event)
        best, seconds = timed(data.features, task, 5, None)
        gain = best.optima[0, 0].loss - best.loss
        cells = [name, *data.features.shape, f"{best.loss:.2f}", f"{seconds:.2f}"]
        for levels in (1, 2):
            found, seconds = timed(data.features, task, 5, levels)
            cells += [f"{100 * (found.loss - best.loss) / gain:.2f}", f"{seconds:.2f}"]
        found, seconds = timed(data.features, task, 6, 2)
        cells += [f"{found.loss:.2f}", f"{seconds:.2f}"]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
