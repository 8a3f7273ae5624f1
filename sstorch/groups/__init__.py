"""Groups of a tree, soft or exact: tables, stability, validation on held-out rows, recalibration."""

from sstorch.groups.recalibration import Recalibration
from sstorch.groups.stability import Stability
from sstorch.groups.validation import CauseGroupValidation, CompetingGroupValidation, GroupValidation

__all__ = [
    "CauseGroupValidation",
    "CompetingGroupValidation",
    "GroupValidation",
    "Recalibration",
    "Stability",
]
