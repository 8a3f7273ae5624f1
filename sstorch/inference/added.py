"""A fitted hazard with more features in its linear predictor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sstorch.inference.covariance import Inverse
from sstorch.inference.hazard_rows import HazardRows
from sstorch.inference.rows import LeafDerivatives
from sstorch.nn import DesignMatrix, LeafParameters
from sstorch.objective import Sample
from sstorch.objective.training import row_losses

# Newton steps at most, and the decrement, in nats, at which they end; halvings of a step that gains nothing.
_STEPS, _SETTLED, _HALVINGS = 50, 1e-12, 30


@dataclass(frozen=True)
class AddedFeatures:
    """Hazard of groups with k additional features: coefficients (D + k,), gradient and Hessian.

    Attributes:
        rows: of the cause.
        added: values of the features, (n, k).
        theta: coefficients, starting with those of the hazard.
    """

    rows: HazardRows
    added: Tensor
    theta: Tensor

    @classmethod
    def at_zero(cls, rows: HazardRows, added: Tensor) -> AddedFeatures:
        """Model at the estimates of the hazard, with zero coefficients of the additional features."""
        return cls(rows, added, torch.cat([rows.covariance.theta, added.new_zeros(added.shape[1])]))

    @classmethod
    def at_optimum(cls, rows: HazardRows, added: Tensor) -> AddedFeatures:
        """Model at the maximum of the penalised likelihood, by Newton's method from zero coefficients."""
        found = cls.at_zero(rows, added)
        value = found.value()
        for _ in range(_STEPS):
            gradient, hessian = found.derivatives()
            step = -(Inverse.of(hessian).matrix @ gradient)
            decrement = -float(gradient @ step) / 2
            if decrement < _SETTLED:
                break
            for _ in range(_HALVINGS):
                next_ = replace(found, theta=found.theta + step)
                lower = next_.value()
                if lower <= value:
                    found, value = next_, lower
                    break
                step = step / 2
            else:
                break
        return found

    @property
    def covariance(self) -> Tensor:
        """Covariance of the coefficients for fixed penalties, (D + k, D + k)."""
        return Inverse.of(self.derivatives()[1]).matrix

    @property
    def _precision(self) -> Tensor:
        return torch.cat([self.rows.covariance.precision, self.added.new_zeros(self.added.shape[1])])

    def value(self) -> float:
        """Penalised negative log-likelihood; +inf outside the domain."""
        total = (self._precision * self.theta.square()).sum() / 2
        for _, leaves, sample, weight in self._parts():
            x = sample.x.matrices[0]
            linear, shape = leaves.at_rows(x, torch.zeros(len(x), dtype=torch.long))
            loss = row_losses(self.rows.module.family, sample, linear[None, None], shape[None, None])
            total = total + (weight * loss[:, 0]).sum()
        return float(total) if bool(total.isfinite()) else np.inf

    def derivatives(self) -> tuple[Tensor, Tensor]:
        """Gradient (D + k,) and Hessian (D + k, D + k) of the penalised negative log-likelihood."""
        gradient, hessian = self._precision * self.theta, torch.diag(self._precision)
        for map, leaves, sample, weight in self._parts():
            leaf = torch.zeros(len(sample.x.matrices[0]), dtype=torch.long)
            found = LeafDerivatives(self.rows.module.family, leaves, leaf, sample, weight)
            gradient = gradient + map.mT @ found.scores().sum(0)
            hessian = hessian + map.mT @ found.information() @ map
        return gradient, hessian

    def _parts(self) -> Iterator[tuple[Tensor, LeafParameters, Sample, Tensor]]:
        """Of each group the map from coefficients to parameters of its leaf, these, its rows and weights."""
        hazard, fitted = self.rows.covariance, self.rows.module.leaf_parameters()
        groups, k = hazard.groups[self.rows.leaf], self.added.shape[1]
        p, m = fitted.slope.shape[-1], fitted.shape.shape[-1]
        parameters = fitted.flatten().detach()
        x = torch.cat([fitted.features(self.rows.sample.x.matrices[0]), self.added], 1)
        for group in groups.unique().tolist():
            inside = (groups == group).nonzero().squeeze(-1)
            leaf = parameters[int((hazard.groups == group).nonzero()[0])]
            own = leaf + hazard.by_group[group] @ (self.theta[:-k] - hazard.theta)
            none = own.new_zeros(k, self.theta.numel())
            known = torch.nn.functional.pad(hazard.by_group[group], (0, k))
            of_shapes = list(known[p + 1 + m :].split(p)) if len(known) > p + 1 + m else []
            new = torch.eye(self.theta.numel(), dtype=own.dtype)[-k:]
            map = torch.cat(
                [known[:p], new, known[p : p + 1 + m], *(r for s in of_shapes for r in (s, none))]
            )
            slopes = own[p + 1 + m :].unflatten(0, (-1, p)) if of_shapes else own.new_zeros(0, p)
            wider = LeafParameters(
                torch.cat([own[:p], self.theta[-k:]])[None],
                own[None, p],
                own[None, p + 1 : p + 1 + m],
                torch.nn.functional.pad(slopes, (0, k))[None],
            )
            some = self.rows.sample.columns(inside, DesignMatrix(x[None, inside], (1,)))
            yield map, wider, some, self.rows.weight[:, inside]
