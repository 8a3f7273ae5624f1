"""Validation of fitted models: scores on other rows, groups and their stability, leaves, model cards."""

from sstorch.groups.table import group_table, model_card
from sstorch.groups.validation import stability, validate_groups
from sstorch.inference.hazard_rows import residuals
from sstorch.inference.predictions import contrast
from sstorch.validation.comparison import compare
from sstorch.validation.report import validate

__all__ = [
    "compare",
    "contrast",
    "group_table",
    "model_card",
    "residuals",
    "stability",
    "validate",
    "validate_groups",
]
