"""Torch modules that return distributions of event times: heads of networks, soft trees, hazard families."""

from sstorch.data.design_matrix import DesignMatrix
from sstorch.nn.distribution import SurvivalDistribution, competing_nll
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
from sstorch.nn.heads import HazardHead
from sstorch.nn.leaves import LeafParameters
from sstorch.nn.routing import GateParameters, Topology
from sstorch.nn.soft_tree import SoftTree

__all__ = [
    "FAMILIES",
    "DesignMatrix",
    "Exponential",
    "GateParameters",
    "GeneralizedGamma",
    "Gompertz",
    "HazardFamily",
    "HazardHead",
    "LeafParameters",
    "LogLogistic",
    "LogNormal",
    "LogisticHazard",
    "PiecewiseExponential",
    "SoftTree",
    "Spline",
    "SurvivalDistribution",
    "Topology",
    "Weibull",
    "check_family",
    "competing_nll",
    "make_family",
    "register_family",
]
