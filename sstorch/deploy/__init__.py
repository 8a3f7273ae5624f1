"""Trees outside of this package: Python and JavaScript code, programs of torch, calculator pages.

A tree is first written as one formula of scalars, then printed, so that every language computes the
same. Nothing of this package is needed to run what is printed.
"""

from sstorch.deploy.exports import export_calculator, export_code, export_program

__all__ = [
    "export_calculator",
    "export_code",
    "export_program",
]
