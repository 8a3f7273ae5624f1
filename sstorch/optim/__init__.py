"""Optimisation: batched L-BFGS, node-based decomposition, and trainers of any set of nodes."""

from sstorch.optim.batched_lbfgs import LBFGSOptions, OptimizationResult, Status, minimize
from sstorch.optim.nodec import Joint, Leaves, Nodec, NodecJoint, Thresholds, Trainer
from sstorch.optim.run import TrainingRun
from sstorch.optim.steps import torch_minimizer

__all__ = [
    "Joint",
    "LBFGSOptions",
    "Leaves",
    "Nodec",
    "NodecJoint",
    "OptimizationResult",
    "Status",
    "Thresholds",
    "Trainer",
    "TrainingRun",
    "minimize",
    "torch_minimizer",
]
