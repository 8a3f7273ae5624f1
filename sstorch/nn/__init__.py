"""Torch modules that return distributions of event times: heads of networks, soft trees, hazard families."""

# Names with "as" are imported by other rooms; users need the others.
from sstorch.data.design_matrix import DesignMatrix as DesignMatrix
from sstorch.nn.distribution import SurvivalDistribution, competing_nll
from sstorch.nn.hazards.base import HazardFamily
from sstorch.nn.hazards.gamma import GeneralizedGamma
from sstorch.nn.hazards.logistic_hazard import LogisticHazard
from sstorch.nn.hazards.parametric import (
    Exponential,
    Gompertz,
    LogLogistic,
    LogNormal,
    PiecewiseExponential,
    Weibull,
)
from sstorch.nn.hazards.registry import FAMILIES as FAMILIES
from sstorch.nn.hazards.registry import check_family as check_family
from sstorch.nn.hazards.registry import make_family, register_family
from sstorch.nn.hazards.spline import Spline
from sstorch.nn.heads import HazardHead
from sstorch.nn.leaves import LeafParameters as LeafParameters
from sstorch.nn.routing import GateParameters as GateParameters
from sstorch.nn.routing import Topology as Topology
from sstorch.nn.soft_tree import SoftTree

__all__ = [
    "Exponential",
    "GeneralizedGamma",
    "Gompertz",
    "HazardFamily",
    "HazardHead",
    "LogLogistic",
    "LogNormal",
    "LogisticHazard",
    "PiecewiseExponential",
    "SoftTree",
    "Spline",
    "SurvivalDistribution",
    "Weibull",
    "competing_nll",
    "make_family",
    "register_family",
]
