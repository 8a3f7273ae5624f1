"""Validation of fitted models: scores on other rows, groups and their stability, leaves, model cards."""

from sstorch.groups.card import model_card
from sstorch.groups.stability import stability
from sstorch.groups.table import group_table
from sstorch.groups.validation import validate_groups
from sstorch.inference.predictions import contrast
from sstorch.validation.comparison import compare
from sstorch.validation.report import validate
from sstorch.validation.residuals import residuals

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
