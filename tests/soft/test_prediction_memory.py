"""Predictions take little memory compared with what they return."""

import subprocess
import sys

import pytest

from tests.conftest import nightly

RESIDENT = """
import re
from pathlib import Path


def resident(key):
    return int(re.search(key + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024


def peak_of(work):
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = resident("VmRSS")
    work()
    return resident("VmHWM") - before


"""
CURVES = """
import numpy as np
import pandas as pd

from sstorch import SoftSurvivalTree

rng = np.random.default_rng(0)
train = pd.DataFrame({"x": rng.normal(size=300), "word": rng.choice(["a", "b", "c"], 300)})
y = (rng.exponential(size=300), rng.uniform(size=300) < 0.7)
tree = SoftSurvivalTree(2, n_starts=1, init="random", prediction="PREDICTION").fit(train, y)
tree.predict_survival_function(train, [1.0])
rows = train.iloc[rng.integers(0, 300, 100_000)].reset_index(drop=True)
print(peak_of(lambda: tree.predict_survival_function(rows, np.linspace(0, 3, 200))))
"""
# Of every distinct time 20 000 rows would want 3 GiB, 200 000 rows 300.
SCORES = """
import numpy as np
import pandas as pd

from sstorch import SoftSurvivalTree, metrics
from sstorch.metrics import curves

n = ROWS
if n < 100_000:
    curves.WHOLE_ELEMENTS = curves.MOST_ELEMENTS = 2**20
rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
y = rng.exponential(size=n) * np.exp(X["a"].to_numpy()), rng.uniform(size=n) < 0.7
few = X[:500], (y[0][:500], y[1][:500])
tree = SoftSurvivalTree(1, n_starts=1, init="random").fit(*few)
tree.score(*few), metrics.evaluate(tree, few, few)
print(peak_of(lambda: tree.score(X, y)))
print(peak_of(lambda: tree.predict_survival_function(X)))
print(peak_of(lambda: metrics.evaluate(tree, (X, y), (X, y))))
"""


def peaks(code: str) -> list[float]:
    """What the code prints: MiB above what was taken before."""
    done = subprocess.run([sys.executable, "-c", RESIDENT + code], capture_output=True, text=True, check=True)
    return [float(value) for value in done.stdout.split()]


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read as Linux tells it")
@pytest.mark.parametrize("prediction", ["hbp", nightly("mixture")])
def test_curves_of_many_rows_take_little_more_than_themselves(prediction: str) -> None:
    (peak,) = peaks(CURVES.replace("PREDICTION", prediction))
    assert peak < 100_000 * 200 * 8 / 2**20 + 80


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read as Linux tells it")
@pytest.mark.parametrize(
    ("rows", "limits"), [nightly(20_000, (60, 60, 120)), nightly(200_000, (1000, 600, 2500))]
)
def test_scores_of_many_rows_take_bounded_memory(rows: int, limits: tuple[float, ...]) -> None:
    for peak, limit in zip(peaks(SCORES.replace("ROWS", str(rows))), limits, strict=True):
        assert peak < limit
