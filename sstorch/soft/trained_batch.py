"""Trained trees of all splits, settings and starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.data import Preprocessor
from sstorch.exceptions import TrainingError
from sstorch.fitted import FittedTree
from sstorch.inference import FitCovariance
from sstorch.monitoring import History
from sstorch.nn import Prediction, SoftTree
from sstorch.soft.group_choice import GroupChoice
from sstorch.soft.settings import Coefficients


@dataclass(frozen=True)
class TrainedBatch:
    """Trained trees of all splits, coefficients and starts.

    Attributes:
        trees: R = n_splits x n_settings x n_starts problems per cause, ordered by split, then by
            coefficients. Gates are shared by all causes. A single entry without competing causes.
        objective: E of each problem on its training rows, summed over competing causes, shape (R,).
        criterion: criterion for the choice of the start, shape (R,): E, or the loss on held-out rows.
        histories: records of the run of each cause.
        preprocessors: fitted on the rows of each split, for all causes.
        event_times: distinct event times of each split, increasing.
        n_starts: problems per split and coefficients.
        coefficients: coefficients of the penalties.
        choices: choice of groups of each problem with its evidence, if penalties are estimated.
        covariance: covariance of the coefficients of the last split, if defined.
        regressions: trees of depth 0 per cause, one per split, for comparison with groups; empty if there are
            none or other rows placed the gates.
        converged: False for a problem whose leaves, those of a cause, did not reach their optimum, boolean
            (R,). Always True if gates are trained or rows held out.
    """

    trees: Mapping[str, SoftTree]
    objective: Tensor
    criterion: Tensor
    histories: Mapping[str, History]
    preprocessors: tuple[Preprocessor, ...]
    event_times: tuple[FloatArray, ...]
    n_starts: int
    converged: Tensor
    coefficients: tuple[Coefficients, ...] = (Coefficients(),)
    choices: tuple[GroupChoice, ...] = ()
    covariance: FitCovariance = field(default_factory=FitCovariance)
    regressions: Mapping[str, SoftTree] = field(default_factory=dict)

    @property
    def tree(self) -> SoftTree:
        """The problems of the only event, or of the first cause."""
        return next(iter(self.trees.values()))

    @property
    def history(self) -> History:
        """Records of the run of the only event, or of the first cause."""
        return next(iter(self.histories.values()))

    @property
    def rhos(self) -> tuple[float, ...]:
        """The coefficient of the fairness penalty at each setting."""
        return tuple(setting.rho for setting in self.coefficients)

    def position(self, split: int, start: int, setting: int = 0) -> int:
        """Problem number of a start of a split, with the coefficients at a position."""
        return (split * len(self.coefficients) + setting) * self.n_starts + start

    def best_start(self, split: int, setting: int = 0) -> int:
        """Start of a split with the lowest criterion, at a position among the coefficients.

        Raises:
            TrainingError: none of the starts has a finite objective.
        """
        first = self.position(split, 0, setting)
        criterion = self.criterion[first : first + self.n_starts]
        if not bool(criterion.isfinite().any()):
            raise TrainingError(
                f"none of the {self.n_starts} starts of split {split} has a finite training objective; "
                "try another leaf, init='random', a larger ridge or dtype='float64'"
            )
        return int(torch.nan_to_num(criterion, nan=torch.inf).argmin())

    def fitted(self, split: int, start: int, setting: int = 0, prediction: Prediction = "hbp") -> FittedTree:
        """The tree of a start of a split, with the coefficients at a position."""
        position = self.position(split, start, setting)
        hazards = {cause: tree.select(position) for cause, tree in self.trees.items()}
        return FittedTree(hazards, self.preprocessors[split], prediction, event_times=self.event_times[split])

    def regression(self, split: int) -> FittedTree:
        """The regression of a split, if there are :attr:`regressions`."""
        hazards = {cause: tree.select(split) for cause, tree in self.regressions.items()}
        return FittedTree(hazards, self.preprocessors[split], event_times=self.event_times[split])
