"""Validation of fitted models: scores on other rows, groups and their stability, leaves, model cards."""

from sstorch.groups.card import model_card
from sstorch.groups.recalibration import recalibrate
from sstorch.groups.stability import stability
from sstorch.groups.table import group_table
from sstorch.groups.validation import concordance_of_groups, validate_groups
from sstorch.inference.predictions import contrast
from sstorch.validation.comparison import ModelComparison, compare
from sstorch.validation.report import ValidationReport, validate
from sstorch.validation.residuals import residuals

__all__ = [
    "ModelComparison",
    "ValidationReport",
    "compare",
    "concordance_of_groups",
    "contrast",
    "group_table",
    "model_card",
    "recalibrate",
    "residuals",
    "stability",
    "validate",
    "validate_groups",
]
