"""A fitted tree for another place: who is in which group stays, how long they live is estimated anew."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from sstorch.data import SurvivalData
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.metrics.weights import Weighting, WeightKind, check_weighting
from sstorch.nn import SoftTree
from sstorch.nn.hazards.numeric import minimize_small
from sstorch.soft.fitted import FittedTree

Recalibrate = Literal["intercept", "slope", "baseline"]
# Events for each parameter below which a warning says that there are few.
_EVENTS_EACH = 10


@dataclass(frozen=True)
class Recalibration:
    """What was changed in a tree, and what it has become.

    With g the linear predictor of a leaf, the new one is ``intercept + slope g``.

    Attributes:
        how: ``"intercept"``, ``"slope"`` (both), or ``"baseline"`` (the intercept and every shape parameter).
        rows, events: it was estimated from.
        intercept: what was added to the linear predictor.
        slope: what it was multiplied with.
        shape: what was added to the shape parameters, by name; empty unless ``how="baseline"``.
        intercept_error, slope_error: standard errors, robust to leaves of a wrong family, and for sampling
            weights not dependent on their scale; None where they were not estimated.
        observed_expected: observed events over those expected by the tree, before and after.
        log_likelihood: mean log-likelihood of a row, before and after.
    """

    how: Recalibrate
    rows: int
    events: int
    intercept: float
    slope: float
    shape: Mapping[str, float]
    intercept_error: float | None
    slope_error: float | None
    observed_expected: tuple[float, float]
    log_likelihood: tuple[float, float]

    def __str__(self) -> str:
        def number(value: float, error: float | None) -> str:
            return f"{value:+.3g}" + ("" if error is None else f" (standard error {error:.2g})")

        lines = [
            f"Recalibrated ({self.how}) on {self.rows} rows, {self.events} events; groups as they were",
            f"linear predictor {number(self.intercept, self.intercept_error)}",
        ]
        if self.how == "slope":
            lines[-1] += f", times {number(self.slope, self.slope_error).lstrip('+')}"
        if self.shape:
            lines.append(", ".join(f"{name} {value:+.3g}" for name, value in self.shape.items()))
        before, after = self.observed_expected
        lines.append(f"observed / expected events {before:.3f} before, {after:.3f} after")
        before, after = self.log_likelihood
        lines.append(f"log-likelihood of a row {before:.4f} before, {after:.4f} after")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Its numbers by name, as JSON holds them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild it from :meth:`to_dict`; what an altered state raises is of any kind."""
        pairs = {name: tuple(state[name]) for name in ("observed_expected", "log_likelihood")}
        return cls(**{**state, **pairs})


def recalibrated(
    tree: FittedTree, data: SurvivalData, how: Recalibrate, weights: WeightKind = "sampling"
) -> tuple[SoftTree, Recalibration]:
    """The tree with other leaves, by maximum likelihood of the rows, and what was changed.

    Args:
        tree: trained.
        data: rows of the new place.
        how: see :class:`Recalibration`.
        weights: what the weights of the rows are.

    Raises:
        ConfigError: ``how`` or the kind of weights does not exist, or curves of the leaves can rise.
        DataError: fewer events than parameters, or frequency weights that are no integers.
    """
    if how not in get_args(Recalibrate):
        raise ConfigError(f"how must be one of {', '.join(get_args(Recalibrate))}, got {how!r}")
    module, family = tree.module, tree.module.family
    if family.can_rise:
        raise ConfigError("recalibration needs curves that cannot rise: use leaves with monotone=True")
    n_events, n_shape = int(data.event.sum()), len(family.shape_names)
    weighting = check_weighting(data.sample_weight, len(data), weights)
    n_parameters = {"intercept": 1, "slope": 2, "baseline": 1 + n_shape}[how]
    if n_events < n_parameters:
        raise DataError(
            f"how={how!r} estimates {n_parameters} numbers, and {n_events} of {len(data)} rows have events; "
            "give more rows" + ("" if how == "intercept" else ", or take how='intercept'")
        )
    effective = float(weighting.counts(data.event.astype(np.int64), 2)[1])
    if effective < _EVENTS_EACH * n_parameters:
        warnings.warn(
            f"numbers estimated from {effective:.3g} events: {n_parameters}; "
            f"how={how!r} needs {_EVENTS_EACH} events for each to be reliable",
            DataWarning,
            stacklevel=5,
        )
    loss = _Loss(tree, data, weighting)
    before = torch.zeros(2 + n_shape, dtype=torch.float64)
    before[1] = 1.0
    free = torch.zeros(2 + n_shape, dtype=torch.bool)
    free[{"intercept": slice(0, 1), "slope": slice(0, 2), "baseline": slice(0, None)}[how]] = True
    free[1] = how == "slope"

    def losses(moved: Tensor) -> Tensor:
        return loss(before.masked_scatter(free, moved[0]))[None]

    found = minimize_small(losses, before[None, free], torch.ones(1, dtype=torch.bool))
    after = before.masked_scatter(free, found[0])
    errors: list[float | None] = [None, None]
    if how != "baseline":  # where shapes and intercept can mean the same, they have none
        errors[: found.shape[1]] = loss.errors(before, free, found[0])
    with torch.no_grad():
        ratios = [loss.observed / loss.expected(theta) for theta in (before, after)]
        values = [-float(loss(theta)) - loss.log_unit for theta in (before, after)]
    intercept, slope, *shape = after.tolist()
    report = Recalibration(
        how,
        len(data),
        n_events,
        intercept,
        slope,
        dict(zip(family.shape_names, shape, strict=True)) if how == "baseline" else {},
        errors[0],
        errors[1],
        (ratios[0], ratios[1]),
        (values[0], values[1]),
    )
    return _changed(module, after), report


