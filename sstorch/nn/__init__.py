"""Torch modules: topology, soft routing, leaf hazards and the tree that joins them."""

from sstorch.nn.design_matrix import DesignMatrix
from sstorch.nn.hazards import (
    FAMILIES,
    Exponential,
    GeneralizedGamma,
    Gompertz,
    HazardFamily,
    LogisticHazard,
    LogLogistic,
    LogNormal,
    PiecewiseExponential,
    Spline,
    Weibull,
    check_family,
    make_family,
    register_family,
)
from sstorch.nn.leaves import LeafParameters
from sstorch.nn.routing import GateParameters, Topology
from sstorch.nn.soft_tree import Prediction, SoftTree

__all__ = [
    "FAMILIES",
    "DesignMatrix",
    "Exponential",
    "GateParameters",
    "GeneralizedGamma",
    "Gompertz",
    "HazardFamily",
    "LeafParameters",
    "LogLogistic",
    "LogNormal",
    "LogisticHazard",
    "PiecewiseExponential",
    "Prediction",
    "SoftTree",
    "Spline",
    "Topology",
    "Weibull",
    "check_family",
    "make_family",
    "register_family",
]
