"""Models as formulas, and formulas as code: Python, JavaScript, SQL, ONNX, and a page to enter a patient.

A model is first written as one :class:`Formula` of scalars, then printed: what the formula says, every
language says. Nothing of this package or of torch is needed to run what is printed.
"""

from sstorch.deploy.expression import Expression, Formula

__all__ = ["Expression", "Formula"]
