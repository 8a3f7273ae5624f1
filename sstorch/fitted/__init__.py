"""Trained trees: what predicting, reading, scoring and exporting need of them."""

from sstorch.fitted.tree import EVENT, FittedTree, Prediction

__all__ = ["EVENT", "FittedTree", "Prediction"]
