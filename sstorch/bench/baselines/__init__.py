"""Models to compare with, behind one interface: from Kaplan-Meier to neural networks and trees of R."""

from __future__ import annotations

from typing import Any

from sstorch.bench.baselines import models, neural
from sstorch.bench.baselines.base import Baseline
from sstorch.checks import names_text, nearest_text
from sstorch.exceptions import ConfigError

_CLASSES: tuple[type[Baseline], ...] = (*models.BASELINES, *neural.BASELINES)
BASELINES = {made.name: made for made in _CLASSES}


def make_baseline(name: str, **options: Any) -> Baseline:
    """Make a baseline by name.

    Args:
        name: one of :data:`BASELINES`.
        options: settings that differ from their defaults: fields of the class. A list counts as a tuple.

    Raises:
        ConfigError: no such baseline or setting.

    >>> make_baseline("sksurv", depth=3)
    LogRankTree(depth=3)
    """
    if name not in BASELINES:
        nearest = nearest_text(name, list(BASELINES))
        raise ConfigError(f"no baseline {name!r}; choose one of {names_text(BASELINES)}.{nearest}")
    try:
        given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
        return BASELINES[name](**given)
    except TypeError as error:
        raise ConfigError(f"the baseline {name!r} has no such setting: {error}") from error
