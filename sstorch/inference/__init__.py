"""Standard errors, confidence intervals and tests of fitted regressions and groups."""

from sstorch.inference.by_group import GroupEffects, effect_by_group
from sstorch.inference.coefficients import Effect, coefficients, effect, terms, wald_test
from sstorch.inference.covariance import CovarianceKind, FitCovariance, HazardCovariance
from sstorch.inference.groups import groups
from sstorch.inference.hazard_rows import HazardRows
from sstorch.inference.imputations import pool_coefficients, pool_predictions
from sstorch.inference.likelihood_ratio import likelihood_ratio_test
from sstorch.inference.model import Inferable
from sstorch.inference.predictions import Intervals, predict
from sstorch.inference.sandwich import with_covariance

__all__ = [
    "CovarianceKind",
    "Effect",
    "FitCovariance",
    "GroupEffects",
    "HazardCovariance",
    "HazardRows",
    "Inferable",
    "Intervals",
    "coefficients",
    "effect",
    "effect_by_group",
    "groups",
    "likelihood_ratio_test",
    "pool_coefficients",
    "pool_predictions",
    "predict",
    "terms",
    "wald_test",
    "with_covariance",
]
