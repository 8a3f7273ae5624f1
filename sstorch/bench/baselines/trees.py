"""Trees of R to compare with: rpart and ctree."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.bench.baselines.base import Baseline, Encoder, KnownCurves
from sstorch.data import Schema, SurvivalData
from sstorch.data.columns import array_names
from sstorch.exceptions import ConfigError, TrainingError

# Two numbers of float64 that differ are two numbers again when they are read.
_DIGITS = "%.17g"


@dataclass(frozen=True)
class Nodes:
    """A tree that R grew, a row for each node, the root first."""

    feature: IntArray  # of the question, -1 in a leaf
    threshold: FloatArray  # rows below it go left
    strict: BoolArray  # those at it go right
    left: IntArray
    right: IntArray

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read what the program in R wrote."""
        table = pd.read_csv(file, float_precision="round_trip")
        feature, left, right = (table[name].to_numpy(np.int64) for name in ("feature", "left", "right"))
        strict = table["strict"].to_numpy(np.int64) == 1
        return cls(feature, table["threshold"].to_numpy(np.float64), strict, left, right)

    def apply(self, x: FloatArray) -> IntArray:
        """Leaf of each row of features (n, p), as the number of its node, shape (n,)."""
        node = np.zeros(len(x), dtype=np.int64)
        while (inner := np.flatnonzero(self.feature[node] >= 0)).size:
            at = node[inner]
            value, threshold = x[inner, self.feature[at]], self.threshold[at]
            below = np.where(self.strict[at], value < threshold, value <= threshold)
            node[inner] = np.where(below, self.left[at], self.right[at])
        return node


@dataclass(frozen=True)
class RTree(Baseline):
    """A tree of R; every setting but the depth is the default of its package.

    One run of Rscript fits it and evaluates the curves of its leaves, the product-limit estimates of pec,
    at all training times; rows are then sent down the tree here. Beyond the last time of a leaf its curve
    keeps its value.

    It gets the encoded features, categories as columns of 0 and 1, like all other baselines: so missing and
    unknown categories are zeros, where factors of R would need surrogate splits.
    """

    depth: int = 5  # largest depth, >= 1

    def versions(self) -> dict[str, str]:
        """Versions of this package, of R and of its packages.

        Raises:
            ConfigError: R, or one of its packages, is missing.
        """
        found = _r_found()
        if isinstance(found, str):
            raise ConfigError(found)
        return super().versions() | found

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> KnownCurves:
        encoder = Encoder(schema, train)
        table = pd.DataFrame(encoder.x, columns=array_names(encoder.x.shape[1]))
        table = table.assign(time=train.time, event=train.event.astype(int))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            table.to_csv(folder / "train.csv", index=False, float_format=_DIGITS)
            _run(self.name, str(self.depth), name)
            nodes = Nodes.read(folder / "nodes.csv")
            leaf = np.loadtxt(folder / "leaf.csv", ndmin=1).astype(np.int64)
            # prodlim gives NA beyond the last time of a leaf.
            curves = pd.read_csv(folder / "curves.csv", header=None, float_precision="round_trip").ffill(
                axis=1
            )
        if not np.array_equal(nodes.apply(encoder.x), leaf):
            raise TrainingError(
                f"the tree of {self.name} was read wrongly: training rows are in other leaves"
            )
        survival = curves.to_numpy()
        return KnownCurves(np.unique(train.time), lambda X: survival[nodes.apply(encoder(X))])


@dataclass(frozen=True)
class RPart(RTree):
    """Recursive partitioning by the exponential deviance, with curves of ``pec::pecRpart``."""

    name: ClassVar[str] = "rpart"


@dataclass(frozen=True)
class CTree(RTree):
    """Conditional inference tree of party, with curves of ``pec::pecCtree``."""

    name: ClassVar[str] = "ctree"


def _run(*arguments: str) -> str:
    """Run the program in R and return what it prints."""
    program = resources.files("sstorch.bench.baselines") / "trees.R"
    with resources.as_file(program) as file:
        done = subprocess.run(
            ["Rscript", "--vanilla", str(file), *arguments], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise TrainingError(f"Rscript {arguments[0]} ended with an error: {done.stderr.strip()}")
    return done.stdout


@functools.cache
def _r_found() -> dict[str, str] | str:
    """Versions by package, or what is missing; R takes seconds to start, and is started once."""
    remedy = (
        "install R with its packages rpart, party and pec; on Debian, as root: "
        "apt-get install r-base-core r-cran-rpart r-cran-party r-cran-pec"
    )
    if shutil.which("Rscript") is None:
        return f"there is no Rscript; {remedy}"
    try:
        lines = _run("versions").splitlines()
    except TrainingError as error:
        return f"R lacks a package: {error}; {remedy}"
    return dict(line.split() for line in lines)
