"""Newton's method for a batch of functions: the only one of the package."""

from sstorch.newton.hessian import Hessian, System
from sstorch.newton.minimize import UNCONVERGED, Gaussian, Optimum, Problem, newton, step_to
from sstorch.newton.smooth import Smooth

__all__ = [
    "UNCONVERGED",
    "Gaussian",
    "Hessian",
    "Optimum",
    "Problem",
    "Smooth",
    "System",
    "newton",
    "step_to",
]
