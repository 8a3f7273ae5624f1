"""The scikit-learn front."""

from sstorch.estimators.batch import TrainedBatch, train_batch
from sstorch.estimators.conformal import ConformalLowerBound
from sstorch.estimators.explanation import Explanation
from sstorch.estimators.optimal_policy_tree import OptimalPolicyTree
from sstorch.estimators.optimal_survival_tree import OptimalSurvivalTree
from sstorch.estimators.optimal_survival_tree_cv import OptimalSurvivalTreeCV
from sstorch.estimators.optimal_tree_classifier import OptimalTreeClassifier
from sstorch.estimators.optimal_tree_regressor import OptimalTreeRegressor
from sstorch.estimators.settings import BatchSettings, Coefficients
from sstorch.estimators.simplification import SimplifiedRules
from sstorch.estimators.soft_survival_tree import SoftSurvivalTree
from sstorch.estimators.soft_survival_tree_cv import SoftSurvivalTreeCV
from sstorch.estimators.tree_sample import Band, TreeSample, bootstrap_trees, start_trees

__all__ = [
    "Band",
    "BatchSettings",
    "Coefficients",
    "ConformalLowerBound",
    "Explanation",
    "OptimalPolicyTree",
    "OptimalSurvivalTree",
    "OptimalSurvivalTreeCV",
    "OptimalTreeClassifier",
    "OptimalTreeRegressor",
    "SimplifiedRules",
    "SoftSurvivalTree",
    "SoftSurvivalTreeCV",
    "TrainedBatch",
    "TreeSample",
    "bootstrap_trees",
    "start_trees",
    "train_batch",
]
