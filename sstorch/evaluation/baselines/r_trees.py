"""Trees of R, rpart and ctree, with the curves of their leaves by pec; run through Rscript."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch.data import Schema, SurvivalData
from sstorch.estimators.base import check_times
from sstorch.evaluation.baselines.base import Baseline, Encoder, FloatArray, check_range
from sstorch.evaluation.baselines.step_curves import checked_curves
from sstorch.exceptions import ConfigError, TrainingError

# Two decimals of float64 that differ are two numbers again when they are read.
_DIGITS = "%.17g"


@dataclass(frozen=True)
class RTreeCurves:
    """Curves of a tree that R fitted: the product-limit estimate of each leaf, constant beyond its last time.

    Attributes:
        encoder: raw columns to features.
        model: the fitted tree, as R wrote it.
    """

    encoder: Encoder
    model: bytes

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """See :class:`~sstorch.evaluation.baselines.base.Curves`; one run of Rscript a call."""
        distinct, position = np.unique(check_times(times), return_inverse=True)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            folder.joinpath("model.rds").write_bytes(self.model)
            _write(folder / "rows.csv", _features(self.encoder(X)))
            _write(folder / "times.csv", pd.DataFrame({"time": distinct}))
            _run("predict", name)
            leaf = np.loadtxt(folder / "leaf.csv", ndmin=1).astype(np.int64) - 1
            # prodlim gives NA beyond the last time of a leaf.
            curves = pd.read_csv(folder / "curves.csv", header=None, float_precision="round_trip").ffill(
                axis=1
            )
        return checked_curves(curves)[leaf][:, position]


@dataclass(frozen=True)
class RTree(Baseline):
    """A tree of R; every setting but the depth is the default of its package.

    It gets the encoded features, categories as columns of 0 and 1, like all other baselines: so missing and
    unknown categories are zeros, where factors of R would need surrogate splits.

    Args:
        depth: largest depth, >= 1.
    """

    depth: int = 5

    def __post_init__(self) -> None:
        check_range("depth", self.depth, 1)

    def check(self) -> None:
        """Make sure that Rscript and the packages of R are there.

        Raises:
            ConfigError: they are not; the message names the script that installs them.
        """
        super().check()
        _r_versions()

    def versions(self) -> dict[str, str]:
        """Versions of this package, of R and of its packages."""
        return super().versions() | _r_versions()

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> RTreeCurves:
        encoder = Encoder(schema, train)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            table = _features(encoder.x).assign(time=train.time, event=train.event.astype(int))
            _write(folder / "train.csv", table)
            _run("fit", self.name, str(self.depth), name)
            return RTreeCurves(encoder, folder.joinpath("model.rds").read_bytes())


@dataclass(frozen=True)
class RPart(RTree):
    """Recursive partitioning by the exponential deviance, with curves of ``pec::pecRpart``."""

    name: ClassVar[str] = "rpart"


@dataclass(frozen=True)
class CTree(RTree):
    """Conditional inference tree of party, with curves of ``pec::pecCtree``."""

    name: ClassVar[str] = "ctree"


def _features(x: FloatArray) -> pd.DataFrame:
    return pd.DataFrame(x, columns=[f"x{j}" for j in range(x.shape[1])])


def _write(file: Path, table: pd.DataFrame) -> None:
    table.to_csv(file, index=False, float_format=_DIGITS)


def _run(*arguments: str) -> str:
    """Run the program in R and return what it prints.

    Raises:
        TrainingError: it ended with an error, which the message repeats.
    """
    program = resources.files("sstorch.evaluation.baselines") / "r_trees.R"
    with resources.as_file(program) as file:
        done = subprocess.run(
            ["Rscript", "--vanilla", str(file), *arguments], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise TrainingError(f"Rscript {' '.join(arguments[:-1])} ended with an error: {done.stderr.strip()}")
    return done.stdout


@functools.cache
def _r_versions() -> dict[str, str]:
    """Versions of R and of the packages that are used.

    Raises:
        ConfigError: one of them is missing.
    """
    remedy = "install R with its packages rpart, party and pec: bash scripts/install_r (Debian, as root)"
    if shutil.which("Rscript") is None:
        raise ConfigError(f"there is no Rscript; {remedy}")
    try:
        lines = _run("versions").splitlines()
    except TrainingError as error:
        raise ConfigError(f"R lacks a package: {error}; {remedy}") from error
    return dict(line.split() for line in lines)
