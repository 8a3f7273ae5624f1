"""Cross-validation, scores of fitted trees, and the folder a run leaves behind."""

from sstorch.bench.baselines import Baseline, make_baseline
from sstorch.bench.cross_validation import CrossValidation, cross_validate, make_folds
from sstorch.bench.fairness import FairnessPath, fairness_path, pareto_front
from sstorch.bench.scores import leaf_table, score_fairness, score_predictor
from sstorch.bench.store import ResultStore

__all__ = [
    "Baseline",
    "CrossValidation",
    "FairnessPath",
    "ResultStore",
    "cross_validate",
    "fairness_path",
    "leaf_table",
    "make_baseline",
    "make_folds",
    "pareto_front",
    "score_fairness",
    "score_predictor",
]
