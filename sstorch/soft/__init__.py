"""Regressions, prognostic and soft survival trees, estimators of torch modules, and what goes with them.

The estimators and their parameters are names of :mod:`sstorch`.
"""

from sstorch.soft.batch import TrainedBatch, train_batch
from sstorch.soft.settings import BatchSettings, Coefficients

__all__ = [
    "BatchSettings",
    "Coefficients",
    "TrainedBatch",
    "train_batch",
]
