"""Exact trees in scikit-learn's form."""

from sstorch.exact.estimators.classifier import OptimalTreeClassifier
from sstorch.exact.estimators.search import Search
from sstorch.exact.estimators.survival import OptimalSurvivalTree
from sstorch.exact.estimators.survival_cv import OptimalSurvivalTreeCV
from sstorch.exact.estimators.value_trees import OptimalPolicyTree, OptimalTreeRegressor

__all__ = [
    "OptimalPolicyTree",
    "OptimalSurvivalTree",
    "OptimalSurvivalTreeCV",
    "OptimalTreeClassifier",
    "OptimalTreeRegressor",
    "Search",
]
