"""Groups of a tree, soft or exact: tables, stability, validation on held-out rows, recalibration."""

from sstorch.groups.functions import (
    concordance_of_groups,
    group_table,
    recalibrate,
    stability,
    validate_groups,
)
from sstorch.groups.recalibration import Recalibration
from sstorch.groups.stability import Stability
from sstorch.groups.validation import CauseGroupValidation, CompetingGroupValidation, GroupValidation

__all__ = [
    "CauseGroupValidation",
    "CompetingGroupValidation",
    "GroupValidation",
    "Recalibration",
    "Stability",
    "concordance_of_groups",
    "group_table",
    "recalibrate",
    "stability",
    "validate_groups",
]
