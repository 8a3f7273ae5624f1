"""The scikit-learn front."""

from sstorch.estimators.batch import TrainedBatch, train_batch
from sstorch.estimators.settings import BatchSettings
from sstorch.estimators.soft_survival_tree import SoftSurvivalTree

__all__ = ["BatchSettings", "SoftSurvivalTree", "TrainedBatch", "train_batch"]
