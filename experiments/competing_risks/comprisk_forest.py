"""The forest of comprisk, which needs an older numba than the package: it runs in an environment of its own.

COMPRISK_PYTHON names the Python of that environment (comprisk 0.8.0), in which this file is the program that
fits and predicts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PYTHON = os.environ.get("COMPRISK_PYTHON", "")


@dataclass(frozen=True)
class CompriskForest:
    """``CompetingRiskForest`` with its own settings but for the number of trees and their leaves.

    Args:
        n_trees: number of trees.
        min_leaf: least number of rows of a leaf.
    """

    n_trees: int = 200
    min_leaf: int = 15

    def fit(self, X: Any, y: Any) -> FittedForest:
        """Fit the forest, as the baselines of the package."""
        from sstorch.bench.baselines.base import Encoder
        from sstorch.data import SurvivalData

        train = SurvivalData(X, y)
        encoder = Encoder(train)
        folder = tempfile.TemporaryDirectory()
        settings = {"n_trees": self.n_trees, "min_leaf": self.min_leaf, "seed": 0}
        rows = {"x": encoder.x, "time": train.time, "cause": train.cause}
        np.savez(Path(folder.name, "train.npz"), **rows, **settings)
        _run("fit", folder.name)
        return FittedForest(encoder, folder)


@dataclass(frozen=True)
class FittedForest:
    """A forest that lies in a folder."""

    encoder: Any
    folder: tempfile.TemporaryDirectory[str]

    def predict_cumulative_incidence(self, X: object, times: object) -> np.ndarray:
        """Incidences of every cause, (n, K, n_times)."""
        np.savez(Path(self.folder.name, "rows.npz"), x=self.encoder(X), times=np.asarray(times, dtype=float))
        _run("predict", self.folder.name)
        return np.load(Path(self.folder.name, "incidence.npy"))


def _run(step: str, folder: str) -> None:
    subprocess.run([PYTHON, __file__, step, folder], check=True)


def main(step: str, folder: Path) -> None:
    """Fit or predict, in the other environment."""
    from comprisk import CompetingRiskForest, load

    if step == "fit":
        rows = np.load(folder / "train.npz")
        forest = CompetingRiskForest(
            n_estimators=int(rows["n_trees"]),
            min_samples_leaf=int(rows["min_leaf"]),
            random_state=int(rows["seed"]),
            n_jobs=1,
        )
        forest.fit(rows["x"], rows["time"], rows["cause"]).save(folder / "forest")
    else:
        rows = np.load(folder / "rows.npz")
        incidence = load(folder / "forest").predict_cif(rows["x"], times=rows["times"])
        np.save(folder / "incidence.npy", incidence)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
