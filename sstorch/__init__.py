"""Differentiable survival modelling in PyTorch: soft survival trees, trained as a batch."""

from sstorch import metrics
from sstorch._version import __version__
from sstorch.data import SurvivalData, list_datasets, load_dataset
from sstorch.estimators import (
    OptimalSurvivalTree,
    OptimalSurvivalTreeCV,
    SoftSurvivalTree,
    SoftSurvivalTreeCV,
)

__all__ = [
    "OptimalSurvivalTree",
    "OptimalSurvivalTreeCV",
    "SoftSurvivalTree",
    "SoftSurvivalTreeCV",
    "SurvivalData",
    "__version__",
    "list_datasets",
    "load_dataset",
    "metrics",
]
