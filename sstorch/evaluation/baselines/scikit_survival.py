"""Tree, forest and boosting of scikit-survival."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sstorch.data import Schema, SurvivalData
from sstorch.evaluation.baselines.base import SKSURV, Baseline, Encoder, FloatArray, check_range
from sstorch.evaluation.baselines.step_curves import StepCurves


def structured(time: FloatArray, event: npt.NDArray[np.bool_]) -> npt.NDArray[np.void]:
    """The target as scikit-survival takes it."""
    from sksurv.util import Surv

    return np.asarray(Surv.from_arrays(event, time))


def grouped_times(time: FloatArray, event: npt.NDArray[np.bool_]) -> FloatArray:
    """Censored times moved back to the last event time before, which leaves every risk set as it is.

    Trees of scikit-survival store a curve at every distinct time in every node, a forest gigabytes of them.
    Censorings before the first event move to the earliest of them.
    """
    events = np.unique(time[event])
    before = np.searchsorted(events, time, side="right") - 1
    return np.where(before >= 0, events[np.maximum(before, 0)], time.min())


@dataclass(frozen=True)
class ScikitSurvivalModel(Baseline):
    """An estimator of scikit-survival that predicts step functions."""

    packages: ClassVar = (SKSURV,)

    @abstractmethod
    def _estimator(self, seed: int) -> Any:
        """The estimator, not fitted."""

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> StepCurves:
        encoder = Encoder(schema, train)
        time = grouped_times(train.time, train.event)
        model = self._estimator(seed).fit(encoder.x, structured(time, train.event))

        def values(X: object) -> FloatArray:
            return np.asarray(model.predict_survival_function(encoder(X), return_array=True))

        return StepCurves(model.unique_times_, values)


@dataclass(frozen=True)
class LogRankTree(ScikitSurvivalModel):
    """``SurvivalTree``: log-rank splits, a Kaplan-Meier curve in each leaf; other settings are its defaults.

    Args:
        depth: largest depth, >= 1.
    """

    name: ClassVar[str] = "sksurv"

    depth: int = 5

    def __post_init__(self) -> None:
        check_range("depth", self.depth, 1)

    def _estimator(self, seed: int) -> Any:
        from sksurv.tree import SurvivalTree

        return SurvivalTree(max_depth=self.depth, random_state=seed)


@dataclass(frozen=True)
class RandomForest(ScikitSurvivalModel):
    """``RandomSurvivalForest``; its curve is the mean of the trees' Kaplan-Meier curves.

    Args:
        n_trees: number of trees.
        min_leaf: least number of training rows of a leaf.
        n_jobs: threads; the curves do not depend on it.
    """

    name: ClassVar[str] = "rsf"

    n_trees: int = 100
    min_leaf: int = 15
    n_jobs: int = 1

    def __post_init__(self) -> None:
        check_range("n_trees", self.n_trees, 1)
        check_range("min_leaf", self.min_leaf, 1)

    def _estimator(self, seed: int) -> Any:
        from sksurv.ensemble import RandomSurvivalForest

        return RandomSurvivalForest(
            n_estimators=self.n_trees, min_samples_leaf=self.min_leaf, n_jobs=self.n_jobs, random_state=seed
        )


@dataclass(frozen=True)
class GradientBoosting(ScikitSurvivalModel):
    """``GradientBoostingSurvivalAnalysis`` of the partial likelihood, with Breslow's baseline hazard.

    Args:
        n_trees: number of boosting steps.
        learning_rate: what each tree is multiplied by.
        depth_of_trees: largest depth of each.
        subsample: share of the rows that each tree is fitted to.
    """

    name: ClassVar[str] = "gradient_boosting"

    n_trees: int = 100
    learning_rate: float = 0.1
    depth_of_trees: int = 3
    subsample: float = 1.0

    def __post_init__(self) -> None:
        check_range("n_trees", self.n_trees, 1)
        check_range("learning_rate", self.learning_rate, 1e-6)
        check_range("depth_of_trees", self.depth_of_trees, 1)
        check_range("subsample", self.subsample, 1e-6, 1.0)

    def _estimator(self, seed: int) -> Any:
        from sksurv.ensemble import GradientBoostingSurvivalAnalysis

        return GradientBoostingSurvivalAnalysis(
            n_estimators=self.n_trees,
            learning_rate=self.learning_rate,
            max_depth=self.depth_of_trees,
            subsample=self.subsample,
            random_state=seed,
        )
