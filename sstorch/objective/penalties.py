"""Penalties on gates, on leaves, and on what a tree predicts for rows; one value per problem."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self, TypeVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from sstorch.batched import Batched
from sstorch.exceptions import ConfigError, TrainingError
from sstorch.nn import GateParameters, HazardFamily, LeafParameters, SoftTree
from sstorch.nn.functional import gradients
from sstorch.objective.rows import Sample

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
        # of the node of each value, (K, nodes, ...)
        signs = [
            (-1.0) ** torch.arange(each.shape[1], device=each.device).reshape(-1, *(1,) * (each.ndim - 2))
            for each in parts
        ]
        with torch.enable_grad():
            value = torch.as_tensor(self(type(parameters)(*parts))).sum()
            slopes = gradients(value, parts, create_graph=True)
            along = sum((sign * slope).sum() for sign, slope in zip(signs, slopes, strict=True))
            bends = gradients(torch.as_tensor(along), parts)
        pairs = zip(signs, bends, strict=True)
        return type(parameters)(*((sign * bend).abs().nan_to_num(0.0, 0.0, 0.0) for sign, bend in pairs))


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
    :class:`~sstorch.objective.penalties.RowPenalty`.
    """

    @abstractmethod
    def forward(self, leaves: LeafParameters) -> Tensor:
        """Value per problem, shape (K,) or (), from the parameters of all leaves."""


class Ridge(LeafPenalty):
    """(lambda / 2) ||gamma||^2 over the slopes of the leaves, those of shapes too; intercepts are free.

    Args:
        coefficient: one value for all problems, or one per problem, shape (R,).
        features: features with penalised slopes, boolean (p,); None for all.
    """

    features: Tensor | None

    def __init__(self, coefficient: float | Tensor, features: Tensor | None = None) -> None:
        super().__init__(coefficient)
        self.register_buffer("features", features)

    @override
    def forward(self, leaves: LeafParameters) -> Tensor:
        slope, shape_slope = leaves.slope, leaves.shape_slope
        if self.features is not None:
            acts = self.features.to(slope)
            slope, shape_slope = slope * acts, shape_slope * acts
        squares = slope.square().sum((-2, -1)) + shape_slope.square().sum((-3, -2, -1))
        return self.at(squares) * squares / 2


class Monotone(LeafPenalty):
    """(lambda / 2) sum of the squared slopes that go the wrong way, over pieces of columns and leaves.

    The cone has derivatives of the linear predictor, one row per piece, that must be >= 0, as linear
    combinations of slopes, (R, pieces, p); :meth:`project` removes what is left of violations.
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
        scale: s of each feature of each gate, shape (R, G or 1, p); None for 1. Standard deviations give the
            penalty for standardised columns, 0 none.
    """

    per_problem = ("coefficient", "scale")

    scale: Tensor | None

    def __init__(self, coefficient: float | Tensor, scale: Tensor | None = None) -> None:
        coefficient = torch.as_tensor(coefficient, dtype=torch.float64)
        # One value per problem where there is a scale: both are selected alike.
        super().__init__(coefficient if scale is None else coefficient.expand(len(scale)))
        self.register_buffer("scale", scale)

    @override
    def forward(self, gates: GateParameters) -> Tensor:
        weight = gates.weight
        if self.scale is not None:
            weight = weight * self.scale.to(weight)
        squares = weight.square().sum((-2, -1))
        return self.at(squares) * squares / 2


