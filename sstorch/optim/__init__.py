"""Optimisation: batched L-BFGS, initial solutions and node-based decomposition."""

from sstorch.optim.batched_lbfgs import LBFGSOptions, OptimizationResult, Status, minimize
from sstorch.optim.nodec import THRESHOLDS, Joint, Leaves, Nodec, NodecJoint, Thresholds
from sstorch.optim.run import TrainingRun
from sstorch.optim.starts.clusters import initialize_kmeans, initialize_random, problem_seed
from sstorch.optim.starts.cox import initialize_cox
from sstorch.optim.starts.distilled import initialize_regression
from sstorch.optim.steps import Minimizer, Step, lbfgs, torch_minimizer
from sstorch.optim.trainer import ENGINES, Engine, Trainer

__all__ = [
    "ENGINES",
    "THRESHOLDS",
    "Engine",
    "Joint",
    "LBFGSOptions",
    "Leaves",
    "Minimizer",
    "Nodec",
    "NodecJoint",
    "OptimizationResult",
    "Status",
    "Step",
    "Thresholds",
    "Trainer",
    "TrainingRun",
    "initialize_cox",
    "initialize_kmeans",
    "initialize_random",
    "initialize_regression",
    "lbfgs",
    "minimize",
    "problem_seed",
    "torch_minimizer",
]
