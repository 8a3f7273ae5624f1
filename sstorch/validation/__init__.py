"""Validation of fitted models: scores on other rows, groups and their stability, leaves, model cards."""

from sstorch.groups import concordance_of_groups, group_table, recalibrate, stability, validate_groups
from sstorch.groups.model_card import model_card
from sstorch.soft.split_test import SplitTest, split_test
from sstorch.validation.column_drift import population_stability_index
from sstorch.validation.comparison import ModelComparison, compare
from sstorch.validation.contrast import contrast
from sstorch.validation.drift import DriftReport, drift
from sstorch.validation.model_check import ModelCheck, check
from sstorch.validation.report import ValidationReport, validate
from sstorch.validation.residuals import residuals

__all__ = [
    "DriftReport",
    "ModelCheck",
    "ModelComparison",
    "SplitTest",
    "ValidationReport",
    "check",
    "compare",
    "concordance_of_groups",
    "contrast",
    "drift",
    "group_table",
    "model_card",
    "population_stability_index",
    "recalibrate",
    "residuals",
    "split_test",
    "stability",
    "validate",
    "validate_groups",
]
