"""Groups of a tree, soft or exact: tables, stability, validation on held-out rows, recalibration."""

from sstorch.groups.recalibration import Recalibration
from sstorch.groups.stability import Stability
from sstorch.groups.validation import GroupDifference, GroupValidation

__all__ = [
    "GroupDifference",
    "GroupValidation",
    "Recalibration",
    "Stability",
]
