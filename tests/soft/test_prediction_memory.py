"""Predictions take little memory beside what they return."""

import subprocess
import sys

import pytest

from tests.conftest import nightly

MEASURE = """
import re
from pathlib import Path

import numpy as np
import pandas as pd

from sstorch import SoftSurvivalTree


def resident(key):
    return int(re.search(key + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024


rng = np.random.default_rng(0)
train = pd.DataFrame({"x": rng.normal(size=300), "word": rng.choice(["a", "b", "c"], 300)})
y = (rng.exponential(size=300), rng.uniform(size=300) < 0.7)
tree = SoftSurvivalTree(2, n_starts=1, init="random", prediction="PREDICTION").fit(train, y)
tree.predict_survival_function(train, [1.0])
rows = train.iloc[rng.integers(0, 300, 100_000)].reset_index(drop=True)
Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
before = resident("VmRSS")
curves = tree.predict_survival_function(rows, np.linspace(0, 3, 200))
print(resident("VmHWM") - before, curves.nbytes / 2**20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read as Linux tells it")
@pytest.mark.parametrize("prediction", ["hbp", nightly("mixture")])
def test_curves_of_many_rows_take_little_more_than_themselves(prediction: str) -> None:
    code = MEASURE.replace("PREDICTION", prediction)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    peak, size = (float(value) for value in done.stdout.split())
    assert size == pytest.approx(152.6, abs=0.1)
    assert peak < size + 80
