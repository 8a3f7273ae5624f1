"""Trained trees: what predicting, reading, scoring and exporting need of them."""

from sstorch.fitted.tree import FittedTree

__all__ = ["FittedTree"]
