"""Models to compare with, behind one interface: from Kaplan-Meier to neural networks and exact trees."""

from sstorch.evaluation.baselines.base import Baseline, Curves
from sstorch.evaluation.baselines.registry import BASELINES, make_baseline

__all__ = ["BASELINES", "Baseline", "Curves", "make_baseline"]
