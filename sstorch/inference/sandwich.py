"""The covariance that a model uses: of one kind or another, robust to clusters."""

from __future__ import annotations

import copy
from typing import TypeVar

import numpy as np
import pandas as pd
import torch

from sstorch._types import IntArray
from sstorch.data import SurvivalData
from sstorch.exceptions import DataError
from sstorch.inference.covariance import CovarianceKind, Refitted, covariance_of
from sstorch.inference.hazard_rows import HazardRows

RefittedT = TypeVar("RefittedT", bound=Refitted)


def with_covariance(
    model: RefittedT,
    kind: CovarianceKind = "sandwich",
    X: object = None,
    y: object = None,
    sample_weight: object = None,
    cluster: object = None,
) -> RefittedT:
    """Return a copy of a model that uses another covariance of its coefficients for all intervals.

    Args:
        model: fitted.
        kind: ``"marginal"`` (the default of models): posterior covariance with estimated penalties integrated
            out; ``"bayesian"``: inverse of Hessian plus penalties, with fixed penalties (equal to
            ``"marginal"`` for given penalties); ``"frequentist"``: sampling covariance of the penalised
            estimates, without their bias; ``"observed"``: inverse of the Hessian without penalties;
            ``"sandwich"``: Huber and White, needs the training rows: by subject if ``y`` has an id, else by
            row, or by ``cluster``.
        X: training rows, for the sandwich.
        y: outcome of the rows.
        sample_weight: training weights.
        cluster: label of the cluster of each row, such as a centre, (n,).

    Raises:
        ConfigError: the kind is unknown, or the model has no covariance.
        DataError: the rows are missing or are not the training rows.

    References:
        Lin and Wei (1989), Journal of the American Statistical Association 84, 1074-1078; Liang and Zeger
        (1986), Biometrika 73, 13-22.
    """
    covariance, new = covariance_of(model), copy.copy(model)
    if kind != "sandwich":
        new.covariance_ = covariance.used(kind)
        return new
    if X is None or y is None:
        raise DataError("kind='sandwich' needs the training rows: give X and y")
    data = model._scored(X, y, sample_weight)
    labels = _clusters(data, cluster)
    meats = {}
    for rows in HazardRows.by_cause(model, data):
        rows.check_training()
        scores = rows.gradients()
        sums = scores.new_zeros(int(labels.max()) + 1, scores.shape[1])
        sums.index_add_(0, torch.as_tensor(labels), scores)
        meats[rows.cause] = sums.mT @ sums
    new.covariance_ = covariance.used("sandwich", meats, int(labels.max()) + 1)
    return new


def _clusters(data: SurvivalData, cluster: object) -> IntArray:
    """Number of the cluster of each row, 0 ... C - 1, (n,)."""
    if cluster is None:
        return np.arange(len(data)) if data.subject is None else np.asarray(data.subject)
    given = pd.Series(cluster)
    if len(given) != len(data):
        raise DataError(f"cluster must have a label for each of the {len(data)} rows, got {len(given)}")
    if given.isna().any():
        rows = np.flatnonzero(given.isna())[:5].tolist()
        raise DataError(f"cluster is missing in rows {rows}: give every row a label")
    codes, labels = pd.factorize(given)
    if len(labels) < 2:
        raise DataError("cluster has one label for all rows: standard errors need several clusters")
    return np.asarray(codes, dtype=np.int64)
