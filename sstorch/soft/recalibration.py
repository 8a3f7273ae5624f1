"""Recalibration of the leaves of a soft tree by maximum likelihood."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sstorch.data import SurvivalData
from sstorch.fitted import FittedTree
from sstorch.fitted.model import EVENT
from sstorch.groups.recalibration import Recalibrate, Recalibration, check_events
from sstorch.metrics.weights import check_weighting, covariance_of
from sstorch.newton import Gaussian, Smooth, newton
from sstorch.nn import SoftTree, SurvivalDistribution

# Of the mean loss of a row: the gain of the last step.
_TOLERANCE = 1e-16


def recalibrated(tree: FittedTree, data: SurvivalData, how: Recalibrate) -> tuple[SoftTree, Recalibration]:
    """The tree with a linear predictor a + b g and shapes moved by d, by maximum likelihood; the report."""
    module, names = tree.module, tree.module.family.shape_names
    # Of theta = (a, b, d), what is estimated.
    free = {"intercept": [0], "slope": [0, 1], "baseline": [0, *range(2, 2 + len(names))]}[how]
    weighting = check_weighting(data.sample_weight, len(data))
    n_events = check_events(data.event, weighting, how, len(free))
    own = replace(tree, hazards={EVENT: copy.deepcopy(module).double().cpu()})
    with torch.no_grad():
        (given,) = own.distributions(torch.as_tensor(tree.preprocessor.transform(data.frame)))
    time, event = torch.as_tensor(data.time), torch.as_tensor(data.event).double()
    weight = torch.as_tensor(data.sample_weight) / float(data.sample_weight.sum())
    entry = torch.as_tensor(data.entry) if data.entry.any() else None
    before = torch.zeros(2 + len(names), dtype=torch.float64)
    before[1] = 1.0

    def moved(estimates: Tensor) -> SurvivalDistribution:
        """Curves by common estimates (k,), or by those of each row (n, k)."""
        theta = before.expand(*estimates.shape[:-1], -1).index_copy(-1, torch.tensor(free), estimates)
        linear, shape = theta[..., 0] + theta[..., 1] * given.linear, given.shape + theta[..., 2:]
        return SurvivalDistribution(given.family, given.log_weight, linear, shape, given.log_time_scale)

    def losses(estimates: Tensor) -> Tensor:
        return moved(estimates).nll(time, event, entry=entry, reduction="none")

    def fit(estimates: Tensor) -> tuple[float, float]:
        """Observed / expected events, H(t) - H(entry) of each row, and the mean log-likelihood."""
        hazard = moved(estimates).cumulative_hazard(time[:, None])
        if entry is not None:
            hazard = hazard - moved(estimates).cumulative_hazard(entry[:, None])
        observed, expected = float((weight * event).sum()), float((weight * hazard[:, 0]).sum())
        return observed / expected, -float((weight * losses(estimates)).sum())

    start = before[free]
    mean = Smooth(lambda each: (weight * losses(each[0])).sum()[None])
    found = newton(mean, Gaussian.flat(start[None]), start[None], _TOLERANCE)
    estimates = found.theta[0]
    errors: list[float | None] = [None, None]
    if how != "baseline":  # where shapes and intercept can mean the same, they have none
        # The sandwich A^-1 B A^-1 by scores of subjects is right whatever the family.
        of_rows = estimates.expand(len(data), -1).clone().requires_grad_()
        (scores,) = torch.autograd.grad((weight * losses(of_rows)).sum(), of_rows)
        inverse = torch.linalg.inv(found.hessian[0]).numpy()
        covariance = inverse @ covariance_of(scores.numpy(), data.subject) @ inverse
        errors[: len(free)] = np.sqrt(np.diag(covariance)).tolist()
    theta = before.index_copy(0, torch.tensor(free), estimates)
    new = copy.deepcopy(module)
    with torch.no_grad():
        (first_ratio, first), (last_ratio, last) = fit(start), fit(estimates)
        for leaf in map(new.leaf, new.topology.leaves):
            intercept, slope = theta[:2].to(leaf.slope)
            leaf.slope.mul_(slope)
            leaf.intercept.mul_(slope).add_(intercept)
            leaf.shape.add_(theta[2:].to(leaf.shape))
    return new, Recalibration(
        how,
        len(data),
        n_events,
        float(theta[0]),
        float(theta[1]),
        dict(zip(names, theta[2:].tolist(), strict=True)) if how == "baseline" else {},
        errors[0],
        errors[1],
        (first_ratio, last_ratio),
        (first, last),
    )
