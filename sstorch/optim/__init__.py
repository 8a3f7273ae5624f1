"""Optimisation: batched L-BFGS, initial solutions and node-based decomposition."""

from sstorch.optim.checkpoint import Checkpoint
from sstorch.optim.engine import ENGINES, Engine
from sstorch.optim.joint import JOINT_RACE, Joint, NodecJoint
from sstorch.optim.lbfgs import (
    AutogradFunction,
    BatchedFunction,
    LBFGSOptions,
    OptimizationResult,
    Status,
    minimize,
)
from sstorch.optim.leaves import Leaves
from sstorch.optim.nodec import THRESHOLDS, Nodec, Thresholds
from sstorch.optim.race import Race
from sstorch.optim.run import TrainingRun
from sstorch.optim.starts.clusters import initialize_kmeans, initialize_random, problem_seed
from sstorch.optim.starts.cox import initialize_cox
from sstorch.optim.starts.distilled import (
    Distillation,
    gates_of_targets,
    initialize_regression,
    log_hazard_targets,
    predicted_log_time,
)
from sstorch.optim.starts.gate_rows import GateColumns
from sstorch.optim.steps import minimize_step
from sstorch.optim.trainer import Trainer

__all__ = [
    "ENGINES",
    "JOINT_RACE",
    "THRESHOLDS",
    "AutogradFunction",
    "BatchedFunction",
    "Checkpoint",
    "Distillation",
    "Engine",
    "GateColumns",
    "Joint",
    "LBFGSOptions",
    "Leaves",
    "Nodec",
    "NodecJoint",
    "OptimizationResult",
    "Race",
    "Status",
    "Thresholds",
    "Trainer",
    "TrainingRun",
    "gates_of_targets",
    "initialize_cox",
    "initialize_kmeans",
    "initialize_random",
    "initialize_regression",
    "log_hazard_targets",
    "minimize",
    "minimize_step",
    "predicted_log_time",
    "problem_seed",
]