class NormalPrior(LeafPenalty):
    """Negative log density, up to a constant, of leaves that have a common part: estimated variances.

    Slopes of a group of leaves are common ones plus own ones, each with a precision (R, p). Levels (linear
    predictors at the centre of the features) and shapes are a common one, which is free, plus own ones, with
    precisions (R,). The value is the least over the common part. Slopes whose own precision is +inf, and
    leaves with one number in ``groups`` (R, L), are held together by the largest precision that rounding
    allows. The coefficient (R,) is one over the rows that the precisions count.
    """

    per_problem = ("coefficient", "common", "own", "level", "shape", "centre", "mean", "weight")

    common: Tensor
    own: Tensor
    level: Tensor
    shape: Tensor
    centre: Tensor
    mean: Tensor  # of the leaves of a group, as a matrix, (R, L, L)
    weight: Tensor  # of a leaf, one over the leaves of its group, (R, L)

    def __init__(
        self,
        common: Tensor,
        own: Tensor,
        level: Tensor,
        shape: Tensor,
        centre: Tensor,
        groups: Tensor,
        coefficient: Tensor,
    ) -> None:
        super().__init__(coefficient)
        self._tie: float = torch.finfo(common.dtype).eps ** -0.6
        same = (groups[..., None] == groups[:, None]).to(common)
        parts = {"common": common, "own": own.clamp(max=self._tie), "level": level, "shape": shape}
        parts |= {"centre": centre, "mean": same / same.sum(-1, keepdim=True), "weight": 1 / same.sum(-1)}
        for name, value in parts.items():
            self.register_buffer(name, value)

    @override
    def forward(self, leaves: LeafParameters) -> Tensor:
        level = leaves.intercept + (leaves.slope * self.centre.to(leaves.slope)[:, None]).sum(-1)
        total = self._value(leaves.slope, self.own, self.common)
        total = total + self._value(level[..., None], self.level[:, None])
        total = total + self._value(leaves.shape, self.shape[:, None])
        for slope in leaves.shape_slope.unbind(-2):
            total = total + self._value(slope, self.own, self.common)
        return self.at(total) * total

    def _value(self, values: Tensor, own: Tensor, common: Tensor | None = None) -> Tensor:
        """The part of coefficients (K, L, d) with own and common precisions (K, d), shape (K,)."""
        weight = self.weight.to(values)[..., None]
        groups = torch.matmul(self.mean.to(values), values)
        centre = (weight * groups).sum(-2, keepdim=True) / weight.sum(-2, keepdim=True)
        within = self._tie * (values - groups).square().sum((-2, -1))
        between = (own.to(values)[:, None] * weight * (groups - centre).square()).sum((-2, -1))
        total = within + between
        if common is not None:
            total = total + (self._of_mean(own, common).to(values) * centre.squeeze(-2).square()).sum(-1)
        return total / 2

    def _of_mean(self, own: Tensor, common: Tensor) -> Tensor:
        """Precision of the mean of the groups where the common part is the best one, (K, d)."""
        own = self.weight.sum(-1, keepdim=True) * own
        return common * own / (common + own)

    def _form(self, own: Tensor, common: Tensor | None = None) -> Tensor:
        """Second derivatives of :meth:`_value` in the leaves, (K, d, L, L)."""
        weight = self.weight
        share = weight / weight.sum(-1, keepdim=True)
        outer, unit = weight[..., None] * share[:, None], torch.eye(weight.shape[1]).to(weight)
        form = self._tie * (unit - self.mean)[:, None] * torch.ones_like(own)[..., None, None]
        form = form + own[..., None, None] * (self.mean * weight[..., None] - outer)[:, None]
        if common is not None:
            squares = share[..., None] * share[:, None]
            form = form + self._of_mean(own, common)[..., None, None] * squares[:, None]
        return form

    def hessian(self, leaves: LeafParameters) -> Tensor:
        """Second derivatives in leaves in the order of :meth:`LeafParameters.unflatten`, (K, L, d, L, d)."""
        (n_leaves, p), m = leaves.slope.shape[-2:], leaves.shape.shape[-1]
        size = leaves.flatten().shape[-1]
        out = self.common.new_zeros(len(self.common), size, size, n_leaves, n_leaves)
        slopes = self._form(self.own, self.common)
        for first in (0, *range(p + 1 + m, size, p)):
            place = torch.arange(first, first + p)
            out[:, place, place] = slopes
        place = torch.arange(p + 1, p + 1 + m)
        out[:, place, place] = self._form(self.shape[:, None]).expand(-1, m, -1, -1)
        level = torch.nn.functional.pad(self.centre, (0, 1), value=1.0)
        of_level = level[..., None] * level[:, None]
        out[:, : p + 1, : p + 1] += of_level[..., None, None] * self._form(self.level[:, None])[:, :, None]
        out = out.permute(0, 3, 1, 4, 2)
        return self.at(out)[:, None, None, None, None] * out

    @override
    def curvature(self, parameters: ParametersT) -> ParametersT:
        """The diagonal of :meth:`hessian`."""
        if not isinstance(parameters, LeafParameters):
            return super().curvature(parameters)

        def diagonal(own: Tensor, common: Tensor | None = None) -> Tensor:
            each = self._form(own, common).diagonal(dim1=-2, dim2=-1).mT
            return self.at(each)[:, None, None] * each

        slope, level = diagonal(self.own, self.common), diagonal(self.level[:, None])
        return LeafParameters(
            slope + self.centre[:, None].square() * level,
            level.squeeze(-1),
            diagonal(self.shape[:, None]).expand_as(parameters.shape),
            slope[:, :, None].expand_as(parameters.shape_slope),
        )

    @torch.no_grad()
    def project(self, tree: SoftTree) -> None:
        """Remove the differences between leaves of one group, and between slopes that are held together."""
        leaves = tree.leaf_parameters()
        mean, tied = self.mean.to(leaves.slope), (self.own >= self._tie)[:, None]
        whole = self.weight.to(mean)[:, None] / self.weight.to(mean).sum(-1)[:, None, None]

        def shared(values: Tensor) -> Tensor:
            values = torch.matmul(mean, values)
            return torch.where(tied, torch.matmul(whole, values).expand_as(values), values)

        level = (leaves.intercept + (leaves.slope * self.centre.to(mean)[:, None]).sum(-1))[..., None]
        slope = shared(leaves.slope)
        intercept = torch.matmul(mean, level).squeeze(-1) - (slope * self.centre.to(mean)[:, None]).sum(-1)
        shapes = [shared(part) for part in leaves.shape_slope.unbind(-2)]
        shape_slope = torch.stack(shapes, -2) if shapes else leaves.shape_slope
        tree.set_leaves(LeafParameters(slope, intercept, torch.matmul(mean, leaves.shape), shape_slope))


