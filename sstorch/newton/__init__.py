"""Newton's method for a batch of functions: the only one of the package."""

from sstorch.newton.minimize import Gaussian, Problem, Smooth, newton

__all__ = ["Gaussian", "Problem", "Smooth", "newton"]
