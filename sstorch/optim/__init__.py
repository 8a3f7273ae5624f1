"""Optimisation: batched L-BFGS, initial solutions and node-based decomposition."""

from sstorch.optim.adam import Adam
from sstorch.optim.branch_update import THRESHOLDS, Thresholds
from sstorch.optim.checkpoint import Checkpoint
from sstorch.optim.cox_start import initialize_cox
from sstorch.optim.decomposition import Nodec
from sstorch.optim.function import AutogradFunction, BatchedFunction
from sstorch.optim.growth import initialize_grown
from sstorch.optim.hard_tree import HardTree, greedy_tree, initialize_greedy, initialize_hard
from sstorch.optim.initialization import initialize_kmeans, initialize_random, problem_seed
from sstorch.optim.joint import JOINT_RACE, Joint, NodecJoint
from sstorch.optim.lbfgs import LBFGSOptions, minimize
from sstorch.optim.race import Heats, Race
from sstorch.optim.result import OptimizationResult, Status
from sstorch.optim.run import TrainingRun
from sstorch.optim.sharded_step import minimize_step
from sstorch.optim.trainer import Trainer

__all__ = [
    "JOINT_RACE",
    "THRESHOLDS",
    "Adam",
    "AutogradFunction",
    "BatchedFunction",
    "Checkpoint",
    "HardTree",
    "Heats",
    "Joint",
    "LBFGSOptions",
    "Nodec",
    "NodecJoint",
    "OptimizationResult",
    "Race",
    "Status",
    "Thresholds",
    "Trainer",
    "TrainingRun",
    "greedy_tree",
    "initialize_cox",
    "initialize_greedy",
    "initialize_grown",
    "initialize_hard",
    "initialize_kmeans",
    "initialize_random",
    "minimize",
    "minimize_step",
    "problem_seed",
]
