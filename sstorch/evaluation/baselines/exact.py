"""Exact survival trees of this package, without tuning: the best tree of a depth."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from sstorch.data import Schema, SurvivalData
from sstorch.estimators import OptimalSurvivalTree
from sstorch.evaluation.baselines.base import Baseline, check_range
from sstorch.optimal.binarize import Preset


@dataclass(frozen=True)
class ExactTree(Baseline):
    """The tree of least training loss among all of its depth, with Kaplan-Meier leaves.

    Columns become yes-no questions (``binarize``), learned from the training rows; a missing or unknown value
    answers no.

    Args:
        depth: largest depth, 0 to 5.
        min_leaf: least number of training rows of a leaf.
        leaf_penalty: loss that each leaf costs, in the unit of the objective.
        binarize: a preset of :class:`~sstorch.optimal.Binarizer`.
        device: ``"cpu"`` or a CUDA device.
        time_limit: seconds, or None; where they do not suffice, the best tree found is taken, and how good
            it is depends on the machine.
    """

    depth: int = 3
    min_leaf: int = 20
    leaf_penalty: float = 0.0
    binarize: Preset = "surtree"
    device: str = "cpu"
    time_limit: float | None = None

    def __post_init__(self) -> None:
        check_range("depth", self.depth, 0, 5)
        check_range("min_leaf", self.min_leaf, 1)
        check_range("leaf_penalty", self.leaf_penalty, 0.0)

    @abstractmethod
    def _estimator(self) -> OptimalSurvivalTree:
        """The estimator, not fitted."""

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> OptimalSurvivalTree:
        frame = schema.frame_of(train.frame)[list(schema.columns)]
        tree = self._estimator()
        tree.set_params(
            max_depth=self.depth,
            min_leaf=self.min_leaf,
            leaf_penalty=self.leaf_penalty,
            binarize=self.binarize,
            device=self.device,
            time_limit=self.time_limit,
        )
        return tree.fit(frame, (train.time, train.event))


@dataclass(frozen=True)
class SurTree(ExactTree):
    """The largest likelihood, with one hazard ratio a leaf: the objective of SurTree."""

    name: ClassVar[str] = "surtree"

    def _estimator(self) -> OptimalSurvivalTree:
        return OptimalSurvivalTree(objective="log_likelihood")


@dataclass(frozen=True)
class OSST(ExactTree):
    """The least integrated Brier score, with one Kaplan-Meier curve a leaf: the objective of OSST.

    Args:
        n_buckets: buckets of equal width that times are put in for the search (not for the curves), or None
            for all observed times.
    """

    name: ClassVar[str] = "osst"

    n_buckets: int | None = 50

    def _estimator(self) -> OptimalSurvivalTree:
        return OptimalSurvivalTree(objective="integrated_brier", n_buckets=self.n_buckets)
