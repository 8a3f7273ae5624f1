"""Standard errors, confidence intervals and tests of fitted regressions and groups."""

from sstorch.inference.coefficients import Effect, coefficients, effect, terms, wald_test
from sstorch.inference.covariance import CovarianceKind, FitCovariance, HazardCovariance, Inferable
from sstorch.inference.hazard_rows import likelihood_ratio_test, with_covariance
from sstorch.inference.predictions import Intervals, groups, predict

__all__ = [
    "CovarianceKind",
    "Effect",
    "FitCovariance",
    "HazardCovariance",
    "Inferable",
    "Intervals",
    "coefficients",
    "effect",
    "groups",
    "likelihood_ratio_test",
    "predict",
    "terms",
    "wald_test",
    "with_covariance",
]
