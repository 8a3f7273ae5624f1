"""The scikit-learn front."""

from sstorch.estimators.batch import TrainedBatch, train_batch
from sstorch.estimators.optimal_survival_tree import OptimalSurvivalTree
from sstorch.estimators.optimal_survival_tree_cv import OptimalSurvivalTreeCV
from sstorch.estimators.settings import BatchSettings, Coefficients
from sstorch.estimators.soft_survival_tree import SoftSurvivalTree
from sstorch.estimators.soft_survival_tree_cv import SoftSurvivalTreeCV

__all__ = [
    "BatchSettings",
    "Coefficients",
    "OptimalSurvivalTree",
    "OptimalSurvivalTreeCV",
    "SoftSurvivalTree",
    "SoftSurvivalTreeCV",
    "TrainedBatch",
    "train_batch",
]
