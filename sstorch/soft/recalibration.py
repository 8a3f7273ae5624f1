"""Recalibration of the leaves of a soft tree by maximum likelihood."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sstorch.data import SurvivalData
from sstorch.exceptions import ConfigError
from sstorch.fitted import FittedTree
from sstorch.fitted.model import EVENT
from sstorch.groups.recalibration import Recalibration, check_events
from sstorch.groups.tree import Recalibrate
from sstorch.metrics.weights import check_weighting, covariance_of
from sstorch.newton import Gaussian, Smooth, newton
from sstorch.newton.minimize import Optimum
from sstorch.nn import SoftTree, SurvivalDistribution

# Of the mean loss of a row: the gain of the last step.
_TOLERANCE = 1e-16


def recalibrated(tree: FittedTree, data: SurvivalData, how: Recalibrate) -> tuple[SoftTree, Recalibration]:
    """The tree with other leaves, by maximum likelihood of the rows, and what was changed.

    Raises ConfigError: curves of the leaves can rise; DataError: fewer events than parameters.
    """
    module, family = tree.module, tree.module.family
    if family.can_rise:
        raise ConfigError("recalibration needs curves that cannot increase: use leaves with monotone=True")
    n_shape = len(family.shape_names)
    weighting = check_weighting(data.sample_weight, len(data))
    n_events = check_events(
        data.event, weighting, how, {"intercept": 1, "slope": 2, "baseline": 1 + n_shape}[how], stacklevel=6
    )
    loss = _Loss(tree, data)
    before = torch.zeros(2 + n_shape, dtype=torch.float64)
    before[1] = 1.0
    free = torch.zeros(2 + n_shape, dtype=torch.bool)
    free[{"intercept": slice(0, 1), "slope": slice(0, 2), "baseline": slice(0, None)}[how]] = True
    free[1] = how == "slope"

    def losses(moved: Tensor) -> Tensor:
        return loss(before.masked_scatter(free, moved[0]))[None]

    start = before[None, free]
    found = newton(Smooth(losses), Gaussian.flat(start), start, _TOLERANCE)
    after = before.masked_scatter(free, found.theta[0])
    errors: list[float | None] = [None, None]
    if how != "baseline":  # where shapes and intercept can mean the same, they have none
        errors[: start.shape[1]] = loss.errors(before, free, found)
    with torch.no_grad():
        ratios = [loss.observed / loss.expected(theta) for theta in (before, after)]
        values = [-float(loss(theta)) for theta in (before, after)]
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
    """Mean negative log-likelihood of rows with a linear predictor a + b g and shapes moved by d."""

    def __init__(self, tree: FittedTree, data: SurvivalData) -> None:
        tree = replace(tree, hazards={EVENT: copy.deepcopy(tree.module).double().cpu()})
        with torch.no_grad():
            (self._distribution,) = tree.distributions(
                torch.as_tensor(tree.preprocessor.transform(data.frame))
            )
        self._time, self._event = torch.as_tensor(data.time), torch.as_tensor(data.event).double()
        self._weight = torch.as_tensor(data.sample_weight) / float(data.sample_weight.sum())
        self._subject = data.subject
        self._entry = torch.as_tensor(data.entry) if data.entry.any() else None
        self.observed = float((self._weight * self._event).sum())

    def __call__(self, theta: Tensor) -> Tensor:
        return (self._weight * self._rows(theta)).sum()

    def errors(self, before: Tensor, free: Tensor, found: Optimum) -> list[float]:
        """Sandwich errors A^-1 B A^-1 of the free numbers, by scores of subjects, whatever the family."""

        def rows(moved: Tensor) -> Tensor:
            return self._rows(before.masked_scatter(free, moved))

        scores = self._weight[:, None] * torch.autograd.functional.jacobian(rows, found.theta[0])
        inverse = torch.linalg.inv(found.hessian[0]).numpy()
        covariance = inverse @ covariance_of(scores.numpy(), self._subject) @ inverse
        errors: list[float] = np.sqrt(np.diag(covariance)).tolist()
        return errors

    def expected(self, theta: Tensor) -> float:
        """Weighted mean of H(t) - H(entry): events that are expected of a row."""
        moved = self._moved(theta)
        rows = moved.cumulative_hazard(self._time[:, None])
        if self._entry is not None:
            rows = rows - moved.cumulative_hazard(self._entry[:, None])
        return float((self._weight * rows[:, 0]).sum())

    def _rows(self, theta: Tensor) -> Tensor:
        """Negative log-likelihood of each row."""
        return self._moved(theta).nll(self._time, self._event, entry=self._entry, reduction="none")

    def _moved(self, theta: Tensor) -> SurvivalDistribution:
        own = self._distribution
        linear, shape = theta[0] + theta[1] * own.linear, own.shape + theta[2:]
        return SurvivalDistribution(own.family, own.log_weight, linear, shape, own.log_time_scale)


@torch.no_grad()
def _changed(module: SoftTree, theta: Tensor) -> SoftTree:
    new = copy.deepcopy(module)
    for node in new.topology.leaves:
        leaf = new.leaf(node)
        leaf.slope.mul_(theta[1].to(leaf.slope))
        leaf.intercept.mul_(theta[1].to(leaf.slope)).add_(theta[0].to(leaf.slope))
        leaf.shape.add_(theta[2:].to(leaf.shape))
    return new
