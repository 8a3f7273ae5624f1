"""Rows at the fitted hazard of a cause: sandwich covariance, likelihood-ratio test, residuals."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeVar, get_args

import numpy as np
import pandas as pd
import torch
from scipy.stats import chi2
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.checks import check_choice, check_same_order, check_tree, rows_text
from sstorch.data import SurvivalData
from sstorch.data.columns import row_labels
from sstorch.data.design_matrix import dense
from sstorch.exceptions import ConfigError, DataError
from sstorch.inference.coefficients import Hazard
from sstorch.inference.contrasts import Contrasts
from sstorch.inference.covariance import HazardCovariance, Inferable, LeafFeatures, covariance_of, index_of
from sstorch.metrics.weights import by_subject
from sstorch.nn import DesignMatrix, HazardFamily, LeafParameters, SoftTree
from sstorch.objective import Sample
from sstorch.objective.rows import counted_weight
from sstorch.optim.linear_hazards import LinearHazards

InferableT = TypeVar("InferableT", bound=Inferable)
# Size of the penalised gradient, in standard errors, above which rows are not those of training.
_STATIONARY = 0.25


def sample_of(tree: SoftTree, x: Tensor, data: SurvivalData) -> Sample:
    """Rows, (n, p), with one event as a sample of one problem, float64, in the units of a tree."""

    def logs(values: FloatArray) -> Tensor:
        with np.errstate(divide="ignore"):  # zero is -inf
            return torch.as_tensor(np.log(values))[None] - float(tree.log_time_scale)

    lower, upper = (None, None) if data.intervals is None else map(logs, data.bounds)
    return Sample(
        DesignMatrix(x[None].double(), (1,)),
        logs(data.nominal_time),
        torch.as_tensor(data.event).double()[None],
        torch.as_tensor(data.sample_weight).double()[None],
        logs(data.begin) if data.begin.any() else None,
        log_lower=lower,
        log_upper=upper,
    )


def row_derivatives(
    family: HazardFamily, leaves: LeafParameters, leaf: Tensor, sample: Sample
) -> tuple[LeafFeatures, Tensor, Tensor]:
    """Weighted derivatives of the negative log-likelihood of rows of one problem, each in a leaf (n,)."""
    # Features, then first (n, 1 + m) and second ones (n, 1 + m, 1 + m), in linear predictor and shapes.
    x, weight = sample.x.to_dense()[0], counted_weight(sample)
    with torch.no_grad():
        linear, shape = leaves.at_rows(x, leaf)
        problem = LinearHazards(family, sample, weight, sample.x)
        _, first, second = problem.derivatives_at(linear[None], shape[None])
        features = LeafFeatures(leaves.features(x), leaves.flatten().shape[-1], shape.shape[-1])
    return features, weight[0, :, None] * first[0], weight[0, :, None, None] * second[0]


@dataclass(frozen=True)
class HazardRows:
    """Rows with one event and the fitted hazard of its cause, in double precision."""

    cause: str
    module: SoftTree
    covariance: HazardCovariance
    sample: Sample  # of one problem
    leaf: Tensor  # of each row, (n,)

    @classmethod
    def by_cause(cls, model: Inferable, data: SurvivalData) -> Iterator[HazardRows]:
        """Create the rows for all causes of a model; other causes are censored."""
        covariance, tree = covariance_of(model), model._tree
        x = dense(tree.encode(data.frame))
        leaf, x = torch.as_tensor(tree.leaf(x)), x.cpu().double()
        for name, module in tree.hazards.items():
            sample = sample_of(module, x, data if data.causes is None else data.of_cause(name))
            yield cls(name, copy.deepcopy(module).cpu().double(), covariance.hazards[name], sample, leaf)

    @cached_property
    def gradients(self) -> Tensor:
        """Derivatives of each row's negative log-likelihood in the coefficients, (n, D)."""
        leaves, groups = self.module.leaf_parameters(), self.covariance.groups[self.leaf]
        features, first, _ = row_derivatives(self.module.family, leaves, self.leaf, self.sample)
        by_leaf = features.scores(first)
        out = by_leaf.new_zeros(len(by_leaf), len(self.covariance.theta))
        for group in groups.unique().tolist():
            rows = groups == group
            out[rows] = by_leaf[rows] @ self.covariance.map[group]
        return out

    def check_training(self) -> None:
        """Check that the penalised gradient vanishes at the estimates, as it does at the training rows."""
        hazard = self.covariance
        gradient = self.gradients.sum(0) + hazard.precision * hazard.theta
        if (gradient @ hazard.posterior @ gradient).sqrt() >= _STATIONARY:
            raise DataError(
                "the model was not fitted to these rows with these weights: give the training rows, and "
                "sample_weight if training had it"
            )


