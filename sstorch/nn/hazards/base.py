"""What a leaf hazard is: a cumulative hazard in log time, with the log hazard that belongs to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn


class HazardFamily(nn.Module, ABC):
    """A parametric family of survival distributions for the leaves.

    A family has one linear predictor g = gamma_0 + gamma . x and ``len(shape_names)`` unconstrained shape
    parameters. Its functions are elementwise and broadcast, so that the same code serves training
    (problems x leaves x rows) and prediction (problems x rows x times).
    """

    name: ClassVar[str]
    shape_names: ClassVar[tuple[str, ...]]

    @abstractmethod
    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """Cumulative hazard H(t | x) = -log S(t | x).

        Args:
            log_time: y = log of time in model units, broadcastable with ``linear``.
            linear: linear predictor g, shape (...).
            shape: shape parameters, shape (..., m); ``shape[..., k]`` broadcasts with ``linear``.

        Returns:
            H >= 0, broadcast shape (...), dimensionless; +inf where it overflows.
        """

    @abstractmethod
    def log_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """Log hazard log h(t | x) per unit of model time; arguments and shape as above."""

    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        """H and log h together, for families in which they share intermediates."""
        return (
            self.cumulative_hazard(log_time, linear, shape),
            self.log_hazard(log_time, linear, shape),
        )

    def start(self, log_time: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Values from which to start the optimisation of a leaf without covariates.

        Args:
            log_time: shape (R, M), model units.
            weight: row weights, shape (R, M).

        Returns:
            intercept (R,): the weighted mean of log time; shape parameters (R, m): zeros.
        """
        mean = (weight * log_time).sum(-1) / weight.sum(-1)
        return mean, mean.new_zeros(*mean.shape, len(self.shape_names))
