"""Likelihood-ratio test of nested regressions."""

from __future__ import annotations

import pandas as pd
from scipy.stats import chi2

from sstorch.checks import rows_text
from sstorch.exceptions import ConfigError, DataError
from sstorch.inference.covariance import Refitted, covariance_of
from sstorch.inference.hazard_rows import HazardRows


def likelihood_ratio_test(
    smaller: Refitted, larger: Refitted, X: object, y: object, sample_weight: object = None
) -> pd.Series:
    """Likelihood-ratio test of a regression against a larger regression.

    Args:
        smaller: fitted regression without penalties, ``Penalties(ridge=0, roughness=0)``, nested in
            ``larger``.
        larger: fitted regression of the same family without penalties.
        X: training rows of both, with the columns of both.
        y: outcome of the rows.
        sample_weight: weights of the training, which must be counts of rows. With sampling weights the
            statistic has another distribution: use :func:`wald_test` with the sandwich.

    Returns:
        ``statistic``, twice the difference of the log-likelihoods, ``df``, the difference of the numbers of
        estimable coefficients, and ``p``.

    Raises:
        ConfigError: a model has no covariance, or has penalties (the statistic is then not chi-squared).
        DataError: the larger model has no more coefficients than the smaller one, or a lower likelihood;
            weights are not counts, or the rows are not the training rows.
    """
    found = []
    for model in (smaller, larger):
        hazards = covariance_of(model).hazards.values()
        if any(bool((each.precision != 0).any()) for each in hazards):
            raise ConfigError(
                "a likelihood-ratio test needs models without penalties: fit with "
                "penalties=Penalties(ridge=0, roughness=0), or see wald_test()"
            )
        data = model._scored(X, y, sample_weight)
        if (fractions := data.sample_weight % 1.0 != 0.0).any():
            raise DataError(
                f"sample_weight must be counts of rows for a likelihood-ratio test, got "
                f"{data.sample_weight[fractions][0]:g} in {rows_text(fractions)}: for sampling weights see "
                "wald_test() with the sandwich"
            )
        for rows in HazardRows.by_cause(model, data):
            rows.check_training()
        tree = model._tree
        total = tree.log_likelihood(tree.encode(data.frame), data) * float(data.sample_weight.sum())
        found.append((total, sum(len(each.theta) - each.null.shape[1] for each in hazards)))
    (low, few), (high, many) = found
    if many <= few:
        raise DataError(
            f"larger must have more estimable coefficients than smaller, which has {few}, got {many}: "
            "exchange them, or leave out columns that are constant or linear combinations of others"
        )
    statistic = 2 * (high - low)
    if statistic < -1e-6:
        raise DataError("the larger model has the lower likelihood: the models are not nested")
    return pd.Series({"statistic": statistic, "df": many - few, "p": float(chi2.sf(statistic, many - few))})