# Curvature of the square of what a leaf lacks: as in distillation, where it outweighs the likelihood.
TOO_SMALL = 10.0


class RowTerm(Batched, ABC):
    """A penalty on rows in a step that trains gates, or leaves; it keeps everything that is frozen there."""

    @abstractmethod
    def value(self, parameters: GateParameters | LeafParameters) -> Tensor:
        """Value per problem, shape (K,), from all gates or from all leaves, those that are frozen too."""


class RowPenalty(Penalty, ABC):
    """Base class of penalties that depend on rows: on curves, means or shares of a tree.

    :meth:`forward` receives parameters and rows, no predictions: ``gates.leaf_probability(sample.x)`` are the
    probabilities of leaves, (K, L, M), and :class:`~sstorch.nn.SurvivalDistribution` of their logarithms, the
    predictors and the shapes of the leaves gives every curve, in model units of time. ``sample.group`` holds
    the groups of ``sensitive=``.

    ``trains_leaves``: it acts where leaves are trained, gates frozen. ``trains_gates``: it acts where gates
    are trained, which get a gradient through probabilities of leaves, not through the most probable leaf.
    """

    trains_gates: bool = False
    trains_leaves: bool = True

    @abstractmethod
    def forward(
        self,
        gates: GateParameters,
        leaves: LeafParameters,
        family: HazardFamily,
        sample: Sample,
        relaxed: bool = False,
    ) -> Tensor:
        """Value per problem, shape (K,).

        Args:
            gates: all gates.
            leaves: all leaves.
            family: of the leaves, for the K problems.
            sample: their rows.
            relaxed: True where gates are trained: a form that is smooth in them.
        """

    def term(self, tree: SoftTree, sample: Sample, node: int, of_gates: bool) -> RowTerm:
        """The penalty as a function of the leaves, or the relaxation as one of the gates (``of_gates``).

        The loss of a step at ``node`` is a mean over its rows I_s alone; the term of K problems, with all
        their rows, weighs against it as the penalty does against the mean over all rows.
        """
        with torch.no_grad():
            inside = sample.weight * tree.visits(sample.x, node)
            gates, leaves = tree.gate_parameters(), tree.leaf_parameters()
            return _Term(self, sample, weight_in_step(sample.weight, inside), gates, leaves, tree.family)


