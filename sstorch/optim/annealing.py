"""Annealing: gates are kept soft at first and sharpened over the first macro iterations."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from numbers import Integral, Real

import torch
from torch import nn

from sstorch.exceptions import ConfigError
from sstorch.objective import GateRidge, TrainingObjective
from sstorch.optim.arguments import is_number


@dataclass(frozen=True)
class Annealing:
    """A limit on the sharpness of the gates that is loosened pass by pass, then gone.

    In macro iteration k the gates of a BN step minimise E + (mu_k / 2) ||w||^2 with mu_k = start
    (1 - (k - 1) / passes), and E itself from iteration passes + 1 on: a homotopy from trees that mix their
    leaves to trees that tell them apart. Starts from hard trees are so softened first and sharpened later.

    The limit is a penalty since a temperature alone is none: the minimum of E over w is the same for
    sigmoid(s w.x) at every s > 0. Beside a ridge lambda on the gates, a temperature is the ridge lambda / s^2
    on the weights s w, which is the penalty here.

    Attributes:
        start: mu_1 > 0.
        passes: macro iterations until the limit is gone, at least 1.

    Raises:
        ConfigError: if a value is out of range.

    References:
        Rose (1998), "Deterministic annealing for clustering, compression, classification, regression, and
        related optimization problems", Proceedings of the IEEE 86, 2210-2239, on the idea.
    """

    start: float = 0.1
    passes: int = 3

    def __post_init__(self) -> None:
        if not is_number(self.start, Real) or not 0 < self.start < math.inf:
            raise ConfigError(f"annealing.start must be a finite number > 0, got {self.start!r}")
        if not is_number(self.passes, Integral) or self.passes < 1:
            raise ConfigError(f"annealing.passes must be at least 1, an integer, got {self.passes!r}")

    def coefficient(self, macro_iteration: int) -> float:
        """Coefficient mu_k of the penalty in a macro iteration, counted from 1."""
        return self.start * max(0.0, 1 - (macro_iteration - 1) / self.passes)

    def restrain(
        self, objective: TrainingObjective, macro_iteration: int, device: torch.device
    ) -> TrainingObjective:
        """The objective of the gates in a macro iteration; the given one once the limit is gone."""
        coefficient = self.coefficient(macro_iteration)
        if coefficient == 0:
            return objective
        restrained = copy.copy(objective)
        # A copied module still shares the table of its parts with the first.
        restrained._modules = dict(objective._modules)
        limit = GateRidge(coefficient).to(device)
        restrained.gate_penalties = nn.ModuleList([*objective.gate_penalties, limit])
        return restrained
