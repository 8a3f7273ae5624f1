"""Trees where there is no Python: code, queries, ONNX graphs, programs of torch, workbooks, pages.

A tree is first written as one :class:`Formula` of scalars, then printed, so that every language computes the
same. Nothing of this package is needed to run what is printed.
"""

from sstorch.deploy.deployable import Counts, Deployable, Deployed
from sstorch.deploy.exports import (
    export_calculator,
    export_code,
    export_onnx,
    export_program,
    export_workbook,
)
from sstorch.deploy.expression import Expression, Formula
from sstorch.language import language_texts

__all__ = [
    "Counts",
    "Deployable",
    "Deployed",
    "Expression",
    "Formula",
    "export_calculator",
    "export_code",
    "export_onnx",
    "export_program",
    "export_workbook",
    "language_texts",
]
