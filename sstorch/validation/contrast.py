"""Differences of predictions between two values of the covariates, with confidence intervals."""

from __future__ import annotations

import numpy.typing as npt
import torch

from sstorch.checks import check_share
from sstorch.exceptions import DataError
from sstorch.inference.model import Inferable, covariance_of
from sstorch.inference.predictions import IDENTITY, Intervals, Quantity, What, encoded_rows


def contrast(
    model: Inferable,
    X_a: object,
    X_b: object,
    times: npt.ArrayLike | None = None,
    *,
    what: What = "survival",
    q: float = 0.5,
    tau: float | None = None,
    average: bool = False,
    level: float = 0.95,
    simultaneous: bool = False,
) -> Intervals:
    """Difference of a prediction between rows that differ in some covariates, a less b.

    Both predictions come from the same coefficients, so that the difference has a smaller standard error than
    independent ones. For the effect of a treatment in a population give its rows twice, with either value of
    the treatment, and ``average=True`` (standardisation, the parametric g-formula): causal only if the
    covariates are all that determines treatment and outcome. Its interval is for subjects with these
    covariates.

    Args:
        model: fitted.
        X_a: n rows.
        X_b: as many rows, one for each of X_a.
        times: of curves, (n_times,), original units.
        what: as of :func:`sstorch.inference.predict`.
        q: of the quantile, in (0, 1).
        tau: end of the restricted mean, original units.
        average: the mean of the rows' differences instead of each.
        level: of the limits, in (0, 1).
        simultaneous: limits that hold for all times together.

    Raises:
        ConfigError: an argument is out of range, or the model has no covariance.
        DataError: columns are missing, or X_a and X_b have different numbers of rows.

    >>> from sstorch import SurvivalRegression, load_dataset
    >>> data = load_dataset("gbsg2")
    >>> regression = SurvivalRegression().fit(data.frame, data.y)
    >>> treated, untreated = (data.frame.assign(horTh=value) for value in ("yes", "no"))
    >>> print(contrast(regression, treated, untreated, [1825], average=True).to_frame().round(3))
                 estimate  standard error  lower  upper
    row  time
    mean 1825.0     0.104           0.039  0.028   0.18
    """
    check_share(level, "level", "a share in (0, 1)", closed=False)
    covariance, fitted = covariance_of(model), model._tree
    quantity = Quantity.of(fitted, what, times, q, tau)
    (labels, a), (_, b) = encoded_rows(model, X_a), encoded_rows(model, X_b)
    if len(a) != len(b):
        raise DataError(f"X_a has {len(a)} rows and X_b {len(b)}: give a row of X_b for each of X_a")
    sides = (quantity.deviations(fitted, covariance, x) for x in (a, b))
    differences = ((a - b, moved - other) for (a, moved), (b, other) in zip(*sides, strict=True))
    index = labels.tolist()
    if average:
        sums = [torch.stack([part.sum(0) for part in each]) for each in zip(*differences, strict=True)]
        parts = [(sums[0].sum(0)[None] / len(index), sums[1].sum(0)[None] / len(index))]
        index = ["mean"]
    else:
        parts = list(differences)
    return quantity.intervals(parts, IDENTITY, level, index, simultaneous, difference=True)
