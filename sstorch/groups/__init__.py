"""Groups of a tree, soft or exact: tables, stability, validation on held-out rows, recalibration."""

from sstorch.groups.competing_validation import CauseGroupValidation, CompetingGroupValidation
from sstorch.groups.recalibration import Recalibration, recalibrate
from sstorch.groups.resampling import Partition, Resamples
from sstorch.groups.stability import Stability
from sstorch.groups.validation import GroupValidation

__all__ = [
    "CauseGroupValidation",
    "CompetingGroupValidation",
    "GroupValidation",
    "Partition",
    "Recalibration",
    "Resamples",
    "Stability",
    "recalibrate",
]
