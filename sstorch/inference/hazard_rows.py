"""Rows at the fitted hazard of one cause: their scores, cumulative hazards and information."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from sstorch.data import SurvivalData
from sstorch.data.coded import dense
from sstorch.exceptions import DataError
from sstorch.inference.covariance import HazardCovariance
from sstorch.inference.model import Inferable, covariance_of
from sstorch.inference.rows import LeafDerivatives, sample_of
from sstorch.nn import SoftTree
from sstorch.objective import Sample, counted_weight

# Size of the penalised gradient, in standard errors, above which rows are not those of training.
_STATIONARY = 0.25


@dataclass(frozen=True)
class HazardRows:
    """Rows with one event and the fitted hazard of its cause.

    Attributes:
        cause: name of the cause.
        module: the hazard, in double precision.
        covariance: covariance of the coefficients.
        sample: the rows, of one problem.
        weight: weight of each row in the loss, (1, n).
        leaf: leaf of each row, (n,).
        apart: number of subjects that placed the gates and are no training rows of the hazards.
    """

    cause: str
    module: SoftTree
    covariance: HazardCovariance
    sample: Sample
    weight: Tensor
    leaf: Tensor
    apart: int = 0

    @classmethod
    def by_cause(cls, model: Inferable, data: SurvivalData) -> Iterator[HazardRows]:
        """Create the rows for all causes of a model; other causes are censored."""
        covariance, tree = covariance_of(model), model._tree
        x = dense(tree.encode(data.frame))
        leaf, x = torch.as_tensor(tree.leaf(x)), x.cpu().double()
        for name, module in tree.hazards.items():
            rows = data if data.causes is None else data.of_cause(name)
            sample, module = sample_of(module, x, rows), copy.deepcopy(module).cpu().double()
            weight, apart = counted_weight(sample), vars(model).get("gate_subjects_", 0)
            yield cls(name, module, covariance.hazards[name], sample, weight, leaf, apart)

    def derivatives(self) -> LeafDerivatives:
        """Derivatives of the negative log-likelihood in the parameters of the leaf of each row."""
        leaves = self.module.leaf_parameters()
        return LeafDerivatives(self.module.family, leaves, self.leaf, self.sample, self.weight)

    def gradients(self) -> Tensor:
        """Derivatives of each row's negative log-likelihood in the coefficients, (n, D)."""
        by_leaf, groups = self.derivatives().scores(), self.covariance.groups[self.leaf]
        out = by_leaf.new_zeros(len(by_leaf), len(self.covariance.theta))
        for group in groups.unique().tolist():
            rows = groups == group
            out[rows] = by_leaf[rows] @ self.covariance.by_group[group]
        return out

    def check_training(self) -> None:
        """Check that the penalised gradient vanishes at the estimates, as it does at the training rows."""
        hazard = self.covariance
        gradient = self.gradients().sum(0) + hazard.precision * hazard.theta
        if (gradient @ hazard.posterior @ gradient).sqrt() < _STATIONARY:
            return
        if self.apart:
            raise DataError(
                f"the model has teacher=Honest(): {self.apart:,} subjects placed the gates, and hazards were "
                "estimated from the others, to which this method cannot be applied alone. Use a model with "
                "another teacher"
            )
        raise DataError(
            "the model was not fitted to these rows with these weights: give the training rows, and "
            "sample_weight if training had it"
        )

    def cumulative_hazard(self) -> Tensor:
        """H(time) - H(entry) of each row, (n,): Cox-Snell residuals."""
        sample = self.sample
        with torch.no_grad():
            linear, shape = self.module.leaf_parameters().at_rows(sample.x.matrices[0], self.leaf)
            family = self.module.family
            hazard = family.cumulative_hazard(sample.log_time[0], linear, shape)
            if sample.log_entry is not None:
                hazard = hazard - family.hazard_before(sample.log_entry[0], sample.log_time[0], linear, shape)
        return hazard