class _Loss:
    """Mean negative log-likelihood of rows with a linear predictor a + b g and shapes moved by d.

    Args:
        tree: trained.
        data: the rows.
        weighting: their weights.
    """

    def __init__(self, tree: FittedTree, data: SurvivalData, weighting: Weighting) -> None:
        module = copy.deepcopy(tree.module).double().cpu()
        self._family, self._mixture = module.family, tree.prediction == "mixture"
        x = torch.as_tensor(tree.preprocessor.transform(data.frame))
        with torch.no_grad():
            log_p, linear, shape = module.leaf_scores(x, tree.prediction)
        self._log_p, self._linear, self._shape = log_p, linear, shape
        scale = float(module.log_time_scale)
        self._log_time = torch.as_tensor(data.time).log()[:, None] - scale
        self._event = torch.as_tensor(data.event)[:, None].double()
        total = float(data.sample_weight.sum())
        self._weight = torch.as_tensor(data.sample_weight) / total
        # A row's part of a mean score. A frequency weight is so many independent rows, a sampling weight one.
        self._influence = self._weight
        if not weighting.robust and weighting.values is not None:
            self._influence = torch.as_tensor(weighting.values).sqrt() / total
        self._subject = None if data.person is None else torch.as_tensor(data.person)
        late = bool(data.entry.any())
        self._log_entry = torch.as_tensor(data.entry).log()[:, None] - scale if late else None
        self.observed = float((self._weight * self._event[:, 0]).sum())
        # Hazards are per unit of model time: what the log-likelihood in original units has less.
        self.log_unit = scale * self.observed

    def __call__(self, theta: Tensor) -> Tensor:
        return (self._weight * self._rows(theta)).sum()

    def errors(self, before: Tensor, free: Tensor, found: Tensor) -> list[float]:
        """Standard errors of the free numbers, which hold also where the leaves are not of the right family.

        The sandwich of Huber and White, A^-1 B A^-1, with the Hessian A of the mean loss and the sum B of the
        products of the subjects' weighted scores: sums of w^2 s s' for sampling weights.
        """

        def rows(moved: Tensor) -> Tensor:
            return self._rows(before.masked_scatter(free, moved))

        scores = torch.autograd.functional.jacobian(rows, found)
        scores = self._influence[:, None] * scores
        if self._subject is not None:
            sums = scores.new_zeros(int(self._subject.max()) + 1, scores.shape[1])
            scores = sums.index_add(0, self._subject, scores)
        hessian = torch.autograd.functional.hessian(lambda moved: (self._weight * rows(moved)).sum(), found)
        inverse = torch.linalg.inv(hessian)
        return (inverse @ scores.mT @ scores @ inverse).diagonal().sqrt().tolist()  # type: ignore[no-any-return]

    def _rows(self, theta: Tensor) -> Tensor:
        """Negative log-likelihood of each row, in model units."""
        linear, shape = self._moved(theta)
        if not self._mixture:
            rows = self._family.loss(self._log_time, self._event, linear, shape, self._log_entry)
            return rows.reshape(-1)
        rows = -torch.logsumexp(
            self._log_p - self._family.loss(self._log_time, self._event, linear, shape), 0
        )
        if self._log_entry is not None:
            rows = rows - self._hazard(self._log_entry, linear, shape)
        return rows.reshape(-1)

    def expected(self, theta: Tensor) -> float:
        """Weighted mean of H(t) - H(entry): events that are expected of a row."""
        linear, shape = self._moved(theta)
        rows = self._hazard(self._log_time, linear, shape)
        if self._log_entry is not None:
            rows = rows - self._hazard(self._log_entry, linear, shape)
        return float((self._weight * rows.reshape(-1)).sum())

    def _hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """H(t) of the rows, 0 at time zero, whose logarithm is infinite."""
        begun = torch.isfinite(log_time)
        each = self._family.cumulative_hazard(log_time.where(begun, torch.zeros(())), linear, shape)
        mixed = -torch.logsumexp(self._log_p - each, 0) if self._mixture else each
        return mixed.where(begun, torch.zeros(()))

    def _moved(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        return theta[0] + theta[1] * self._linear, self._shape + theta[2:]


@torch.no_grad()
def _changed(module: SoftTree, theta: Tensor) -> SoftTree:
    new = copy.deepcopy(module)
    for node in new.topology.leaves:
        leaf = new.leaf(node)
        leaf.slope.mul_(theta[1].to(leaf.slope))
        leaf.intercept.mul_(theta[1].to(leaf.slope)).add_(theta[0].to(leaf.slope))
        leaf.shape.add_(theta[2:].to(leaf.shape))
    return new
