"""Predictions take little memory compared with what they return."""

import subprocess
import sys

import pytest

RESIDENT = """
import re
from pathlib import Path
import numpy as np
import pandas as pd
from sstorch import SoftSurvivalTree, metrics
from sstorch.metrics import grids

def resident(key):
    return int(re.search(key + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

def peak_of(work):
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = resident("VmRSS")
    work()
    print(resident("VmHWM") - before)

n, rng = ROWS, np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
y = rng.exponential(size=n) * np.exp(X["a"].to_numpy()), rng.uniform(size=n) < 0.7
few = X[:500], (y[0][:500], y[1][:500])
tree = SoftSurvivalTree(1, n_starts=1, init="random", prediction="PREDICTION").fit(*few)
"""
CURVES = "tree.predict(X[:9]); peak_of(lambda: tree.predict_survival_function(X, np.linspace(0, 3, 200)))"
# Of every distinct time 20 000 rows would want 3 GiB, 200 000 rows 300.
SCORES = """
if n < 100_000:
    grids.WHOLE_ELEMENTS = grids.MOST_ELEMENTS = 2**20
tree.score(*few), metrics.evaluate(tree, few, few)
peak_of(lambda: tree.score(X, y))
peak_of(lambda: tree.predict_survival_function(X))
peak_of(lambda: metrics.evaluate(tree, (X, y), (X, y)))
"""


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read as Linux tells it")
@pytest.mark.parametrize(
    ("rows", "prediction", "work", "limits"),
    [
        (100_000, "hbp", CURVES, (100_000 * 200 * 8 / 2**20 + 80,)),
        (100_000, "mixture", CURVES, (100_000 * 200 * 8 / 2**20 + 80,)),
        (20_000, "hbp", SCORES, (60, 60, 120)),
        (200_000, "hbp", SCORES, (1000, 600, 2500)),
    ],
)
def test_predictions_and_scores_of_many_rows_take_bounded_memory(
    rows: int, prediction: str, work: str, limits: tuple[float, ...]
) -> None:
    code = RESIDENT.replace("ROWS", str(rows)).replace("PREDICTION", prediction) + work
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    peaks = [float(value) for value in done.stdout.split()]
    assert len(peaks) == len(limits)
    assert all(peak < limit for peak, limit in zip(peaks, limits, strict=True)), peaks
