"""Trees where there is no Python: code, queries, ONNX graphs, programs of torch, and a page for one patient.

A tree is first written as one :class:`Formula` of scalars, then printed, so that every language computes the
same. Nothing of this package is needed to run what is printed.
"""

from sstorch.deploy.deployable import Deployable, Deployed
from sstorch.deploy.exports import export_calculator, export_code, export_onnx, export_program
from sstorch.deploy.expression import Expression, Formula

__all__ = [
    "Deployable",
    "Deployed",
    "Expression",
    "Formula",
    "export_calculator",
    "export_code",
    "export_onnx",
    "export_program",
]
