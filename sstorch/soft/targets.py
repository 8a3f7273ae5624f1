"""Targets that gates are distilled from: what regressions predict for rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from sstorch.base import median_event_time
from sstorch.data import SurvivalData
from sstorch.nn import SoftTree
from sstorch.objective import Sample
from sstorch.optim.starts.distilled import log_hazard_targets, predicted_log_time


def log_hazards(
    trees: Mapping[str, SoftTree], samples: Mapping[str, Sample], splits: Sequence[SurvivalData]
) -> Tensor:
    """Log cumulative hazard of rows and causes, weighted by events, at the median event time, (R, J, M)."""
    medians = torch.tensor([median_event_time(data) for data in splits], dtype=torch.float64).log()
    each = [
        log_hazard_targets(
            tree, samples[name], medians.repeat_interleave(torch.tensor(samples[name].x.counts))
        )
        for name, tree in trees.items()
    ]
    return torch.stack(each, dim=1)


def regression_targets(
    regressions: Mapping[str, SoftTree], samples: Mapping[str, Sample], splits: Sequence[SurvivalData]
) -> Tensor:
    """Targets of distilled gates, (R, J, M): predicted log time for one event, or :func:`log_hazards`."""
    if len(regressions) == 1:
        ((name, regression),) = regressions.items()
        return predicted_log_time(regression, samples[name])[:, None]
    return log_hazards(regressions, samples, splits)
