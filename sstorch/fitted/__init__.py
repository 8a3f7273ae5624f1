"""Trained trees: what predicting, reading, scoring and exporting need of them."""

from sstorch.fitted.model import EVENT
from sstorch.fitted.tree import FittedTree, Prediction

__all__ = ["EVENT", "FittedTree", "Prediction"]
