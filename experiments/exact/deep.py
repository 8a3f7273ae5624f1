"""Exact trees of depth 6 to 9: time to the proof, and what a reference model saves and costs.

    OMP_NUM_THREADS=1 python experiments/exact/deep.py        # extra "datasets"

Prints CPU seconds of `solve` on one core with `min_leaf=10`, the loss and its certificate. The reference is a
random survival forest of the same questions (100 trees, depth 9, leaves of 7), which learns and scores first.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from sksurv.ensemble import RandomSurvivalForest
from sksurv.util import Surv

from sstorch import load_dataset
from sstorch.exact import Binarizer, LogLikelihood, reference_costs, solve


def main() -> None:
    """Print a line for each set and depth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="*", default=["nwtco", "aids2", "trace", "gbsg2"])
    parser.add_argument("--depths", nargs="*", type=int, default=[6])
    parser.add_argument("--reference", action="store_true", help="bounds by a random survival forest")
    given = parser.parse_args()
    for name in given.sets:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = load_dataset(name)
        features = np.asarray(Binarizer("surtree").fit_transform(data.frame), dtype=np.float64)
        task, guess = LogLikelihood(data.time, data.event), None
        if given.reference:
            forest = RandomSurvivalForest(100, max_depth=9, min_samples_leaf=7, random_state=0, n_jobs=1)
            forest.fit(features, Surv.from_arrays(data.event, data.time))
            guess = reference_costs(task, forest, features)
        for depth in given.depths:
            begin = time.process_time()
            found = solve(features, task, depth, min_leaf=10, guess=guess, n_threads=1)
            seconds = time.process_time() - begin
            print(
                f"{name}: {len(features)} rows, {features.shape[1]} questions, depth {depth}: "
                f"{seconds:.2f} s, loss {found.loss:.4f}, {found.certificate}",
                flush=True,
            )


if __name__ == "__main__":
    main()
