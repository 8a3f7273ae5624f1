"""What inference asks of a fitted model, and which covariance it uses."""

from __future__ import annotations

import copy
from typing import Protocol, TypeVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sstorch._types import IntArray
from sstorch.data import SurvivalData
from sstorch.data.coded import dense
from sstorch.exceptions import ConfigError, DataError
from sstorch.fitted import FittedTree
from sstorch.inference.covariance import CovarianceKind, FitCovariance
from sstorch.inference.rows import LeafDerivatives, sample_of
from sstorch.objective import counted_weight


class Inferable(Protocol):
    """A fitted regression, or groups, with the covariance of its coefficients."""

    covariance_: FitCovariance

    @property
    def _tree(self) -> FittedTree:
        """The trained tree."""

    def _cleaned(self, X: object) -> pd.DataFrame:
        """The training columns of rows, read."""


class Refitted(Inferable, Protocol):
    """The same with what rereads training rows."""

    def _scored(self, X: object, y: object, sample_weight: object = None) -> SurvivalData:
        """Rows with their outcome, checked against that of training."""


RefittedT = TypeVar("RefittedT", bound=Refitted)


def covariance_of(model: Inferable) -> FitCovariance:
    """The covariance of a model.

    Raises:
        ConfigError: it has none; the message says why.
    """
    tree = model._tree
    found: FitCovariance | None = vars(model).get("covariance_")
    if found is not None and found.hazards:
        return found
    reason = "it was trained as one of several, or recalibrated" if found is None else found.reason
    kind = "this regression" if tree.module.topology.depth == 0 else "these groups"
    raise ConfigError(f"the coefficients of {kind} have no covariance: {reason}")


def with_covariance(
    model: RefittedT,
    kind: CovarianceKind = "sandwich",
    X: object = None,
    y: object = None,
    sample_weight: object = None,
    cluster: object = None,
) -> RefittedT:
    """A copy of a model that uses another covariance of its coefficients, in all that has intervals.

    Args:
        model: fitted.
        kind: ``"marginal"``, the default of models: of the coefficients given the data, with estimated
            penalties integrated out; ``"bayesian"``: inverse of Hessian and penalties, these as if they had
            been known; both are the same where penalties are given. ``"frequentist"``: of
            the penalised estimates in repeated samples, without their bias; ``"observed"``: inverse of the
            Hessian alone, as if there were no penalties; ``"sandwich"``: of Huber and White, which needs the
            training rows: by subject where ``y`` has an id, else by row, or by ``cluster``.
        X: training rows, for the sandwich.
        y: their outcome.
        sample_weight: their weights in training.
        cluster: label of the cluster of each row, such as a centre, (n,).

    Raises:
        ConfigError: the kind does not exist, or the model has no covariance.
        DataError: the rows are missing or not those of training.

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
    tree = model._tree
    x = dense(tree.encode(data.frame))
    leaf, x = torch.as_tensor(tree.leaf(x)), x.cpu().double()
    meats = {}
    for name, module in tree.hazards.items():
        rows = data if data.causes is None else data.of_cause(name)
        sample, module = sample_of(module, x, rows), copy.deepcopy(module).cpu().double()
        found = LeafDerivatives(module.family, module.leaf_parameters(), leaf, sample, counted_weight(sample))
        hazard = covariance.hazards[name]
        scores = _by_coefficient(found.scores(), hazard.groups[leaf], hazard.by_group)
        sums = scores.new_zeros(int(labels.max()) + 1, scores.shape[1])
        sums.index_add_(0, torch.as_tensor(labels), scores)
        meats[name] = sums.mT @ sums
    new.covariance_ = covariance.used("sandwich", meats, int(labels.max()) + 1)
    return new


def _clusters(data: SurvivalData, cluster: object) -> IntArray:
    """Number of the cluster of each row, 0 ... C - 1, (n,)."""
    if cluster is None:
        return np.arange(len(data)) if data.person is None else np.asarray(data.person)
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


def _by_coefficient(scores: Tensor, groups: Tensor, maps: Tensor) -> Tensor:
    """Scores in the parameters of each row's group (n, d) as scores in the coefficients (n, D)."""
    out = scores.new_zeros(len(scores), maps.shape[-1])
    for group in groups.unique().tolist():
        rows = groups == group
        out[rows] = scores[rows] @ maps[group]
    return out
