"""Gates distilled from a regression: groups of rows for which it predicts alike.

With all covariates in every leaf the likelihood gives a gate nothing for separating prognoses. A regression
without gates, the teacher, predicts the log time of every training row; gates are found on these predictions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sstorch.data.design_matrix import first_features
from sstorch.nn import GateParameters, SoftTree, Topology
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim.nodec import Joint
from sstorch.optim.starts.clusters import start_leaves
from sstorch.optim.starts.regression_tree import GateColumns, Split, gates_of_splits, regression_tree

# Of rows whose hazard underflows.
_LEAST_HAZARD = 1e-12


def gates_of_targets(
    sample: Sample,
    targets: Tensor,
    n_gate_features: int,
    columns: GateColumns,
    topology: Topology,
    min_leaf: float,
) -> GateParameters:
    """Gates of one column each by a regression tree of predictions of teachers, (R, J, M).

    Each leaf has at least `min_leaf` of the weight (Hinton, Vinyals and Dean 2015, "Distilling the knowledge
    in a neural network").
    """
    stored = first_features(sample.x, n_gate_features).to("cpu", torch.float64)
    share = sample.weight.double() / sample.weight.double().sum(-1, keepdim=True)
    known: dict[tuple[int | bytes, ...], dict[int, Split]] = {}
    trees = []
    for problem, split in enumerate(stored.split.tolist()):
        given = targets[problem].double().cpu().numpy(), share[problem].cpu().numpy()
        key = split, *(part.tobytes() for part in given)  # starts of a split have the same teacher
        if key not in known:
            known[key] = regression_tree(stored.of_split(split), *given, columns, topology, min_leaf)
        trees.append(known[key])
    return gates_of_splits(trees, topology, n_gate_features, targets.double())


def single_leaf(tree: SoftTree) -> SoftTree:
    """A tree of depth 0 with the family, features and time scale of another, its parameters zero."""
    single = tree.blank(0, tree.family, tree.batch_shape)
    single.set_time_scale(tree.log_time_scale.exp())
    return single


def initialize_regression(tree: SoftTree, objective: TrainingObjective, sample: Sample) -> SoftTree:
    """Leaves that are all the regression without gates, in place; it is returned as a tree of depth 0."""
    teacher = single_leaf(tree)
    start_leaves(teacher, sample)
    Joint().train(teacher, objective, sample)
    for node in tree.topology.leaves:
        tree.leaf(node).load_state_dict(teacher.leaf(1).state_dict())
    return teacher


@torch.no_grad()
def log_hazard_targets(tree: SoftTree, sample: Sample, log_time: Tensor) -> Tensor:
    """Log cumulative hazard of each row's leaf at a time (R,) x the root of the number of events, (R, M)."""
    at = (log_time.to(tree.log_time_scale) - tree.log_time_scale)[:, None, None]
    hazard = _hazards(tree, sample, at).gather(1, tree.apply_leaf(sample.x)[:, None]).squeeze(1)
    n_events = (sample.weight * sample.event).sum(-1, keepdim=True)
    return n_events.sqrt() * hazard.clamp(min=_LEAST_HAZARD).log()


@torch.no_grad()
def predicted_log_time(teacher: SoftTree, sample: Sample) -> Tensor:
    """A log time that each row's risk goes with, (R, M): the linear predictor, turned unless it is of times.

    With linear shapes it is minus the log cumulative hazard at the geometric mean of the training times.
    """
    family = teacher.family
    if family.ancillary == "constant" and family.ratio is not None:
        linear = teacher.leaf_parameters().linear_predictor(sample.x).squeeze(1)
        return linear if family.ratio == "time ratio" else -linear
    hazard = _hazards(teacher, sample, torch.zeros_like(teacher.log_time_scale)[:, None, None]).squeeze(1)
    least = torch.finfo(hazard.dtype).tiny
    return -hazard.clamp(min=least, max=1 / least).log()


def _hazards(tree: SoftTree, sample: Sample, log_time: Tensor) -> Tensor:
    """Cumulative hazards of rows in all leaves at log times in model units (R, 1, 1), (R, L, M)."""
    leaves = tree.leaf_parameters()
    linear = leaves.linear_predictor(sample.x)[..., None]
    shape = leaves.shape_parameters(sample.x)[..., None, :]
    at = log_time[..., None].expand_as(linear)
    return tree.family.cumulative_hazard(at, linear, shape).squeeze(-1)
