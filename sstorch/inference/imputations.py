"""Coefficients and predictions of models fitted to several imputations, pooled by Rubin's rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import t

from sstorch._types import FloatArray
from sstorch.checks import check_share, names_text
from sstorch.exceptions import ConfigError
from sstorch.inference.coefficients import coefficient_table
from sstorch.inference.model import Inferable
from sstorch.inference.predictions import Intervals, Quantity, What, predict


class Pooled(NamedTuple):
    """Estimates of M imputations as one, arrays of one shape."""

    estimate: FloatArray  # the mean
    error: FloatArray  # standard error, of the variance within and between imputations
    df: FloatArray  # degrees of freedom of the t distribution; infinite where imputations agree
    missing: FloatArray  # fraction of the information that is missing, in [0, 1)

    @classmethod
    def of(cls, estimates: FloatArray, errors: FloatArray) -> Pooled:
        """Of estimates and their standard errors, (M, ...), by Rubin's rules."""
        m = len(estimates)
        within = np.mean(errors**2, axis=0)
        between = (1 + 1 / m) * np.var(estimates, axis=0, ddof=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = between / within
            df = (m - 1) * (1 + 1 / ratio) ** 2
            missing = (ratio + 2 / (df + 3)) / (1 + ratio)
        return cls(np.mean(estimates, axis=0), np.sqrt(within + between), df, missing)

    def width(self, level: float) -> FloatArray:
        """Half of the width of confidence intervals."""
        width: FloatArray = t.ppf((1 + level) / 2, self.df) * self.error
        return width


def pool_coefficients(models: Sequence[Inferable], level: float = 0.95) -> pd.DataFrame:
    """Pool coefficients of models fitted to several imputations by Rubin's rules.

    Contrasts use the reference categories and the quantiles of curves of the first model.

    Args:
        models: M >= 2 fitted regressions with the same parameters, one per imputed frame.
        level: level of the confidence limits.

    Returns:
        As :func:`~sstorch.inference.coefficients`, with the t distribution, its degrees of freedom ``df`` and
        ``missing information``, the fraction of missing information.

    Raises:
        ConfigError: fewer than two models, models of different terms, or one without a covariance.

    References:
        Rubin (1987), Multiple Imputation for Nonresponse in Surveys, chapter 3.
    """
    check_share(level, "level")
    _check_several(models)
    first, *others = (coefficient_table(model, level, models[0]) for model in models)
    tables = [first]
    for table in others:
        if unlike := sorted(map(str, set(table.index).symmetric_difference(first.index))):
            raise ConfigError(
                f"the models have different terms, {names_text(unlike)}: give the columns of all imputations "
                "the same categories, and models the same parameters"
            )
        tables.append(table.reindex(first.index))
    estimates, errors = (
        np.stack([table[name].to_numpy(dtype=np.float64) for table in tables])
        for name in ("estimate", "standard error")
    )
    pooled = Pooled.of(estimates, errors)
    width = pooled.width(level)
    table = pd.DataFrame({"estimate": pooled.estimate, "standard error": pooled.error}, index=first.index)
    ends = [pooled.estimate - width, pooled.estimate + width]
    for name in first:
        if str(name).endswith(" ratio"):
            of_ratio = first[name].notna().to_numpy()
            table[name] = np.where(of_ratio, np.exp(pooled.estimate), np.nan)
            ends = [np.where(of_ratio, np.exp(end), end) for end in ends]
    table["lower"], table["upper"] = ends
    table["p"] = 2 * t.sf(np.abs(pooled.estimate / pooled.error), pooled.df)
    table["df"], table["missing information"] = pooled.df, pooled.missing
    return table


def pool_predictions(
    models: Sequence[Inferable],
    X: object,
    what: What = "survival",
    times: npt.ArrayLike | None = None,
    *,
    q: float = 0.5,
    tau: float | None = None,
    level: float = 0.95,
) -> Intervals:
    """Pool predictions of models fitted to several imputations by Rubin's rules.

    Estimates are pooled on the scale of the limits of :func:`~sstorch.inference.predict`, where they are
    nearly normal: log(-log S) for survival.

    Args:
        models: M >= 2 fitted regressions, one for each completed frame.
        X: n rows with the training columns, or, if these are also imputed, a list of M frames.
        what: as in :func:`~sstorch.inference.predict`.
        times: as there.
        q: as there.
        tau: as there.
        level: as there.

    Raises:
        ConfigError: fewer than two models, another number of frames, or an argument out of range.
        DataError: X lacks columns.

    References:
        Marshall, Altman, Holder and Royston (2009), BMC Medical Research Methodology 9, 57.
    """
    _check_several(models)
    frames: list[Any] = X if isinstance(X, list) else [X] * len(models)
    if len(frames) != len(models):
        raise ConfigError(f"X must be a frame, or a list of {len(models)} frames, got {len(frames)}")
    found = [
        predict(model, frame, what, times, q=q, tau=tau, level=level)
        for model, frame in zip(models, frames, strict=True)
    ]
    link = Quantity.of(models[0]._tree, what, times, q, tau).link
    estimates, errors = (np.stack([getattr(each, name) for each in found]) for name in _NUMBERS)
    with np.errstate(divide="ignore", invalid="ignore"):
        pooled = Pooled.of(link.forth(estimates), np.abs(link.slope(estimates)) * errors)
        width = pooled.width(level)
        ends = np.stack([link.back(pooled.estimate - width), link.back(pooled.estimate + width)])
        estimate = link.back(pooled.estimate)
        error = pooled.error / np.abs(link.slope(estimate))
    # At time zero, where curves have one value, there is no scale, and limits are this value.
    fixed = (errors == 0).all(0)
    estimate, error = np.where(fixed, estimates[0], estimate), np.where(fixed, 0.0, error)
    lower, upper = (np.where(fixed, estimate, end) for end in (ends.min(0), ends.max(0)))
    return Intervals(
        what,
        estimate,
        error,
        lower,
        upper,
        level,
        found[0].times,
        causes=found[0].causes,
        index=found[0].index,
    )


_NUMBERS = ("estimate", "standard_error")


def _check_several(models: Sequence[object]) -> None:
    if len(models) < 2:
        raise ConfigError(
            f"models must be two or more, one for each completed frame, got {len(models)}: the variation "
            "between imputations needs them"
        )