def with_sandwich(
    model: InferableT, X: object, y: object, sample_weight: object = None, cluster: object = None
) -> InferableT:
    """Return a copy of a model whose intervals and tests use Huber and White's sandwich covariance.

    It is by subject if ``y`` has an id, else by row, or by ``cluster``.

    Args:
        model: fitted.
        X: training rows.
        y: outcome of the rows.
        sample_weight: training weights.
        cluster: label of the cluster of each row, such as a centre, (n,).

    Raises:
        ConfigError: the model has no covariance.
        DataError: the rows are not the training rows.

    References:
        Lin and Wei (1989), Journal of the American Statistical Association 84, 1074-1078; Liang and Zeger
        (1986), Biometrika 73, 13-22.
    """
    covariance, new = covariance_of(model), copy.copy(model)
    check_same_order(X=X, cluster=cluster)
    data = model._scored(X, y, sample_weight)
    labels, hazards, n_clusters = data.subject, {}, 0
    if cluster is not None:
        labels, names = pd.factorize(row_labels(cluster, len(data), "cluster"))
        if len(names) < 2:
            raise DataError("cluster has one label for all rows: standard errors need several clusters")
    for rows in HazardRows.by_cause(model, data):
        rows.check_training()
        sums = torch.as_tensor(by_subject(rows.gradients.numpy(), labels))
        inverse, n_clusters = rows.covariance.posterior, len(sums)
        hazards[rows.cause] = replace(rows.covariance, adjusted=inverse @ (sums.mT @ sums) @ inverse)
    new.covariance_ = replace(covariance, hazards=hazards, kind="sandwich", clusters=n_clusters)
    return new


