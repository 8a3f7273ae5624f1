"""Cross-validation, studies of many models, reference models, and scores of fairness."""

from sstorch.bench.baselines import make_baseline
from sstorch.bench.cross_validation import cross_validate
from sstorch.bench.fairness import fairness_path
from sstorch.bench.scores import leaf_table, score_fairness
from sstorch.bench.store import ResultStore

__all__ = [
    "ResultStore",
    "cross_validate",
    "fairness_path",
    "leaf_table",
    "make_baseline",
    "score_fairness",
]
