"""Validation of fitted models: scores on other rows, groups and their stability, leaves, model cards."""

from sstorch.groups.functions import (
    concordance_of_groups,
    group_table,
    model_card,
    recalibrate,
    stability,
    validate_groups,
)
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
