"""Torch modules: topology, soft routing, leaf hazards and the tree that joins them."""

from sstorch.nn.design_matrix import DesignMatrix
from sstorch.nn.hazards import FAMILIES, HazardFamily, LogLogistic, Weibull, make_family
from sstorch.nn.soft_tree import PREDICTIONS, Prediction, SoftTree
from sstorch.nn.topology import MAX_DEPTH, Topology

__all__ = [
    "FAMILIES",
    "MAX_DEPTH",
    "PREDICTIONS",
    "DesignMatrix",
    "HazardFamily",
    "LogLogistic",
    "Prediction",
    "SoftTree",
    "Topology",
    "Weibull",
    "make_family",
]