def likelihood_ratio_test(
    smaller: Inferable, larger: Inferable, X: object, y: object, sample_weight: object = None
) -> pd.Series:
    """Likelihood-ratio test of a regression against a larger regression.

    Args:
        smaller: fitted regression without penalties, ``Penalties(ridge=0, roughness=0)``, nested in
            ``larger``.
        larger: fitted regression of the same family without penalties.
        X: training rows of both, with the columns of both.
        y: outcome of the rows.
        sample_weight: weights of the training, which must be counts of rows. With sampling weights the
            statistic has another distribution: see :func:`terms` with :func:`with_sandwich`.

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
                "penalties=Penalties(ridge=0, roughness=0), or see terms()"
            )
        data = model._scored(X, y, sample_weight)
        if (fractions := data.sample_weight % 1.0 != 0.0).any():
            raise DataError(
                f"sample_weight must be counts of rows for a likelihood-ratio test, got "
                f"{data.sample_weight[fractions][0]:g} in {rows_text(fractions)}: for sampling weights see "
                "terms() of with_sandwich()"
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


ResidualKind = Literal["martingale", "deviance", "cox_snell", "dfbeta"]


def residuals(
    model: Inferable,
    X: object,
    y: object,
    kind: ResidualKind = "martingale",
    sample_weight: object = None,
) -> pd.DataFrame:
    """Compute residuals: one row per row of X, by index label.

    With competing causes residuals are cause-specific, with other causes censored. For start-stop rows, sum
    residuals by subject to get one value per subject.

    Args:
        model: fitted regression, or groups.
        X: n rows; the training rows for ``"dfbeta"``, with their weights.
        y: outcome of the rows.
        kind: ``"cox_snell"``, the cumulative hazard H between entry and time; ``"martingale"``, event minus
            H; ``"deviance"``, a nearly symmetric transformation of it; ``"dfbeta"``, each estimate minus the
            estimate without the row, by one Newton step with the same penalties.
        sample_weight: weights of the rows. Only ``"dfbeta"`` depends on their ratios.

    Returns:
        Columns: causes for the first three kinds; ``term`` and ``contrast`` as in
        :func:`sstorch.inference.coefficients` for ``"dfbeta"``, NaN for a contrast without an estimate;
        several causes and groups are outer levels.

    Raises:
        ConfigError: the kind is unknown, or the model has no covariance of coefficients.
        DataError: the rows are invalid, or times are interval-censored.

    References:
        Therneau, Grambsch and Fleming (1990), "Martingale-based residuals for survival models", Biometrika
        77, 147-160; Cain and Lange (1984), Biometrics 40, 493-499, on dfbeta.

    >>> from sstorch import SurvivalRegression, load_dataset
    >>> data = load_dataset("gbsg2")
    >>> regression = SurvivalRegression("weibull").fit(data.frame, data.y)
    >>> residuals(regression, data.frame[:2], data.y[:2]).round(2)
       event
    0   0.16
    1   0.26
    """
    check_tree(model, "_scored", "soft survival tree")
    check_choice(kind, "kind", get_args(ResidualKind))
    data = model._scored(X, y, sample_weight)
    data.refuse_intervals("residuals")
    by_cause, labels = HazardRows.by_cause(model, data), index_of(X, len(data))
    if kind == "dfbeta":
        return _dfbeta(model, by_cause).set_axis(labels, axis=0)
    return pd.DataFrame({rows.cause: _of_events(rows, kind) for rows in by_cause}, index=labels)


def _of_events(rows: HazardRows, kind: ResidualKind) -> FloatArray:
    """Cox-Snell, martingale or deviance residuals of a cause, (n,)."""
    sample, family = rows.sample, rows.module.family
    with torch.no_grad():
        linear, shape = rows.module.leaf_parameters().at_rows(sample.x.to_dense()[0], rows.leaf)
        hazard = family.cumulative_hazard(sample.log_time[0], linear, shape)
        if sample.log_entry is not None:
            hazard = hazard - family.hazard_before(sample.log_entry[0], sample.log_time[0], linear, shape)
    expected, event = hazard.numpy(), sample.event[0].numpy()
    if kind == "cox_snell":
        return np.asarray(expected)
    martingale = event - expected
    if kind == "martingale":
        return np.asarray(martingale)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.where(event > 0, np.log(expected), 0.0)
    return np.asarray(np.sign(martingale) * np.sqrt(np.maximum(-2 * (martingale + log), 0.0)))


def _dfbeta(model: Inferable, by_cause: Iterable[HazardRows]) -> pd.DataFrame:
    """Changes of contrasts by each row, by cause and groups where there are several: :func:`residuals`."""
    facts, moved, found = covariance_of(model).terms, {}, {}
    contrasts = Contrasts(model._tree.preprocessor, facts).rows(list(facts))
    for rows in by_cause:
        rows.check_training()
        # The gradient is of the negative log-likelihood: taking a row out moves the estimate by + V gradient.
        moved[rows.cause] = -rows.gradients @ rows.covariance.posterior
    for hazard in Hazard.of_model(model):
        _, combined = hazard.combined(contrasts)
        change = torch.where(hazard.covariance.unseen(combined), torch.nan, moved[hazard.cause] @ combined.mT)
        for contrast, own in zip(contrasts, change.mT.numpy(), strict=True):
            found[hazard.cause, hazard.groups, contrast.term, contrast.text] = own
    table = pd.DataFrame(found).rename_axis(["cause", "groups", "term", "contrast"], axis=1)
    for name in ("cause", "groups"):
        table = table.droplevel(name, axis=1) if table.columns.unique(name).size == 1 else table
    return table
