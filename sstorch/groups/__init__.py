"""Groups of a tree, soft or exact: tables, stability, validation, recalibration, model card."""

from sstorch.groups.recalibration import Recalibration

__all__ = ["Recalibration"]
