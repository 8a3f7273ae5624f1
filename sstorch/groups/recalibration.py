"""What functions of groups need of a fitted tree, soft or exact; its recalibration to another population."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeVar, get_args

import numpy as np
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_choice, check_tree
from sstorch.data import SurvivalData
from sstorch.data.surv import OutcomeType
from sstorch.deploy.exports import Deployable
from sstorch.exceptions import DataError, warn
from sstorch.metrics.weights import Weighting

Recalibrate = Literal["intercept", "slope", "baseline"]
# Results about a tree's groups, which another tree does not have.
RESULTS = ("group_validation_", "stability_")


class Partition(NamedTuple):
    """Groups that a tree makes of rows."""

    leaf: IntArray  # number of the group of each row, 1 .. L, (n,)
    columns: frozenset[str]  # those that its gates use


# From rows that were read to the groups that a tree makes of them.
PartitionOf = Callable[[pd.DataFrame], Partition]


class SurvivalTree(Deployable, Protocol):
    """A fitted estimator whose leaves are groups of rows."""

    outcome_type_: OutcomeType
    time_varying_: bool

    @property
    def causes_(self) -> tuple[str, ...]: ...  # noqa: D102

    @property
    def time_unit_(self) -> str | None: ...  # noqa: D102

    def summary(self) -> str: ...  # noqa: D102

    def falling_curves(self, X: object, times: FloatArray) -> FloatArray: ...  # noqa: D102

    @property
    def _seed(self) -> int: ...

    @property
    def _can_divide(self) -> bool: ...  # whether the parameters allow more than one group

    @property
    def _chosen(self) -> Any: ...  # the estimator that holds the results, of a search that of its tree

    # Rows of positive weight with an outcome of the type of the training outcome.
    def _rows(self, X: object, y: object, sample_weight: object = None) -> SurvivalData: ...

    # Survival of rows that were read, (n, n_times); of K causes their incidences, (n, K, n_times).
    def _predicted(self, frame: pd.DataFrame, times: FloatArray) -> FloatArray: ...

    def _group_rules(self, n_terms: int | None) -> dict[int, str]: ...  # by number, of groups with rows

    def _partition(self, frame: pd.DataFrame) -> Partition: ...

    # Groups by trees with the parameters of the estimator, trained on each of some splits.
    def _trained(self, data: SurvivalData, splits: list[SurvivalData]) -> list[PartitionOf]: ...

    def _recalibrated(self, data: SurvivalData, how: Recalibrate) -> Self: ...  # a copy


Tree = TypeVar("Tree", bound=SurvivalTree)
# Events for each parameter below which a warning is given.
_EVENTS_EACH = 10


def recalibrate(
    tree: Tree, X: object, y: object, how: Recalibrate = "intercept", sample_weight: object = None
) -> Tree:
    """Recalibrate a fitted tree to another population: groups are unchanged, their survival is re-estimated.

    Soft trees: maximum likelihood, with the same change in all leaves. ``"intercept"`` adds a constant to the
    linear predictors, ``"slope"`` also multiplies them by a factor, ``"baseline"`` adds constants to the
    intercept and to every shape parameter.

    Exact trees: ``"intercept"`` multiplies the cumulative hazards of all leaves by the ratio of observed to
    expected events (S becomes S^c), the maximum likelihood estimate of a Poisson model; ``"baseline"``
    estimates the curves of the leaves on the new rows; ``"slope"`` is not supported.

    The new tree reports the changes in ``recalibration_`` and ``summary()`` and saves them; its tables count
    the new rows. With competing causes each cause-specific hazard is recalibrated with other causes censored,
    and ``recalibration_`` has one report per cause.

    Args:
        tree: fitted soft or exact tree, or a search (its chosen tree is used); it is not changed.
        X: rows of the new population, with the columns of the tree.
        y: outcome of the rows, as in ``fit``.
        how: see above.
        sample_weight: (n,), >= 0. Standard errors are of the sandwich with w^2, independent of their scale.

    Raises:
        ConfigError: ``how`` is unknown, or ``"slope"`` of an exact tree.
        DataError: the rows are invalid, have fewer events than parameters or, for ``"baseline"`` of an exact
            tree, a leaf without events.

    References:
        Steyerberg (2019), Clinical Prediction Models, 2nd edition, chapter 20; Janssen et al. (2008), Journal
        of Clinical Epidemiology 61, 76-86, on updating methods.

    >>> from sstorch import PrognosticTree, load_dataset, recalibrate
    >>> data = load_dataset("gbsg2")
    >>> tree = PrognosticTree().fit(data.frame, (data.time, data.event))
    >>> elsewhere = recalibrate(tree, data.frame, (2 * data.time, data.event))  # all live twice as long
    >>> print(elsewhere.recalibration_)
    Recalibrated (intercept) on 686 rows, 299 events; groups as they were
    linear predictor -1.1 (standard error 0.07...)
    observed / expected events 0.49... before, 1.03... after
    log-likelihood of a row -4.16... before, -4.00... after
    """
    check_tree(tree, "_recalibrated")
    check_choice(how, "how", get_args(Recalibrate))
    return tree._recalibrated(tree._rows(X, y, sample_weight), how)


@dataclass(frozen=True)
class Recalibration:
    """Recalibration of a fitted tree: coefficients and fit before and after.

    With g the linear predictor of a leaf, in an exact tree its log hazard ratio, the recalibrated value is
    ``intercept + slope g``.

    Attributes:
        how: as in :func:`~sstorch.recalibrate`.
        rows, events: numbers used for the estimates.
        intercept, slope: None if curves were estimated.
        shape: constants added to the shape parameters, by name; empty unless ``how="baseline"``.
        intercept_error, slope_error: standard errors, robust to a wrong family; None if not estimated.
        observed_expected: observed / expected events, before and after; None if no events are expected.
        log_likelihood: mean log-likelihood per row, before and after; None for exact trees, since their
            curves are step functions.
    """

    how: Recalibrate
    rows: int
    events: int
    intercept: float | None
    slope: float | None
    shape: Mapping[str, float]
    intercept_error: float | None
    slope_error: float | None
    observed_expected: tuple[float | None, float | None]
    log_likelihood: tuple[float, float] | None

    def __str__(self) -> str:
        def number(value: float, error: float | None) -> str:
            return f"{value:+.3g}" + ("" if error is None else f" (standard error {error:.2g})")

        lines = [f"Recalibrated ({self.how}) on {self.rows} rows, {self.events} events; groups as they were"]
        if self.intercept is None or self.slope is None:
            lines.append("curves of the leaves estimated from these rows")
        else:
            lines.append(f"linear predictor {number(self.intercept, self.intercept_error)}")
            if self.how == "slope":
                lines[-1] += f", times {number(self.slope, self.slope_error).lstrip('+')}"
        if self.shape:
            lines.append(", ".join(f"{name} {value:+.3g}" for name, value in self.shape.items()))
        before, after = ("-" if ratio is None else f"{ratio:.3f}" for ratio in self.observed_expected)
        lines.append(f"observed / expected events {before} before, {after} after")
        if self.log_likelihood is not None:
            first, last = self.log_likelihood
            lines.append(f"log-likelihood of a row {first:.4f} before, {last:.4f} after")
        return "\n".join(lines)


def recalibrations(tree: object) -> dict[str, Recalibration]:
    """Recalibrations of a fitted tree by cause, ``""`` for one event; none if it was not recalibrated."""
    found = vars(tree).get("recalibration_", {})
    return {"": found} if isinstance(found, Recalibration) else dict(found)


def recalibration_texts(tree: object) -> list[str]:
    """Text of each recalibration of a fitted tree, after the name of the cause with competing causes."""
    return [f"{name}: {report}" if name else str(report) for name, report in recalibrations(tree).items()]


def check_events(event: BoolArray, weighting: Weighting, how: str, n_parameters: int) -> int:
    """Number of events, at least that of the parameters; a DataWarning if the effective number is small."""
    n_events = int(event.sum())
    if n_events < n_parameters:
        raise DataError(
            f"how={how!r} needs at least as many events as parameters, {n_parameters}, and {n_events} of "
            f"{len(event)} rows have events; "
            "give more rows" + ("" if how == "intercept" else ", or take how='intercept'")
        )
    effective = float(weighting.counts(event.astype(np.int64), 2)[1])
    if effective < _EVENTS_EACH * n_parameters:
        warn(
            f"numbers estimated from {effective:.3g} events: {n_parameters}; "
            f"how={how!r} needs {_EVENTS_EACH} events for each to be reliable"
        )
    return n_events
