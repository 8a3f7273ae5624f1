"""Standard errors, confidence intervals and tests of fitted regressions and groups."""

from sstorch.inference.coefficients import coefficients, effect, terms
from sstorch.inference.hazard_rows import likelihood_ratio_test, with_sandwich
from sstorch.inference.predictions import predict

__all__ = ["coefficients", "effect", "likelihood_ratio_test", "predict", "terms", "with_sandwich"]
