"""Covariance of the coefficients of a fit."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from sstorch.inference import FitCovariance, HazardCovariance
from sstorch.inference.hazard_rows import LeafDerivatives
from sstorch.nn import LeafParameters
from sstorch.objective import counted_weight
from sstorch.soft.design import in_double
from sstorch.soft.estimation import Estimator
from sstorch.soft.problems import Problems, Solved
from sstorch.soft.settings import BatchSettings

# Coefficients of a hazard above which their covariance is not kept.
_MOST_COEFFICIENTS = 1000


def fit_covariance(
    causes: Mapping[str, Problems],
    settings: BatchSettings,
    estimator: Estimator | None,
    solved: Mapping[str, Solved],
) -> FitCovariance:
    """Of the coefficients of the last split: by the evidence, or of a single problem by its Hessian."""
    if settings.depth and estimator is None:
        return FitCovariance(reason="gates, or penalties on differences of groups, are given or trained")
    n_problems = next(iter(causes.values())).tree.n_problems
    if n_problems > (1 if estimator is None else estimator.n_splits):
        return FitCovariance(reason="it was trained as one of several")
    sizes = [each.tree.leaf_parameters().flatten().shape[-1] for each in causes.values()]
    if (max(sizes) if estimator is None else estimator.n_coefficients) > _MOST_COEFFICIENTS:
        return FitCovariance(reason=f"it has more than {_MOST_COEFFICIENTS} coefficients")
    if estimator is not None and estimator.has_column_priors:
        return FitCovariance(reason="with many columns, prior variances differ between columns")
    if estimator is not None:
        return FitCovariance(estimator.covariances(estimator.n_splits - 1))
    if settings.monotone or settings.fairness is not None or settings.own_penalties:
        return FitCovariance(reason="it is restricted by monotone, fairness or custom penalties")
    if settings.trainer.holdout:
        return FitCovariance(reason="training stopped by rows held out")
    hazards = {}
    for name, each in causes.items():
        parameters = each.tree.select(0).leaf_parameters()
        leaves = LeafParameters(*(part.detach().double() for part in vars(parameters).values()))
        sample, family = in_double(each.sample, each.tree.family)
        weight = counted_weight(sample)
        leaf = torch.zeros(sample.weight.shape[1], dtype=torch.long, device=weight.device)
        information = LeafDerivatives(family, leaves, leaf, sample, weight).information()
        if solved:
            own = solved[name]
            information = own.map.mT @ information @ own.map
            hazards[name] = HazardCovariance.of_information(own.theta, information, own.precision, own.map)
            continue
        # Penalties are added to the mean loss; the covariance counts rows.
        count = weight.sum() / sample.loss_weight.sum()
        curvature = count * each.objective.leaf_curvature(each.tree.leaf_parameters()).detach()[0, 0].double()
        size, p = len(curvature), each.tree.n_features
        order = torch.tensor([p, *range(p), *range(p + 1, size)])  # the intercept first
        hazards[name] = HazardCovariance.of_information(
            leaves.flatten()[0].cpu()[order],
            information.cpu()[order][:, order],
            curvature.cpu()[order],
            torch.eye(size, dtype=torch.float64)[:, order],
        )
    return FitCovariance(hazards)
