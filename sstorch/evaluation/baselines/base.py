"""What all baselines share: settings, the packages they need, and the form of what they fit."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from sstorch._version import __version__
from sstorch.data import Preprocessor, Schema, SurvivalData, stratified_folds
from sstorch.data.sources.package import pip_install
from sstorch.exceptions import ConfigError, DataError

FloatArray = npt.NDArray[np.float64]


class Curves(Protocol):
    """A fitted baseline.

    Parametric ones also have ``log_likelihood(X, y)``, the mean per row in the unit of the data; curves that
    are step functions have no density and no such method.
    """

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Survival S(t | x), shape (n, n_times), in [0, 1] and not rising with t.

        Args:
            X: rows with the columns of the schema; other columns are ignored, in any order.
            times: finite numbers >= 0, shape (n_times,), in the unit of the training times.
        """
        ...


@dataclass(frozen=True)
class Requirement:
    """A Python package that a baseline needs.

    Attributes:
        distribution: name under which pip installs it.
        module: name under which Python imports it.
        install: what to install to have it, for instance an extra of this package.
    """

    distribution: str
    module: str
    install: str


LIFELINES = Requirement("lifelines", "lifelines", "lifelines")
SKSURV = Requirement("scikit-survival", "sksurv", "sstorch[baselines]")
PYCOX = Requirement("pycox", "pycox", "pycox")
TORCHTUPLES = Requirement("torchtuples", "torchtuples", "torchtuples")


@dataclass(frozen=True)
class Baseline(ABC):
    """A model to compare with: a frozen dataclass whose fields are its settings.

    Trees have the field ``depth``. The raw columns are encoded inside, with statistics of the training rows:
    one 0/1 feature per category, missing categories zero in all of them, missing numbers at the mean, numbers
    scaled to [0, 1] (:class:`~sstorch.data.Preprocessor`); what is constant in the training rows is left out.
    """

    name: ClassVar[str]
    packages: ClassVar[tuple[Requirement, ...]] = ()

    def check(self) -> None:
        """Make sure, before any work, that what the model needs is installed.

        Raises:
            ConfigError: it is not; the message gives the command that installs it.
        """
        for package in self.packages:
            if importlib.util.find_spec(package.module) is None:
                raise ConfigError(
                    f"the baseline {self.name!r} needs the package {package.distribution}; install it: "
                    f"{pip_install(package.install)}"
                )

    def fit(self, train: SurvivalData, schema: Schema, seed: int = 0) -> Curves:
        """Fit the model to training rows.

        Args:
            train: training rows.
            schema: columns and vocabularies, which may come from a larger table.
            seed: of everything random; equal seeds give equal curves.

        Raises:
            ConfigError: a package or program is missing, or the seed is out of range.
            DataError: the rows have weights or entry times, which not all baselines could honour, or no
                feature that varies.
            TrainingError: the model cannot be fitted to these rows.
        """
        self.check()
        check_range("seed", seed, 0, 2**32 - 1)
        self.check_rows(train)
        return self._fit(train, schema, seed)

    def check_rows(self, rows: SurvivalData) -> None:
        """Refuse rows that not all baselines could honour.

        Raises:
            DataError: the rows have weights or entry times.
        """
        if rows.entry.any() or np.ptp(rows.sample_weight) > 0:
            raise DataError("baselines take every row alike, observed from time zero: no weights, no entry")

    @abstractmethod
    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> Curves:
        """Fit the model; what it needs is there."""

    def settings(self) -> dict[str, Any]:
        """Every setting and its value."""
        return asdict(self)

    def versions(self) -> dict[str, str]:
        """Versions of this package and of those the model needs.

        Raises:
            ConfigError: as :meth:`check`.
        """
        self.check()
        return {"sstorch": __version__} | {
            p.distribution: metadata.version(p.distribution) for p in self.packages
        }


class Encoder:
    """Raw columns to the numbers a model takes, learned from training rows.

    Features that are constant in the training rows are left out: most solvers refuse or warn of them.

    Args:
        schema: columns and vocabularies.
        train: training rows, whose features are kept as `x`, shape (n, p).

    Raises:
        DataError: every feature is constant.
    """

    def __init__(self, schema: Schema, train: SurvivalData) -> None:
        self._preprocessor = Preprocessor(schema).fit(train.frame)
        encoded = self._preprocessor.transform(train.frame)
        self._varies = np.ptp(encoded, axis=0) > 0
        if not self._varies.any():
            raise DataError("every feature is constant in the training rows: nothing to learn from")
        self.x: FloatArray = encoded[:, self._varies]

    def __call__(self, X: object) -> FloatArray:
        """Encode rows, shape (n, p)."""
        encoded: FloatArray = self._preprocessor.transform(X)[:, self._varies]
        return encoded


def inner_folds(train: SurvivalData, n_folds: int, seed: int) -> npt.NDArray[np.int64]:
    """Folds of the training rows, stratified by event; fewer than `n_folds` if there are fewer events.

    Returns:
        Fold of each row, shape (n,).

    Raises:
        DataError: fewer than two events.
    """
    n_events = int(train.event.sum())
    if n_events < 2:
        raise DataError(f"the training rows have {n_events} event; at least two are needed to leave one out")
    return stratified_folds(train.event, min(n_folds, n_events), seed)


def check_range(name: str, value: float, low: float, high: float = np.inf) -> None:
    """Refuse a setting outside [low, high].

    Raises:
        ConfigError: names the setting and the range.
    """
    if not low <= value <= high:
        upper = "" if high == np.inf else f" and <= {high:g}"
        raise ConfigError(f"{name}={value!r} must be >= {low:g}{upper}")
