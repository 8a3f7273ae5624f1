"""Regressions, prognostic and soft survival trees, estimators of torch modules, and what goes with them."""

from sstorch.soft.batch import train_batch
from sstorch.soft.estimator import bootstrap_trees
from sstorch.soft.parameters import Columns, GatePenalties, GroupPenalties, Penalties
from sstorch.soft.prognostic import PrognosticTree
from sstorch.soft.regression import SurvivalRegression
from sstorch.soft.settings import BatchSettings, Coefficients
from sstorch.soft.torch_survival import TorchSurvival
from sstorch.soft.trained_batch import Band, TrainedBatch, TreeSample
from sstorch.soft.tree import SoftSurvivalTree

__all__ = [
    "Band",
    "BatchSettings",
    "Coefficients",
    "Columns",
    "GatePenalties",
    "GroupPenalties",
    "Penalties",
    "PrognosticTree",
    "SoftSurvivalTree",
    "SurvivalRegression",
    "TorchSurvival",
    "TrainedBatch",
    "TreeSample",
    "bootstrap_trees",
    "train_batch",
]
