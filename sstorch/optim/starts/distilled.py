"""Gates distilled from a regression: groups of rows for which it predicts alike.

With all covariates in every leaf the likelihood gives a gate nothing for separating prognoses, only for
separating regressions, whose differences are mostly noise. A regression without gates, the teacher, predicts
the log time of every training row, free of the noise of censoring; gates are found on these predictions, and
stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.data.design_matrix import DesignMatrix, first_features
from sstorch.memory import at_once
from sstorch.nn import GateParameters, SoftTree, Topology
from sstorch.nn.functional import softplus
from sstorch.nn.routing import log_path_probability
from sstorch.objective import Sample, TrainingObjective
from sstorch.objective.row_penalties import TOO_SMALL
from sstorch.optim.batched_lbfgs import AutogradFunction, LBFGSOptions, minimize
from sstorch.optim.joint import Joint
from sstorch.optim.starts.clusters import start_leaves
from sstorch.optim.starts.regression_tree import CONSTANT, GateColumns, Split, regression_tree, scores

# On the weights of gates, columns in units of their standard deviations.
_GATE_RIDGE = 1e-3
_POLISH = LBFGSOptions(max_iterations=200)
# A gate that splits nothing: all rows go left.
CLOSED = 20.0
# Of rows whose hazard underflows.
_LEAST_HAZARD = 1e-12
# Elements of the copies of rows that are worked on at once.
_ELEMENTS = 2**23


@dataclass(frozen=True)
class Distillation:
    """Options of distilled gates.

    Attributes:
        gate_features: number of raw columns per gate: 1 for thresholds and sets of categories, None for all.
        min_leaf: minimum share of the training weight per leaf.
    """

    gate_features: int | None = 1
    min_leaf: float = 0.1


def gates_of_targets(
    sample: Sample,
    targets: Tensor,
    n_gate_features: int,
    columns: GateColumns,
    topology: Topology,
    distillation: Distillation,
    rows: Tensor | None = None,
) -> GateParameters:
    """Place gates that split the rows of R problems by predictions of teachers.

    1. The teacher is the same leaf without gates, under the same penalties, or another model; its prediction
       of each row is a target.
    2. A regression tree on the targets, each leaf at least ``min_leaf`` of the weight; its thresholds are
       gates of one column.
    3. With more columns in a gate, the gates are moved to where leaves with a constant log-logistic
       distribution describe the targets best, after the column with the largest gradient has been added to
       each gate, one at a time. At last the constants are moved as far as ``min_leaf`` asks for.

    Args:
        sample: training rows of R problems, ordered by split.
        targets: J predictions of each row, shape (R, J, M).
        n_gate_features: features that gates see, the first of those given.
        columns: raw columns of these features.
        topology: of the trees.
        distillation: how.
        rows: rows of each split by which gates are placed, (S, m), -1 for padding; all if None.

    Returns:
        weights (R, B, q) and biases (R, B); those of problems with the same targets and rows are the same.

    References:
        Hinton, Vinyals and Dean (2015), "Distilling the knowledge in a neural network"; Breiman, Friedman,
        Olshen and Stone (1984), Classification and Regression Trees, for the regression tree.
    """
    target, weight = targets.double(), sample.weight.double()
    stored = first_features(sample.x, n_gate_features).to("cpu", torch.float64)
    x = [stored.of_split(split) for split in range(len(stored.counts))]
    if rows is not None:
        x = [own[drawn.clamp(min=0)] for own, drawn in zip(x, rows.cpu(), strict=True)]
    split = stored.split
    if rows is not None:
        own = rows[split].to(weight.device)
        target = target.gather(-1, own.clamp(min=0)[:, None].expand(-1, target.shape[1], -1))
        weight = weight.gather(-1, own.clamp(min=0)) * (own >= 0)
    # Starts of a split with the same penalties have the same teacher, and so the same gates.
    keys = [
        (number, *(part[problem].cpu().numpy().tobytes() for part in (target, weight)))
        for problem, number in enumerate(split.tolist())
    ]
    position = {key: k for k, key in enumerate(dict.fromkeys(keys))}
    place = torch.tensor([position[key] for key in keys])
    problems = torch.tensor([keys.index(key) for key in position])
    different = split[problems], target[problems], weight[problems]
    return distil_gates(x, *different, columns, topology, distillation).select(place)


def single_leaf(tree: SoftTree) -> SoftTree:
    """A tree of depth 0 with the family, features and time scale of another, its parameters zero."""
    single = tree.blank(0, tree.family, tree.batch_shape)
    single.set_time_scale(tree.log_time_scale.exp())
    return single


def initialize_regression(tree: SoftTree, objective: TrainingObjective, sample: Sample) -> SoftTree:
    """Leaves that are all the regression without gates, in place; it is returned as a tree of depth 0.

    Penalties on leaves of the objective act; the sample is the training rows of the R problems.
    """
    teacher = single_leaf(tree)
    start_leaves(teacher, sample)
    Joint().train(teacher, objective, sample)
    for node in tree.topology.leaves:
        tree.leaf(node).load_state_dict(teacher.leaf(1).state_dict())
    return teacher


@torch.no_grad()
def log_hazard_targets(tree: SoftTree, sample: Sample, log_time: Tensor) -> Tensor:
    """Log cumulative hazard of each row at a time, times the root of the number of events, (R, M).

    The hazard of a row is that of its most probable leaf; `log_time` (R,) is in original units.
    """
    linear, shape = tree.linear_predictor(sample.x)[..., None], tree.shape_parameters(sample.x)[..., None, :]
    at = (log_time.to(tree.log_time_scale) - tree.log_time_scale)[:, None, None, None].expand_as(linear)
    hazard = tree.family.cumulative_hazard(at, linear, shape).squeeze(-1)
    hazard = hazard.gather(1, tree.apply_leaf(sample.x)[:, None]).squeeze(1)
    n_events = (sample.weight * sample.event).sum(-1, keepdim=True)
    return n_events.sqrt() * hazard.clamp(min=_LEAST_HAZARD).log()


@torch.no_grad()
def predicted_log_time(teacher: SoftTree, sample: Sample) -> Tensor:
    """A log time that each row's risk goes with, shape (R, M): larger is later.

    With constant shapes it is the linear predictor, turned where that is one of a hazard or of odds; with
    linear ones minus the log cumulative hazard at the geometric mean of the training times.
    """
    family = teacher.family
    if family.ancillary == "constant" and family.ratio is not None:
        linear = teacher.linear_predictor(sample.x).squeeze(1)
        return linear if family.ratio == "time ratio" else -linear
    linear, shape = teacher.linear_predictor(sample.x), teacher.shape_parameters(sample.x)
    at = torch.zeros_like(linear)[..., None]
    hazard = family.cumulative_hazard(at, linear[..., None], shape[..., None, :])
    least = torch.finfo(hazard.dtype).tiny
    return -hazard.squeeze(-1).squeeze(1).clamp(min=least, max=1 / least).log()


def gates_of_splits(
    trees: Sequence[Mapping[int, Split]], topology: Topology, n_features: int, like: Tensor
) -> GateParameters:
    """Gates of K trees given by the splits of their nodes; a gate without a split sends all rows left."""
    slope = np.zeros((len(trees), len(topology.branches), n_features))
    constant = np.full(slope.shape[:-1], CLOSED)
    for problem, splits in enumerate(trees):
        for node, own in splits.items():
            slope[problem, node - 1], constant[problem, node - 1] = own.slope, own.constant
    return GateParameters(torch.as_tensor(slope).to(like), torch.as_tensor(constant).to(like))


def distil_gates(
    x: Sequence[DesignMatrix],
    split: Tensor,
    target: Tensor,
    weight: Tensor,
    columns: GateColumns,
    topology: Topology,
    distillation: Distillation,
) -> GateParameters:
    """Gates, weights (K, B, q) and biases (K, B), that divide the rows of K problems by targets (K, J, n).

    A regression tree, whose gates are then moved and get further columns, as in :func:`gates_of_targets`. Of
    several targets those with the larger variance count more. Problems are of splits (K,), whose features of
    gates are x; their rows have weights (K, n) >= 0.
    """
    weight = weight / weight.sum(-1, keepdim=True)
    trees = []
    for problem, number in enumerate(split.tolist()):
        rows = target[problem].cpu().numpy(), weight[problem].cpu().numpy()
        trees.append(regression_tree(x[number], *rows, columns, topology, distillation.min_leaf))
    start = gates_of_splits(trees, topology, x[0].shape[-1], target)
    if distillation.gate_features != 1:
        # Few problems at a time: each has a copy of its rows.
        width = target.shape[-1]
        size = at_once(width * x[0].shape[-1], _ELEMENTS)
        parts = []
        for begin in range(0, len(split), size):
            some = slice(begin, begin + size)
            features = torch.stack([x[number].to_dense() for number in split[some].tolist()]).to(
                target.device
            )
            copied = features, target[some], weight[some]
            polish = _Polish(*copied, columns, topology, trees[some], distillation)
            parts.append(polish.run(start.select(some)))
        start = GateParameters(
            torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])
        )
    bias = start.bias.cpu().numpy().copy()
    for problem, number in enumerate(split.tolist()):
        of_gates = np.stack([scores(x[number], own) for own in start.weight[problem].cpu().numpy()], axis=1)
        bias[problem] = _balanced(
            of_gates, bias[problem], weight[problem].cpu().numpy(), trees[problem], distillation.min_leaf
        )
    return GateParameters(start.weight, torch.as_tensor(bias).to(target))


class _Polish:
    """Gates of several columns for K problems by leaves that fit targets (K, J, n)."""

    def __init__(
        self,
        x: Tensor,
        target: Tensor,
        weight: Tensor,
        columns: GateColumns,
        topology: Topology,
        trees: Sequence[dict[int, Split]],
        distillation: Distillation,
    ) -> None:
        self._topology, self._weight, self._distillation = topology, weight, distillation
        self._mean = mean = torch.einsum("kn,knq->kq", weight, x)
        deviation = torch.einsum("kn,knq->kq", weight, (x - mean[:, None]) ** 2).sqrt()
        self._deviation = torch.where(deviation > CONSTANT, deviation, torch.inf)
        self._z = (x - mean[:, None]) / self._deviation[:, None]
        centre = (weight[:, None] * target).sum(-1, keepdim=True)
        scale = (weight[:, None] * (target - centre) ** 2).sum(-1, keepdim=True).sqrt()
        self._target = (target - centre) / torch.where(scale > CONSTANT, scale, torch.ones_like(scale))
        # A distribution that fits its scale would count all targets alike.
        variance = scale.square()
        self._share = variance / variance.sum(1, keepdim=True).clamp(min=CONSTANT**2)
        # Columns of each feature, (C, q), and of each gate, (K, B, C).
        belongs = torch.zeros(len(columns.places), x.shape[-1], dtype=torch.bool, device=x.device)
        for number, places in enumerate(columns.places):
            belongs[number, torch.as_tensor(places)] = True
        self._belongs = belongs
        used = torch.zeros(
            len(trees), len(topology.branches), len(belongs), dtype=torch.bool, device=x.device
        )
        for problem, splits in enumerate(trees):
            for node, own in splits.items():
                used[problem, node - 1, own.column] = True
        self._used, self._splits = used, used.any(-1)
        reached = np.stack([[_is_leaf(leaf, splits) for leaf in topology.leaves] for splits in trees])
        self._reached = torch.as_tensor(reached, device=x.device)

    def run(self, start: GateParameters) -> GateParameters:
        """Gates in the units of the features, from such gates."""
        finite = torch.where(self._deviation.isinf(), 0.0, self._deviation)[:, None]
        weight = start.weight * finite
        bias = start.bias + (start.weight * self._mean[:, None]).sum(-1)
        with torch.no_grad():
            logits = torch.matmul(weight, self._z.mT) + bias[..., None]
            inside = log_path_probability(self._topology, logits).exp() * self._weight[:, None]
            total = inside.sum(-1)
            level = (inside[:, None] * self._target[:, :, None]).sum(-1) / total.clamp(min=CONSTANT)[:, None]
        level = level.flatten(1)
        theta = torch.cat([weight.flatten(1), bias, level, torch.full_like(level, 0.5)], dim=1)
        n_columns = self._distillation.gate_features
        if n_columns is None:
            n_columns = len(self._belongs)
            self._used = self._splits[..., None] & torch.ones_like(self._used)
        theta = self._fit(theta)
        for _ in range(1, min(n_columns, len(self._belongs))):
            if bool(self._used.all(-1)[self._splits].all()):
                break
            self._add_columns(theta)
            theta = self._fit(theta)
        weight, bias = self._gates(theta, self._mask())
        weight = weight / self._deviation[:, None]
        return GateParameters(weight, bias - (weight * self._mean[:, None]).sum(-1))

    def _fit(self, theta: Tensor) -> Tensor:
        mask = self._mask()
        function = AutogradFunction(lambda x, problems: self._value(x, problems, mask), len(theta))
        return minimize(function, theta, _POLISH).x

    def _mask(self) -> Tensor:
        """1 for features that a gate may use, (K, B, q)."""
        return torch.matmul(self._used.to(self._z), self._belongs.to(self._z))

    def _add_columns(self, theta: Tensor) -> None:
        """Let each gate use the column that lowers the loss the fastest, of those it does not use."""
        n_problems, n_gates, _ = self._used.shape
        theta = theta.detach().requires_grad_()
        everything = torch.ones(n_problems, n_gates, self._z.shape[-1]).to(self._z)
        value = self._value(theta, torch.arange(n_problems, device=theta.device), everything)
        (gradient,) = torch.autograd.grad(value.sum(), theta)
        size = gradient[:, : n_gates * self._z.shape[-1]].unflatten(1, (n_gates, -1)).abs()
        of_columns = torch.where(self._belongs, size[:, :, None], 0.0).amax(-1)
        of_columns = torch.where(self._used, -1.0, of_columns)
        best = torch.nn.functional.one_hot(of_columns.argmax(-1), len(self._belongs)).bool()
        self._used = self._used | (best & self._splits[..., None])

    def _gates(
        self, theta: Tensor, mask: Tensor, problems: Tensor | slice = slice(None)
    ) -> tuple[Tensor, Tensor]:
        """Weights (K, B, q) and biases (K, B), columns in units of their standard deviations."""
        n_gates = len(self._topology.branches)
        weights, biases = theta[:, : n_gates * self._z.shape[-1]], theta[:, n_gates * self._z.shape[-1] :]
        bias = torch.where(self._splits[problems], biases[:, :n_gates], CLOSED)
        return weights.unflatten(1, (n_gates, -1)) * mask, bias

    def _value(self, theta: Tensor, problems: Tensor, mask: Tensor) -> Tensor:
        weight, bias = self._gates(theta, mask[problems], problems)
        n_targets, n_leaves = self._target.shape[1], len(self._topology.leaves)
        level, log_shape = theta[:, -2 * n_targets * n_leaves :].unflatten(1, (2, n_targets, -1)).unbind(1)
        rows = self._weight[problems][:, None]
        logits = torch.matmul(weight, self._z[problems].mT) + bias[..., None]
        inside = log_path_probability(self._topology, logits).exp() * rows
        log_shape = log_shape.clamp(-5, 5)[..., None]
        scaled = log_shape.exp() * (self._target[problems][:, :, None] - level[..., None])
        losses = (inside[:, None] * (2 * softplus(scaled) - scaled - log_shape)).sum((-2, -1))
        loss: Tensor = (self._share[problems, :, 0] * losses).sum(-1)
        short = torch.where(
            self._reached[problems], (self._distillation.min_leaf - inside.sum(-1)).clamp(min=0), 0.0
        )
        loss += TOO_SMALL * short.square().sum(-1) + _GATE_RIDGE / 2 * weight.square().sum((-2, -1))
        return loss


def _is_leaf(leaf: int, splits: dict[int, Split]) -> bool:
    """True if rows can end in a leaf: gates that split nothing send left."""
    while leaf > 1:
        if leaf % 2 and leaf // 2 not in splits:
            return False
        leaf //= 2
    return True


def _n_leaves(node: int, splits: dict[int, Split]) -> int:
    return _n_leaves(2 * node, splits) + _n_leaves(2 * node + 1, splits) if node in splits else 1


def _balanced(
    scores: FloatArray, bias: FloatArray, weight: FloatArray, splits: dict[int, Split], min_leaf: float
) -> FloatArray:
    """Constants of gates (B,) with `scores` (n, B), moved as little as the least weight asks for."""
    bias = bias.copy()
    rows_of = {1: np.flatnonzero(weight > 0)}
    lightest = weight[rows_of[1]].min()
    for node in sorted(splits):
        rows = rows_of[node]
        score = scores[rows, node - 1] + bias[node - 1]
        order = np.argsort(-score, kind="stable")
        score, left = score[order], weight[rows][order].cumsum()
        # Leaves of whole rows: what is left on a side must be cut again, each time by up to a row amiss. The
        # lightest row, so that integer weights ask for what the rows repeated ask for.
        counts = [_n_leaves(child, splits) for child in (2 * node, 2 * node + 1)]
        least, above = (min_leaf * count + (count - 1) * lightest for count in counts)
        most = left[-1] - above
        cuts = np.flatnonzero(score[:-1] > score[1:])
        middle = (score[cuts] + score[cuts + 1]) / 2
        present = left[score >= 0][-1] if (score >= 0).any() else 0.0
        if len(cuts) and not least - CONSTANT <= present <= most + CONSTANT:
            # Where rows of the same score leave no such cut, the one that misses by the least.
            missed = np.maximum(least - left[cuts], 0) + np.maximum(left[cuts] - most, 0)
            best = np.lexsort((np.abs(middle), np.round(missed, 9)))[0]
            bias[node - 1] -= middle[best]
        goes_left = scores[rows, node - 1] + bias[node - 1] >= 0
        rows_of[2 * node], rows_of[2 * node + 1] = rows[goes_left], rows[~goes_left]
    return bias
