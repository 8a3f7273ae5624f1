"""The soft survival tree: estimators, their batch, their search and their reading."""

from sstorch.soft.batch import TrainedBatch, train_batch
from sstorch.soft.competing_group_validation import CauseGroupValidation, CompetingGroupValidation
from sstorch.soft.competing_risks_tree import CompetingRisksTree
from sstorch.soft.group_validation import GroupValidation
from sstorch.soft.groups import Stability
from sstorch.soft.merging import MergedLeaves
from sstorch.soft.recalibration import Recalibration
from sstorch.soft.rules import Explanation, SimplifiedRules
from sstorch.soft.settings import BatchSettings, Coefficients
from sstorch.soft.split_test import SplitTest
from sstorch.soft.tree import SoftSurvivalTree, recalibrate
from sstorch.soft.tree_cv import SoftSurvivalTreeCV
from sstorch.soft.tree_sample import Band, TreeSample
from sstorch.soft.uncertainty import bootstrap_trees, start_trees

__all__ = [
    "Band",
    "BatchSettings",
    "CauseGroupValidation",
    "Coefficients",
    "CompetingGroupValidation",
    "CompetingRisksTree",
    "Explanation",
    "GroupValidation",
    "MergedLeaves",
    "Recalibration",
    "SimplifiedRules",
    "SoftSurvivalTree",
    "SoftSurvivalTreeCV",
    "SplitTest",
    "Stability",
    "TrainedBatch",
    "TreeSample",
    "bootstrap_trees",
    "recalibrate",
    "start_trees",
    "train_batch",
]
