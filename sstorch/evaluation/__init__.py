"""Cross-validation, scores of fitted trees, and the folder a run leaves behind."""

from sstorch.evaluation.cross_validation import CrossValidation, cross_validate, make_folds, split_names
from sstorch.evaluation.run_folder import RunFolder
from sstorch.evaluation.scores import SCORES, score_tree

__all__ = [
    "SCORES",
    "CrossValidation",
    "RunFolder",
    "cross_validate",
    "make_folds",
    "score_tree",
    "split_names",
]
