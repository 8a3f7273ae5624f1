"""Trained trees of all splits, settings and starts, and the covariance of their coefficients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pandas as pd
import torch
from torch import Tensor

from sstorch._types import BoolArray, FloatArray
from sstorch.data import Preprocessor
from sstorch.exceptions import TrainingError
from sstorch.fitted.tree import FittedTree, Prediction
from sstorch.groups.tree import Partition
from sstorch.inference.covariance import FitCovariance, HazardCovariance
from sstorch.inference.hazard_rows import LeafDerivatives
from sstorch.monitoring import History
from sstorch.nn import LeafParameters, SoftTree
from sstorch.objective.rows import counted_weight
from sstorch.reading.scores import Score
from sstorch.soft.design import in_double
from sstorch.soft.estimation import Estimator
from sstorch.soft.group_choice import GroupChoice
from sstorch.soft.problems import Problems, Solved
from sstorch.soft.settings import BatchSettings, Coefficients

# Coefficients of a hazard above which their covariance is not kept.
_MOST_COEFFICIENTS = 1000


@dataclass(frozen=True)
class TrainedBatch:
    """Trained trees of all splits, coefficients and starts.

    Attributes:
        trees: R = n_splits x n_settings x n_starts problems per cause, ordered by split, then by
            coefficients. Gates are shared by all causes. A single entry without competing causes.
        objective: E of each problem on its training rows, summed over competing causes, shape (R,).
        histories: records of the run of each cause.
        preprocessors: fitted on the rows of each split, for all causes.
        event_times: distinct event times of each split, increasing.
        n_starts: problems per split and coefficients.
        coefficients: coefficients of the penalties.
        choices: choice of groups of each problem with its evidence, if penalties are estimated.
        covariance: covariance of the coefficients of the last split, if defined.
        converged: False for a problem whose leaves, those of a cause, did not reach their optimum, boolean
            (R,). Always True if gates are trained.
    """

    trees: Mapping[str, SoftTree]
    objective: Tensor
    histories: Mapping[str, History]
    preprocessors: tuple[Preprocessor, ...]
    event_times: tuple[FloatArray, ...]
    n_starts: int
    converged: Tensor
    coefficients: tuple[Coefficients, ...] = (Coefficients(),)
    choices: tuple[GroupChoice, ...] = ()
    covariance: FitCovariance = field(default_factory=FitCovariance)

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
        """Start of a split with the lowest objective, at a position among the coefficients.

        Raises:
            TrainingError: none of the starts has a finite objective.
        """
        first = self.position(split, 0, setting)
        objective = self.objective[first : first + self.n_starts]
        if not bool(objective.isfinite().any()):
            raise TrainingError(
                f"none of the {self.n_starts} starts of split {split} has a finite training objective; "
                "try another leaf, init='random', a larger ridge or dtype='float64'"
            )
        return int(torch.nan_to_num(objective, nan=torch.inf).argmin())

    def fitted(self, split: int, start: int, setting: int = 0, prediction: Prediction = "hbp") -> FittedTree:
        """The tree of a start of a split, with the coefficients at a position."""
        position = self.position(split, start, setting)
        hazards = {cause: tree.select(position) for cause, tree in self.trees.items()}
        return FittedTree(hazards, self.preprocessors[split], prediction, event_times=self.event_times[split])

    def best_trees(self, prediction: Prediction = "hbp") -> Iterator[FittedTree]:
        """The tree of the best start of every split, at the first coefficients."""
        for split in range(len(self.preprocessors)):
            yield self.fitted(split, self.best_start(split), prediction=prediction)


def fit_covariance(
    causes: Mapping[str, Problems],
    settings: BatchSettings,
    estimator: Estimator | None,
    solved: Mapping[str, Solved],
) -> FitCovariance:
    """Of the coefficients of the last split: by the evidence, or of a single problem by its Hessian."""
    n_problems = next(iter(causes.values())).tree.n_problems
    sizes = [each.tree.leaf_parameters().flatten().shape[-1] for each in causes.values()]
    reason = ""
    if settings.depth and estimator is None:
        reason = "gates, or penalties on differences of groups, are given or trained"
    elif n_problems > (1 if estimator is None else len(estimator.splits)):
        reason = "it was trained as one of several"
    elif (max(sizes) if estimator is None else estimator.n_coefficients) > _MOST_COEFFICIENTS:
        reason = f"it has more than {_MOST_COEFFICIENTS} coefficients"
    elif estimator is not None and estimator.has_many_columns:
        reason = "with many columns, shape parameters are held"
    elif estimator is None and settings.restricted:
        reason = "it is restricted by monotone, fairness or custom penalties"
    if reason:
        return FitCovariance(reason=reason)
    if estimator is not None:
        return FitCovariance(estimator.covariances())
    hazards = {}
    for name, each in causes.items():
        parameters = each.tree.select(0).leaf_parameters()
        leaves = LeafParameters(*(part.detach().double() for part in vars(parameters).values()))
        sample, family = in_double(each.sample, each.tree.family)
        weight = counted_weight(sample)
        leaf = torch.zeros(sample.weight.shape[1], dtype=torch.long, device=weight.device)
        information = LeafDerivatives(family, leaves, leaf, sample, weight).information()
        if solved:
            own = solved[name]
            information = own.map.mT @ information @ own.map
            hazards[name] = HazardCovariance.of_information(own.theta, information, own.precision, own.map)
            continue
        # Penalties are added to the mean loss; the covariance counts rows.
        count = weight.sum() / sample.loss_weight.sum()
        curvature = count * each.objective.leaf_curvature(each.tree.leaf_parameters()).detach()[0, 0].double()
        size, p = len(curvature), each.tree.in_features
        order = torch.tensor([p, *range(p), *range(p + 1, size)])  # the intercept first
        theta, map = leaves.flatten()[0].cpu()[order], torch.eye(size, dtype=torch.float64)[:, order]
        information = information.cpu()[order][:, order]
        hazards[name] = HazardCovariance.of_information(theta, information, curvature.cpu()[order], map)
    return FitCovariance(hazards)


def partition(tree: FittedTree, frame: pd.DataFrame) -> Partition:
    """Groups that a tree makes of rows that were read, and the columns of its gates."""
    topology, leaf = tree.module.topology, tree.leaf(tree.encode(frame))

    def columns(node: int) -> BoolArray:
        score = Score.of_node(tree, node)
        return (score.effect_by_column(tree.preprocessor.schema) != 0).to_numpy()

    return Partition(tree.group_numbers[leaf], leaf, topology.depth, tuple(topology.branches), columns)
