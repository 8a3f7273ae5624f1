"""The soft survival tree: estimators, their batch, their search and their reading."""

from sstorch.soft.batch import TrainedBatch, train_batch
from sstorch.soft.competing_risks_tree import CompetingRisksTree
from sstorch.soft.merging import MergedLeaves
from sstorch.soft.rules import Explanation, SimplifiedRules
from sstorch.soft.settings import BatchSettings, Coefficients
from sstorch.soft.split_test import SplitTest
from sstorch.soft.tree import SoftSurvivalTree
from sstorch.soft.tree_cv import SoftSurvivalTreeCV
from sstorch.soft.tree_sample import Band, TreeSample
from sstorch.soft.uncertainty import bootstrap_trees, start_trees

__all__ = [
    "Band",
    "BatchSettings",
    "Coefficients",
    "CompetingRisksTree",
    "Explanation",
    "MergedLeaves",
    "SimplifiedRules",
    "SoftSurvivalTree",
    "SoftSurvivalTreeCV",
    "SplitTest",
    "TrainedBatch",
    "TreeSample",
    "bootstrap_trees",
    "start_trees",
    "train_batch",
]
