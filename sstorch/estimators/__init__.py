"""The scikit-learn front."""

from sstorch.estimators.batch import BatchSettings, TrainedBatch, train_batch
from sstorch.estimators.soft_survival_tree import SoftSurvivalTree

__all__ = ["BatchSettings", "SoftSurvivalTree", "TrainedBatch", "train_batch"]
