"""Cross-validation, scores of fitted trees, and the folder a run leaves behind."""

from sstorch.bench.baselines import BASELINES, Baseline, make_baseline
from sstorch.bench.cross_validation import (
    CrossValidation,
    FairnessPath,
    cross_validate,
    fairness_path,
    make_folds,
    pareto_front,
    split_names,
)
from sstorch.bench.flat import soft_tree
from sstorch.bench.run_folder import RunFolder
from sstorch.bench.scores import (
    CURVE_SCORES,
    DISPARITIES,
    GROUP_SCORES,
    SCORES,
    leaf_table,
    score_fairness,
    score_predictor,
    score_tree,
)
from sstorch.bench.store import ResultStore
from sstorch.bench.study_model import (
    BaselineModel,
    SoftTreeCVModel,
    SoftTreeModel,
    StudyModel,
    baseline_models,
    soft_search_models,
    soft_tree_models,
)

__all__ = [
    "BASELINES",
    "CURVE_SCORES",
    "DISPARITIES",
    "GROUP_SCORES",
    "SCORES",
    "Baseline",
    "BaselineModel",
    "CrossValidation",
    "FairnessPath",
    "ResultStore",
    "RunFolder",
    "SoftTreeCVModel",
    "SoftTreeModel",
    "StudyModel",
    "baseline_models",
    "cross_validate",
    "fairness_path",
    "leaf_table",
    "make_baseline",
    "make_folds",
    "pareto_front",
    "score_fairness",
    "score_predictor",
    "score_tree",
    "soft_search_models",
    "soft_tree",
    "soft_tree_models",
    "split_names",
]
