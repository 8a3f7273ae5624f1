"""The minimisation problems of a training step, each as a batched function of the thawed parameters.

What is frozen in a step is evaluated once, when the step is made; an evaluation touches only the thawed
nodes, as rows (K, d) of their parameters, node after node.
"""

from sstorch.optim.steps.base import (
    LOSS_CEILING,
    Minimizer,
    Step,
    by_autograd,
    freeze_except,
    lbfgs,
)
from sstorch.optim.steps.joint import JointStep
from sstorch.optim.steps.node import BranchStep, LeafStep, LogisticStep, SharedSlopesStep

__all__ = [
    "LOSS_CEILING",
    "BranchStep",
    "JointStep",
    "LeafStep",
    "LogisticStep",
    "Minimizer",
    "SharedSlopesStep",
    "Step",
    "by_autograd",
    "freeze_except",
    "lbfgs",
]
