"""Penalties on gates and leaves, one value per problem."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, Self, TypeVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from sstorch.exceptions import ConfigError
from sstorch.nn import GateParameters, LeafParameters, SoftTree

ParametersT = TypeVar("ParametersT", GateParameters, LeafParameters)


class Penalty(nn.Module):
    """A coefficient >= 0 times a smooth function of parameters.

    Args:
        coefficient: one value for all problems, or one per problem, shape (R,); negative values raise.

    Attributes:
        per_problem: names of the buffers with one row per problem.
    """

    per_problem: ClassVar[tuple[str, ...]] = ("coefficient",)

    coefficient: Tensor

    def __init__(self, coefficient: float | Tensor) -> None:
        super().__init__()
        if not isinstance(coefficient, Tensor) and not coefficient >= 0:
            raise ConfigError(f"coefficient of {type(self).__name__} must be at least 0, got {coefficient!r}")
        self.register_buffer("coefficient", torch.as_tensor(coefficient, dtype=torch.float64))

    def at(self, like: Tensor) -> Tensor:
        """The coefficient in the device and dtype of ``like``."""
        return self.coefficient.to(like)

    @property
    def is_zero(self) -> bool:
        """True if the penalty vanishes for every problem."""
        return not bool(self.coefficient.any())

    def select(self, problems: Tensor | slice) -> Self:
        """The penalty of some of the problems, positions (K,) or a slice."""
        if self.coefficient.ndim == 0:
            return self
        at = problems.to(self.coefficient.device) if isinstance(problems, Tensor) else problems
        chosen = copy.copy(self)
        chosen._buffers = {
            name: value[at] if value is not None and value.ndim and name in self.per_problem else value
            for name, value in self._buffers.items()
        }
        return chosen

    def curvature(self, parameters: ParametersT) -> ParametersT:
        """Diagonal of the Hessian, by parameter, of K problems; exact for a ridge, else an estimate >= 0.

        It scales the first step of a minimisation and does not decide where it ends. The estimate is |z * Hz|
        by autograd, with signs z that alternate between nodes, whose products with other nodes cancel.
        """
        parts = [each.detach().requires_grad_() for each in vars(parameters).values()]
        signs = [(1.0 - 2.0 * (_nodes_of(each) % 2)).to(each) for each in parts]
        with torch.enable_grad():
            value = torch.as_tensor(self(type(parameters)(*parts))).sum()
            slopes = _gradients(value, parts, create_graph=True)
            along = sum((sign * slope).sum() for sign, slope in zip(signs, slopes, strict=True))
            bends = _gradients(torch.as_tensor(along), parts)
        pairs = zip(signs, bends, strict=True)
        return type(parameters)(*((sign * bend).abs().nan_to_num(0.0, 0.0, 0.0) for sign, bend in pairs))


def _gradients(value: Tensor, parts: Sequence[Tensor], create_graph: bool = False) -> Sequence[Tensor]:
    """Gradients of a value, zero if it does not depend on the parts."""
    if not value.requires_grad:
        return [torch.zeros_like(part) for part in parts]
    return torch.autograd.grad(
        value, parts, create_graph=create_graph, allow_unused=True, materialize_grads=True
    )


def _nodes_of(values: Tensor) -> Tensor:
    """Number of the node of each value, (K, nodes, ...)."""
    numbers = torch.arange(values.shape[1], device=values.device)
    return numbers.reshape(1, -1, *(1,) * (values.ndim - 2)).expand(values.shape)


class GatePenalty(Penalty, ABC):
    """Base class of penalties on the gates; a subclass needs :meth:`forward`.

    Parameters have a leading batch shape: that of K problems, (K,), in the estimators, or () of one tree.
    """

    @abstractmethod
    def forward(self, gates: GateParameters) -> Tensor:
        """Value per problem, shape (K,) or (), from all gates, (K, B, p); zero for a tree without gates."""


class LeafPenalty(Penalty, ABC):
    """Base class of penalties on the parameters of the leaves; a subclass needs :meth:`forward`.

    Parameters have a leading batch shape: that of K problems, (K,), in the estimators, or () of one tree. A
    penalty on curves or means needs the family and the rows, too:
    :class:`~sstorch.objective.row_penalties.RowPenalty`.
    """

    @abstractmethod
    def forward(self, leaves: LeafParameters) -> Tensor:
        """Value per problem, shape (K,) or (), from the parameters of all leaves."""


class Ridge(LeafPenalty):
    """(lambda / 2) ||gamma||^2 over the slopes of the leaves, those of shapes too; intercepts are free.

    Args:
        coefficient: one value for all problems, or one per problem, shape (R,).
        features: features with penalised slopes, boolean (p,); None for all.
        shared: True if all leaves share slopes, which then count once, boolean () or (R,).
        scale: factor of each slope of each problem, shape (R, p); None for 1.
    """

    per_problem = ("coefficient", "shared", "scale")

    features: Tensor | None
    shared: Tensor
    scale: Tensor | None

    def __init__(
        self,
        coefficient: float | Tensor,
        features: Tensor | None = None,
        shared: Tensor | None = None,
        scale: Tensor | None = None,
    ) -> None:
        shared = torch.zeros((), dtype=torch.bool) if shared is None else shared
        coefficient = torch.as_tensor(coefficient, dtype=torch.float64)
        # One value per problem if either is: both are selected alike.
        batch = shared.shape if scale is None else scale.shape[:1]
        super().__init__(coefficient.expand(batch) if batch else coefficient)
        self.register_buffer("features", features)
        self.register_buffer("shared", shared, persistent=False)
        self.register_buffer("scale", scale)

    def _each(self, leaves: LeafParameters) -> Tensor:
        """The coefficient of each leaf, shape () or (K,)."""
        count = torch.where(self.shared, leaves.intercept.shape[-1], 1).to(leaves.intercept)
        return self.at(leaves.intercept) / count

    @override
    def forward(self, leaves: LeafParameters) -> Tensor:
        slope, shape_slope = leaves.slope, leaves.shape_slope
        if self.features is not None:
            acts = self.features.to(slope)
            slope, shape_slope = slope * acts, shape_slope * acts
        if self.scale is not None:
            scale = self.scale.to(slope)[:, None]
            slope, shape_slope = slope * scale, shape_slope * scale[..., None, :]
        squares = slope.square().sum((-2, -1)) + shape_slope.square().sum((-3, -2, -1))
        return self._each(leaves) * squares / 2


class Roughness(Ridge):
    """(lambda / 2) times the roughness of the curves of numeric columns, summed over columns and leaves.

    For a piecewise linear curve it is the sum of squared changes of slope, for a spline the integral of the
    squared second derivative, with columns in units of their standard deviations. In the features of
    :class:`~sstorch.data.basis.Basis` it is a sum of squares. With a large coefficient every curve is a
    straight line, with the ridge penalty.

    References:
        Eilers and Marx (1996), Statistical Science 11, 89-121.
    """


class Monotone(LeafPenalty):
    """(lambda / 2) sum of the squared slopes that go the wrong way, over pieces of columns and leaves.

    With a large coefficient violations are negligible; :meth:`project` removes them.

    Args:
        coefficient: shape (R,).
        cone: derivatives of the linear predictor by columns, one row per piece, with signs such that they
            must be >= 0, as linear combinations of slopes, shape (R, pieces, p).
    """

    per_problem = ("coefficient", "cone")

    cone: Tensor

    def __init__(self, coefficient: Tensor, cone: Tensor) -> None:
        super().__init__(coefficient)
        self.register_buffer("cone", cone)

    @override
    def forward(self, leaves: LeafParameters) -> Tensor:
        wrong = torch.matmul(leaves.slope, self.cone.to(leaves.slope).mT).clamp(max=0)
        return self.at(wrong) * wrong.square().sum((-2, -1)) / 2

    @override
    def curvature(self, parameters: ParametersT) -> ParametersT:
        """Bounds, that of all pieces: steps lead from one to another."""
        none = super().curvature(parameters)
        if not isinstance(none, LeafParameters):
            return none
        bound = self.at(none.slope)[:, None] * self.cone.to(none.slope).square().sum(-2)
        return replace(none, slope=bound[:, None].expand(none.slope.shape))

    @torch.no_grad()
    def project(self, tree: SoftTree) -> None:
        """Set slopes with the wrong sign to zero in all leaves."""
        for node in tree.topology.leaves:
            slope = tree.leaf(node).slope
            cone = self.cone.to(slope)
            along = torch.matmul(cone, slope[..., None])
            step = torch.linalg.pinv(cone) @ (along.clamp(min=0) - along)
            slope.add_(step.squeeze(-1))


class GateRidge(GatePenalty):
    """(lambda / 2) sum_j (s_j w_j)^2 over the weights of the gates; biases are free.

    Args:
        coefficient: one value for all problems, or one per problem, shape (R,).
        scale: s of each feature of each problem, shape (R, p); None for 1. Standard deviations give the
            penalty for standardised columns.
    """

    per_problem = ("coefficient", "scale")

    scale: Tensor | None

    def __init__(self, coefficient: float | Tensor, scale: Tensor | None = None) -> None:
        coefficient = torch.as_tensor(coefficient, dtype=torch.float64)
        # One value per problem where there is a scale: both are selected alike.
        super().__init__(coefficient if scale is None else coefficient.expand(len(scale)))
        self.register_buffer("scale", scale)

    def _scale(self, like: Tensor) -> Tensor:
        """The scale as a factor of weights, (K, 1, p) or (1, 1)."""
        return like.new_ones(1, 1) if self.scale is None else self.scale.to(like)[..., None, :]

    @override
    def forward(self, gates: GateParameters) -> Tensor:
        squares = (gates.weight * self._scale(gates.weight)).square().sum((-2, -1))
        return self.at(squares) * squares / 2


class GateGroupLasso(GatePenalty):
    """lambda sum_j ||w_.j||, w_.j the weights of feature j over all gates: whole features leave the gates.

    The norm is smoothed, sqrt(||w_.j||^2 + e^2) - e, for smooth minimisation; :meth:`vanishing` then reports
    the features with zero weights under the exact penalty.

    References:
        Yuan and Lin (2006), Journal of the Royal Statistical Society B 68, 49-67.
    """

    SMOOTHING: ClassVar[float] = 1e-4
    CANDIDATE: ClassVar[float] = 1e-2

    @override
    def forward(self, gates: GateParameters) -> Tensor:
        norms = (gates.weight.square().sum(-2) + self.SMOOTHING**2).sqrt() - self.SMOOTHING
        return self.at(norms) * norms.sum(-1)

    def vanishing(self, tree: SoftTree, smooth: Callable[[SoftTree], Tensor]) -> Tensor:
        """Features with zero weight at the minimum of the exact penalty, by its first order conditions.

        Candidates have a small norm. One vanishes if, with all candidates at zero, the norm of the gradient
        of the rest of the objective with respect to its weights is at most lambda.

        Args:
            tree: R problems, trained.
            smooth: the objective of a tree without this penalty, shape (R,).

        Returns:
            boolean, shape (R, p).
        """
        with torch.no_grad():
            norms = tree.gate_parameters().weight.norm(dim=-2)
            candidates = norms < self.CANDIDATE
        trial = tree.select(torch.arange(tree.n_problems, device=norms.device))
        zero_features(trial, candidates)
        weights = [trial.gate(node).weight for node in tree.topology.branches]
        with torch.enable_grad():
            trial.requires_grad_(False)
            for weight in weights:
                weight.requires_grad_(True)
            gradients = torch.autograd.grad(smooth(trial).sum(), weights)
        slope: Tensor = torch.linalg.vector_norm(torch.stack(gradients, dim=-2), dim=-2)
        vanishing: Tensor = candidates & (slope <= self.at(slope).reshape(-1, 1))
        return vanishing


@torch.no_grad()
def zero_features(tree: SoftTree, features: Tensor) -> None:
    """Set the weights of features, boolean (R, p), to zero in all gates."""
    for node in tree.topology.branches:
        tree.gate(node).weight.masked_fill_(features, 0.0)


class Together(LeafPenalty):
    """(lambda / 2) times the squared distances of parameters of the leaves from their mean."""

    @abstractmethod
    def _theta(self, leaves: LeafParameters) -> Tensor:
        """The parameters that it acts on, (K, L, d)."""

    @override
    def forward(self, leaves: LeafParameters) -> Tensor:
        theta = self._theta(leaves)
        squares = (theta - theta.mean(-2, keepdim=True)).square().sum((-2, -1))
        return self.at(theta) * squares / 2


class Fused(Together):
    """(lambda / 2) sum_n ||theta_n - mean theta||^2 over slopes and shapes of the leaves, intercepts free.

    With a large coefficient leaves share slopes and shapes and differ only in level.
    """

    @override
    def _theta(self, leaves: LeafParameters) -> Tensor:
        return torch.cat([leaves.slope, leaves.shape, leaves.shape_slope.flatten(-2)], dim=-1)


class Offset(Together):
    """(lambda / 2) sum_n (gamma_0n - mean gamma_0)^2: shrinkage of the levels of leaves to each other.

    With shared slopes and a large coefficient the tree is the regression without gates.
    """

    @override
    def _theta(self, leaves: LeafParameters) -> Tensor:
        return leaves.intercept[..., None]


class FusedShape(Together):
    """(lambda / 2) sum_n ||shape_n - mean shape||^2, added to what :class:`Fused` does to shapes."""

    @override
    def _theta(self, leaves: LeafParameters) -> Tensor:
        return leaves.shape
