"""Exact trees in scikit-learn's form."""

from sstorch.exact.estimators.base import Search as Search
from sstorch.exact.estimators.classifier import OptimalTreeClassifier as OptimalTreeClassifier
from sstorch.exact.estimators.survival import OptimalSurvivalTree as OptimalSurvivalTree
from sstorch.exact.estimators.survival import OptimalSurvivalTreeCV as OptimalSurvivalTreeCV
from sstorch.exact.estimators.values import OptimalPolicyTree as OptimalPolicyTree
from sstorch.exact.estimators.values import OptimalTreeRegressor as OptimalTreeRegressor
