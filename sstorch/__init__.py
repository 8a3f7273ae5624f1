"""Differentiable survival modelling in PyTorch: soft survival trees, trained as a batch."""

from sstorch import metrics
from sstorch._version import __version__
from sstorch.data import SurvivalData, list_datasets, load_dataset
from sstorch.exact.estimators import (
    OptimalPolicyTree,
    OptimalSurvivalTree,
    OptimalSurvivalTreeCV,
    OptimalTreeClassifier,
    OptimalTreeRegressor,
)
from sstorch.soft import SoftSurvivalTree, SoftSurvivalTreeCV

__all__ = [
    "OptimalPolicyTree",
    "OptimalSurvivalTree",
    "OptimalSurvivalTreeCV",
    "OptimalTreeClassifier",
    "OptimalTreeRegressor",
    "SoftSurvivalTree",
    "SoftSurvivalTreeCV",
    "SurvivalData",
    "__version__",
    "list_datasets",
    "load_dataset",
    "metrics",
]
