"""Writes the saved trees that later versions must read, and what they predict: run once a format version.

python tests/soft/saved/make.py
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from sstorch import OptimalSurvivalTree, SoftSurvivalTree
from sstorch.exact.estimators import base as exact_persistence
from sstorch.soft import tree as persistence

HERE = Path(__file__).parent
ROWS = pd.DataFrame({"age": [31.0, 64.5, None], "stage": ["I", "III", None], "smoker": [True, False, True]})
TIMES = [0.0, 2.5, 40.0, 400.0]


def cohort() -> tuple[pd.DataFrame, tuple[np.ndarray, np.ndarray]]:
    """Sixty simulated rows with numbers, categories, booleans and missing values."""
    rng = np.random.default_rng(11)
    frame = pd.DataFrame(
        {
            "age": rng.uniform(20, 90, 60).round(1),
            "stage": rng.choice(["I", "II", "III"], 60),
            "smoker": rng.uniform(size=60) < 0.4,
        }
    )
    frame.loc[::9, "age"] = np.nan
    time = (60 * rng.weibull(1.3, 60) * np.exp(-0.02 * frame["age"].fillna(50))).round(2) + 0.1
    return frame, (time.to_numpy(), rng.uniform(size=60) < 0.7)


def main() -> None:
    """Fit, save and write down predictions."""
    X, y = cohort()
    trees = {
        f"soft_version_{persistence.FORMAT_VERSION}": SoftSurvivalTree(
            1,
            "spline_po",
            n_starts=2,
            init="random",
            missing_categories="most_frequent",
            numeric={"age": "spline(3)"},
            gate_numeric={"age": "log"},
            interactions=[("age", "smoker")],
        ),
        f"exact_version_{exact_persistence.FORMAT_VERSION}": OptimalSurvivalTree(2),
    }
    for name, tree in trees.items():
        tree.fit(X, y).save(HERE / name)
        found = {"leaf": tree.apply(ROWS).tolist(), "risk": tree.predict(ROWS).tolist()}
        found["survival"] = tree.predict_survival_function(ROWS, TIMES).tolist()
        (HERE / name / "expected.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
