"""Exact trees over every threshold: tables of all sets beside branch and bound, and what the bounds leave.

    OMP_NUM_THREADS=1 python experiments/exact_trees/thresholds.py        # extra "datasets"

Prints a Markdown table: CPU seconds of `solve` at depth 3 on one core, and by the clock on two. Simulated
rows have ten normal columns, of which four matter. Without the memory for tables branch and bound is taken.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

from sstorch import load_dataset
from sstorch.exact import Binarizer, LogLikelihood, Solution, solve


def simulated(n: int, seed: int = 0) -> tuple[np.ndarray, LogLikelihood]:
    """Rows whose hazard is a step of two columns, of the product of two, and grows with a fourth."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 10))
    hazard = np.exp(0.7 * (X[:, 0] > 0.3) + 0.7 * (X[:, 1] > 0) * (X[:, 2] < 0.5) + 0.3 * X[:, 3])
    stop, censored = rng.exponential(1 / hazard), rng.exponential(2, n)
    cuts = [column > threshold for column in X.T for threshold in np.sort(column)[:-1]]
    return np.column_stack(cuts), LogLikelihood(np.minimum(stop, censored), stop <= censored)


def of_set(name: str) -> tuple[np.ndarray, LogLikelihood]:
    """Complete rows of a set, with a question for each midpoint between values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = load_dataset(name)
    rows = ~data.frame.isna().any(axis=1).to_numpy()
    features = Binarizer("all").fit_transform(data.frame[rows])
    return np.asarray(features), LogLikelihood(data.time[rows], data.event[rows])


def timed(
    features: np.ndarray, task: LogLikelihood, n_threads: int, memory: int
) -> tuple[Solution, float, float]:
    """A search, its CPU seconds, and those by the clock."""
    clock, processor = time.perf_counter(), time.process_time()
    found = solve(features, task, 3, engine="compiled", n_threads=n_threads, memory=memory)
    found.tree()
    return found, time.process_time() - processor, time.perf_counter() - clock


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="*", default=["whas500", "gbsg2", "unempdur"])
    parser.add_argument("--rows", nargs="*", type=int, default=[500, 1000, 2000])
    given = parser.parse_args()
    print(
        "| | rows | questions | loss | tables, s | bounds, s | leaves evaluated | two threads, by the clock |"
    )
    print(f"|{'---|' * 8}", flush=True)
    problems = [(name, lambda name=name: of_set(name)) for name in given.sets]
    problems += [(f"simulated, {n}", lambda n=n: simulated(n)) for n in given.rows]
    for name, make in problems:
        features, task = make()
        bounded, seconds, _ = timed(features, task, 1, memory=1)
        assert bounded.certificate == "optimal"
        two = timed(features, task, 2, memory=1)[2]
        tables = "-"
        if features.shape[1] < 2000:
            all_sets, of_tables, _ = timed(features, task, 1, memory=8 * 2**30)
            np.testing.assert_allclose(all_sets.loss, bounded.loss, rtol=1e-10)
            tables = f"{of_tables:.1f}"
        cells = [name, *features.shape, f"{bounded.loss:.2f}", tables, f"{seconds:.1f}"]
        cells += [f"{bounded.counters.cells:.2g}", f"{two:.1f}"]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
