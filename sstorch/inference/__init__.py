"""Standard errors, confidence intervals and tests of fitted regressions and groups."""

from sstorch.inference.added import AddedFeatures
from sstorch.inference.by_group import GroupEffects, effect_by_group
from sstorch.inference.coefficients import Effect, coefficients, effect, terms, wald_test
from sstorch.inference.covariance import CovarianceKind, FitCovariance, HazardCovariance
from sstorch.inference.groups import groups, honest_text
from sstorch.inference.hazard_rows import HazardRows
from sstorch.inference.imputations import pool_coefficients, pool_predictions
from sstorch.inference.likelihood_ratio import likelihood_ratio_test
from sstorch.inference.model import Inferable, Refitted
from sstorch.inference.predictions import Intervals, predict
from sstorch.inference.rows import LeafDerivatives
from sstorch.inference.sandwich import with_covariance
from sstorch.inference.terms import term_facts

__all__ = [
    "AddedFeatures",
    "CovarianceKind",
    "Effect",
    "FitCovariance",
    "GroupEffects",
    "HazardCovariance",
    "HazardRows",
    "Inferable",
    "Intervals",
    "LeafDerivatives",
    "Refitted",
    "coefficients",
    "effect",
    "effect_by_group",
    "groups",
    "honest_text",
    "likelihood_ratio_test",
    "pool_coefficients",
    "pool_predictions",
    "predict",
    "term_facts",
    "terms",
    "wald_test",
    "with_covariance",
]
