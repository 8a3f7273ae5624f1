"""Parameters of the hazards of rows, their covariance, and any prediction as a function of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from sstorch.exceptions import ConfigError
from sstorch.fitted import FittedTree
from sstorch.inference.covariance import FitCovariance
from sstorch.nn import SoftTree

# From parameters of n rows (n, Q) to predictions (n, ...), each row by itself and differentiable.
Prediction = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class RowHazards:
    """Linear predictor and shape parameters of each row, of every cause, on which its predictions depend."""

    values: Tensor  # parameters, (n, Q)
    # their deviations as combinations of independent standard normal ones, (n, Q, D): the covariance of two
    # rows' parameters is ``factors[i] @ factors[j].mT``
    factors: Tensor
    unseen: Tensor  # whether a row's linear predictor has no estimate, boolean (n,)

    @classmethod
    def of(cls, tree: FittedTree, covariance: FitCovariance, x: Tensor) -> Self:
        """Of encoded rows (n, p)."""
        if tree.prediction != "hbp":
            raise ConfigError("intervals need predictions by one group: use prediction='hbp'")
        leaf = torch.as_tensor(tree.leaf(x))
        x = x.detach().cpu().double()
        values, factors, unseen = [], [], torch.zeros(len(x), dtype=torch.bool)
        for name, module in tree.hazards.items():
            with torch.no_grad():
                parameters = module.leaf_parameters()
                at_rows = parameters.at_rows(x.to(parameters.slope), leaf.to(parameters.slope.device))
                linear, shape = (part.cpu() for part in at_rows)
                own = parameters.features(x)
            values += [linear[:, None].double(), shape.double()]
            hazard = covariance.hazards[name]
            p, m = own.shape[1], shape.shape[1]
            groups = hazard.groups[leaf]
            combined = x.new_zeros(len(x), 1 + m, len(hazard.theta))
            for group in groups.unique().tolist():
                rows, map = groups == group, hazard.by_group[group]
                combined[rows, 0] = own[rows] @ map[:p] + map[p]
                for k in range(m):
                    combined[rows, 1 + k] = map[p + 1 + k]
                    if len(map) > p + 1 + m:
                        start = p + 1 + m + k * p
                        combined[rows, 1 + k] += own[rows] @ map[start : start + p]
            unseen |= hazard.unseen(combined[:, 0])
            factors.append(combined @ hazard.root)
        width = sum(each.shape[-1] for each in factors)
        whole = x.new_zeros(len(x), sum(each.shape[1] for each in factors), width)
        row = column = 0
        for each in factors:
            whole[:, row : row + each.shape[1], column : column + each.shape[2]] = each
            row, column = row + each.shape[1], column + each.shape[2]
        return cls(torch.cat(values, 1), whole, unseen)

    def deviations(self, prediction: Prediction) -> tuple[Tensor, Tensor]:
        """Predictions (n, ...) and their deviations to first order, (n, ..., D), as :attr:`factors`."""
        value, slopes = derivatives(prediction, self.values)
        return value, torch.einsum("nq...,nqd->n...d", slopes, self.factors)


def derivatives(prediction: Prediction, values: Tensor) -> tuple[Tensor, Tensor]:
    """Predictions (n, ...) and their derivatives in the parameters of the row, (n, Q, ...).

    By reverse differentiation twice, which takes Q passes however many predictions a row has.
    """
    with torch.enable_grad():
        parameters = values.clone().requires_grad_()
        value = prediction(parameters)
        weight = torch.zeros_like(value, requires_grad=True)
        (pulled,) = torch.autograd.grad(value, parameters, weight, create_graph=True)
        columns = [
            torch.autograd.grad(pulled[:, k].sum(), weight, retain_graph=True)[0]
            for k in range(values.shape[1])
        ]
    return value.detach(), torch.stack(columns, 1)


def tree_of_rows(tree: FittedTree) -> FittedTree:
    """A tree whose features are the parameters of a row's hazards, in the order of :class:`RowHazards`."""
    sizes = [1 + len(module.family.shape_names) for module in tree.hazards.values()]
    hazards, start = {}, 0
    for (name, module), size in zip(tree.hazards.items(), sizes, strict=True):
        family = copy.deepcopy(module.family).cpu().double()
        family.ancillary = "linear"
        row = SoftTree(sum(sizes), 0, family, dtype=torch.float64)
        leaf = row.leaf(1)
        assert leaf.shape_slope is not None
        with torch.no_grad():
            leaf.slope[start] = 1.0
            for k in range(size - 1):
                leaf.shape_slope[k, start + 1 + k] = 1.0
            row.log_time_scale.copy_(module.log_time_scale)
        hazards[name] = row.requires_grad_(False)
        start += size
    return replace(tree, hazards=hazards, prediction="hbp", groups=None)
