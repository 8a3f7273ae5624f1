"""External validation at one horizon: the table that reviewers ask for, its figures, page and checklist."""

from sstorch.validation.report import ValidationReport, validate

__all__ = ["ValidationReport", "validate"]
