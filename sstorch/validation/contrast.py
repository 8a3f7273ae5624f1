"""Differences of predictions between two values of the covariates, with confidence intervals."""

from __future__ import annotations

import numpy.typing as npt
import torch

from sstorch.checks import check_share
from sstorch.exceptions import DataError
from sstorch.inference.model import Inferable, covariance_of
from sstorch.inference.predictions import IDENTITY, Intervals, Quantity, What, encoded_rows
from sstorch.threads import torch_threads


@torch_threads(1)  # a second one gains nothing on small matrices
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
    """Estimate the difference of a prediction between two sets of rows, a minus b.

    Both predictions use the same coefficients: the standard error accounts for their correlation. For the
    effect of a treatment in a population, pass the rows with each value of the treatment and ``average=True``
    (standardisation, the parametric g-formula). The effect is causal only if the covariates include all
    common causes of treatment and outcome. Its interval is for subjects with these covariates.

    Args:
        model: fitted.
        X_a: n rows.
        X_b: n rows, one for each row of X_a.
        times: times of curves, (n_times,), original units.
        what: as in :func:`sstorch.inference.predict`.
        q: level of the quantile, in (0, 1).
        tau: end of the restricted mean, original units.
        average: True for the mean difference over rows.
        level: level of the confidence limits, in (0, 1).
        simultaneous: True for simultaneous limits over all times.

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
    check_share(level, "level")
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
