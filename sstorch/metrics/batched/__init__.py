"""Metrics on tensors, for validation loops: any device, any leading batch of problems.

Each function is that of the same name in `sstorch.metrics`, with the same definition and options,
for tensors with leading batch dimensions: `time` and `event` are (..., n), `risk` is (..., n), `survival` is
(..., n, n_times), `times` is (n_times,) or (..., n_times), `train` is the pair (time, event), each (...,
n_train). Leading dimensions broadcast, and every result has them: one number a problem.

Rows of weight 0 do not count, so that problems of different sizes fit one batch with padding; training rows
are padded as `train=(time, event, weight)`. Comparisons are made in the dtype that is given, sums in float64.
Brier scores and likelihoods are differentiable in the predictions.
"""

from sstorch.metrics.batched.brier import brier_score, integrated_brier_score
from sstorch.metrics.batched.concordance import (
    concordance_harrell,
    concordance_harrell_risk,
    concordance_uno,
    concordance_uno_risk,
)
from sstorch.metrics.batched.likelihood import log_likelihood

__all__ = [
    "brier_score",
    "concordance_harrell",
    "concordance_harrell_risk",
    "concordance_uno",
    "concordance_uno_risk",
    "integrated_brier_score",
    "log_likelihood",
]
