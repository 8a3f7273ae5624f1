"""Models that a search compares: regressions, distilled groups, gates trained on outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from sstorch.data import SurvivalData, as_surv
from sstorch.exceptions import ConfigError
from sstorch.optim import Joint
from sstorch.soft.batch import check_causes
from sstorch.soft.estimation import PREDICTOR, RESIDUALS
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.parameters import CURVED, Columns, GatePenalties
from sstorch.soft.prognostic import PrognosticTree
from sstorch.soft.regression import SurvivalRegression
from sstorch.soft.search import is_grouped
from sstorch.soft.settings import AUTO, Leaf
from sstorch.soft.tree import SoftSurvivalTree

# One leaf; gates distilled from it, which stay; gates that training moves.
Family = Literal["regression", "groups", "gates"]
FAMILIES: tuple[Family, ...] = get_args(Family)
KINDS: tuple[type[SoftEstimator], ...] = (SurvivalRegression, PrognosticTree, SoftSurvivalTree)

# Gates are moved until a few iterations no longer improve the loss of rows that are held out, which makes up
# for the small penalty on their weights.
_TRAINER = Joint(holdout=0.1, lap=15)
_PENALTIES = GatePenalties(gate_ridge=1e-5)
_STARTS = 4
# Events from which on a tenth of them can judge gates.
_MIN_EVENTS = 100
# Leaf of further gates where times are grouped.
_GROUPED: Leaf = "logistic_hazard"


def default_candidates(
    y: object = None, leaf: Leaf = AUTO, columns: Columns = CURVED, random_state: int = 0
) -> dict[str, SoftEstimator]:
    """Default candidates of :class:`~sstorch.PrognosticTreeCV`, the simplest first.

    A regression of odds and of hazards; groups that summarise the regression, and groups that explain what it
    misses; gates trained on the outcomes, from distilled and random starts, with early stopping by the
    likelihood of a tenth of the rows.

    Args:
        y: outcome as in ``fit``, which can exclude candidates: gates trained on the outcomes with competing
            causes or fewer than 100 events; gates with the leaf ``"logistic_hazard"`` with more than twelve
            distinct event times or a given leaf. None for all candidates.
        leaf: hazard family; ``"auto"`` is the default of each class.
        columns: encodings of the columns in leaves and gates.
        random_state: seed of starts, an integer.

    Raises:
        DataError: ``y`` is invalid.

    >>> from sstorch import load_dataset
    >>> list(default_candidates(load_dataset("gbsg2").y))  # doctest: +NORMALIZE_WHITESPACE
    ['regression', 'regression, hazards', 'groups, predictor', 'groups, residuals',
     'gates, depth 1, distilled', 'gates, depth 1', 'gates, depth 2']
    """
    outcome = None if y is None else as_surv(y)
    shared: dict[str, Any] = {"leaf": leaf, "columns": columns, "random_state": random_state}
    found: dict[str, SoftEstimator] = {"regression": SurvivalRegression(**shared)}
    if leaf == AUTO:
        found["regression, hazards"] = SurvivalRegression(**shared | {"leaf": "spline_ph"})
    found["groups, predictor"] = PrognosticTree(teacher=PREDICTOR, **shared)
    found["groups, residuals"] = PrognosticTree(teacher=RESIDUALS, **shared)
    if outcome is not None and (outcome.causes is not None or outcome.n_events < _MIN_EVENTS):
        return found
    shared |= {"trainer": _TRAINER, "penalties": _PENALTIES, "n_starts": _STARTS}
    found["gates, depth 1, distilled"] = SoftSurvivalTree(1, init="distilled", **shared)
    for depth in (1, 2):
        found[f"gates, depth {depth}"] = SoftSurvivalTree(depth, init="random", **shared)
    if leaf == AUTO and (outcome is None or is_grouped(outcome)):
        for depth in (2, 3):
            name = f"gates, depth {depth}, grouped times"
            found[name] = SoftSurvivalTree(depth, init="random", **shared | {"leaf": _GROUPED})
    return found


def family_of(estimator: SoftEstimator) -> Family:
    """The family of a candidate."""
    return next(name for name, kind in zip(FAMILIES, KINDS, strict=True) if isinstance(estimator, kind))


def checked(candidates: Mapping[str, SoftEstimator], data: SurvivalData | None) -> None:
    """Raise ConfigError, before any training, if a candidate cannot be trained on such data."""
    if not isinstance(candidates, Mapping) or not candidates:
        raise ConfigError(f"candidates must be estimators by name, got {candidates!r}")
    for name, each in candidates.items():
        if not isinstance(each, KINDS):
            known = ", ".join(kind.__name__ for kind in KINDS)
            raise ConfigError(f"candidate {name!r} must be one of {known}, got {each!r}")
        try:
            settings = each._batch_settings()
            if data is not None:
                check_causes(data, settings)
                settings.check_columns(data)
        except ConfigError as error:
            raise ConfigError(f"candidate {name!r}: {error}") from error
