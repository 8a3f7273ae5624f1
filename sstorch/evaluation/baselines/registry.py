"""The baselines by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from sstorch.data.wording import names_text, nearest_text
from sstorch.evaluation.baselines.accelerated_failure_time import LogLogisticAFT, WeibullAFT
from sstorch.evaluation.baselines.base import Baseline
from sstorch.evaluation.baselines.cox import Cox
from sstorch.evaluation.baselines.kaplan_meier import KaplanMeier
from sstorch.evaluation.baselines.scikit_survival import GradientBoosting, LogRankTree, RandomForest
from sstorch.exceptions import ConfigError

_CLASSES: tuple[type[Baseline], ...] = (
    KaplanMeier,
    Cox,
    WeibullAFT,
    LogLogisticAFT,
    LogRankTree,
    RandomForest,
    GradientBoosting,
)

BASELINES: Mapping[str, type[Baseline]] = MappingProxyType({c.name: c for c in _CLASSES})


def make_baseline(name: str, **options: Any) -> Baseline:
    """Make a baseline by name.

    Args:
        name: one of :data:`BASELINES`.
        options: settings that differ from their defaults: fields of the class.

    Raises:
        ConfigError: no such baseline, setting or value.

    >>> make_baseline("sksurv", depth=3).settings()
    {'depth': 3}
    """
    if name not in BASELINES:
        nearest = nearest_text(name, list(BASELINES))
        raise ConfigError(f"no baseline {name!r}; choose one of {names_text(BASELINES)}.{nearest}")
    known = [f.name for f in fields(BASELINES[name])]
    for option in options:
        if option not in known:
            has = f"it has {names_text(known)}" if known else "it has none"
            raise ConfigError(f"the baseline {name!r} has no setting {option!r}; {has}")
    return BASELINES[name](**options)