@dataclass(frozen=True)
class _Term(RowTerm):
    """A penalty by its :meth:`RowPenalty.forward`."""

    penalty: RowPenalty
    sample: Sample
    factor: Tensor  # shape (K,)
    gates: GateParameters
    leaves: LeafParameters
    family: HazardFamily

    @override
    def value(self, parameters: GateParameters | LeafParameters) -> Tensor:
        of_gates = isinstance(parameters, GateParameters)
        gates = parameters if isinstance(parameters, GateParameters) else self.gates
        leaves = parameters if isinstance(parameters, LeafParameters) else self.leaves
        return self.factor * self.penalty.forward(gates, leaves, self.family, self.sample, of_gates)


def weight_in_step(weight: Tensor, inside: Tensor) -> Tensor:
    """Weight of all rows over that of the rows of a step, (K, M) -> (K,), as in its mean loss; else 0."""
    total = inside.sum(-1)
    return torch.where(total > 0, weight.sum(-1) / total, torch.zeros_like(total))


class SmallLeaves(RowPenalty):
    """lambda sum_n max(0, m - (1/N) sum_i P_in)^2: every leaf has a share m of the rows, as routed softly.

    It is used in the training of gates only.

    Args:
        coefficient: lambda, one value or one per problem, shape (R,).
        least: m, in [0, 1/2).
    """

    trains_gates, trains_leaves = True, False

    def __init__(self, coefficient: float | Tensor, least: float) -> None:
        super().__init__(coefficient)
        self.least = least

    @override
    def forward(
        self,
        gates: GateParameters,
        leaves: LeafParameters,
        family: HazardFamily,
        sample: Sample,
        relaxed: bool = False,
    ) -> Tensor:
        share = (gates.leaf_probability(sample.x) * sample.normalised_weight[:, None, :]).sum(-1)
        return self.at(share) * (self.least - share).clamp(min=0).square().sum(-1)


def check_penalties(penalties: Sequence[Penalty], tree: SoftTree, sample: Sample, problems: Tensor) -> None:
    """Raise TrainingError if a custom penalty or its gradient is not finite at some finite problems (K,)."""
    gates, leaves = (
        type(part)(*(value.detach()[problems].requires_grad_() for value in vars(part).values()))
        for part in (tree.gate_parameters(), tree.leaf_parameters())
    )
    values = {f"gates.{name}": value for name, value in vars(gates).items()}
    values |= {f"leaves.{name}": value for name, value in vars(leaves).items()}
    finite = torch.stack([value.isfinite().flatten(1).all(1) for value in values.values()]).all(0)
    for penalty in penalties:
        own = penalty.select(problems)
        if isinstance(own, RowPenalty):
            family, rows = tree.family.select(problems), sample.select(problems)
            value = own(gates, leaves, family, rows, relaxed=True)
        else:
            value = own(gates if isinstance(own, GatePenalty) else leaves)
        wrong = finite & ~value.isfinite()
        text = f"penalty {type(penalty).__name__}"
        if bool(wrong.any()):
            found = float(value.detach()[wrong][0])
            raise TrainingError(f"{text} is {found} at finite gates and leaves; it must be finite there")
        for name, slope in zip(values, gradients(value.sum(), [*values.values()]), strict=True):
            if bool((finite & ~slope.isfinite().flatten(1).all(1)).any()):
                raise TrainingError(
                    f"{text} has no finite gradient with respect to {name} where training stopped: make it "
                    "differentiable there, such as a norm by (sum of squares + 1e-12).sqrt()"
                )
