"""Rows at the fitted hazard of a cause: scores, information, residuals, sandwich, likelihood-ratio test."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, get_args

import numpy as np
import pandas as pd
import torch
from scipy.stats import chi2
from torch import Tensor
from torch.nn.functional import pad

from sstorch._types import FloatArray
from sstorch.checks import check_choice, check_same_order, check_tree, rows_text
from sstorch.data import SurvivalData
from sstorch.data.columns import row_labels, to_pandas
from sstorch.data.design_matrix import dense, last_features
from sstorch.exceptions import ConfigError, DataError
from sstorch.inference.covariance import Contrasts, HazardCovariance, Inferable, covariance_of
from sstorch.nn import DesignMatrix, HazardFamily, LeafParameters, SoftTree
from sstorch.objective import Sample
from sstorch.objective.rows import counted_weight
from sstorch.optim.linear_hazards import LinearHazards

InferableT = TypeVar("InferableT", bound=Inferable)
# Rows whose products of features are formed at once.
_ROWS = 2**14
# Size of the penalised gradient, in standard errors, above which rows are not those of training.
_STATIONARY = 0.25


def sample_of(tree: SoftTree, x: Tensor, data: SurvivalData) -> Sample:
    """Rows, (n, p), with one event as a sample of one problem, float64, in the units of a tree."""
    scale = float(tree.log_time_scale)

    def logs(values: FloatArray) -> Tensor:
        with np.errstate(divide="ignore"):  # zero is -inf
            return torch.as_tensor(np.log(values))[None] - scale

    lower = upper = None
    if data.intervals is not None:
        within = data.intervals.censored
        lower = logs(np.where(within, data.intervals.lower, 0.0))
        upper = logs(np.where(within, data.intervals.upper, np.inf))
    return Sample(
        DesignMatrix(x[None].double(), (1,)),
        logs(data.nominal_time),
        torch.as_tensor(data.event).double()[None],
        torch.as_tensor(data.sample_weight).double()[None],
        logs(data.begin) if data.begin.any() else None,
        log_lower=lower,
        log_upper=upper,
    )


class LeafDerivatives:
    """Derivatives of the rows' negative log-likelihood in parameters of their leaf (n,), weights (1, n)."""

    def __init__(
        self, family: HazardFamily, leaves: LeafParameters, leaf: Tensor, sample: Sample, weight: Tensor
    ) -> None:
        x = sample.x.to_dense()[0]
        linear, shape = leaves.at_rows(x, leaf)
        problem = LinearHazards(family, sample, weight, sample.x)
        with torch.no_grad():
            _, first, second = problem.derivatives_at(linear[None], shape[None])
        self._first = (weight[..., None] * first)[0]
        self._second = (weight[..., None, None] * second)[0]
        p, n_shapes = leaves.slope.shape[-1], shape.shape[-1]
        n_constant, n_slopes = p + 1 + n_shapes, p if leaves.shape_slope.shape[-2] else 0
        self._x, self._size = last_features(x, p), n_constant + n_shapes * n_slopes
        # Of the linear predictor and each shape: places of its slopes and of its constant.
        slopes = [torch.arange(p), *torch.arange(n_constant, self._size).reshape(n_shapes, n_slopes)]
        self._places = [torch.cat([own, torch.tensor([p + k])]) for k, own in enumerate(slopes)]

    def _features(self, part: int, rows: slice) -> Tensor:
        """Of rows at the places of a part, (n, k), the last of which is 1."""
        return pad(self._x[rows, : len(self._places[part]) - 1], (0, 1), value=1.0)

    def scores(self) -> Tensor:
        """First derivatives of each row, (n, d)."""
        out = self._first.new_zeros(len(self._x), self._size)
        for part, places in enumerate(self._places):
            out[:, places] = self._first[:, part, None] * self._features(part, slice(None))
        return out

    def information(self) -> Tensor:
        """Sum of the second derivatives of the rows, (d, d), with all leaves treated as one."""
        out = self._first.new_zeros(self._size, self._size)
        for begin in range(0, len(self._x), _ROWS):
            rows = slice(begin, begin + _ROWS)
            parts = [(places, self._features(part, rows)) for part, places in enumerate(self._places)]
            for j, (places, features) in enumerate(parts):
                for k, (others, theirs) in enumerate(parts[j:], j):
                    block = (features * self._second[rows, j, k, None]).mT @ theirs
                    out[places[:, None], others] += block
                    if k > j:
                        out[others[:, None], places] += block.mT
        return out


@dataclass(frozen=True)
class HazardRows:
    """Rows with one event and the fitted hazard of its cause, in double precision."""

    cause: str
    module: SoftTree
    covariance: HazardCovariance
    sample: Sample  # of one problem
    weight: Tensor  # of each row in the loss, (1, n)
    leaf: Tensor  # of each row, (n,)

    @classmethod
    def by_cause(cls, model: Inferable, data: SurvivalData) -> Iterator[HazardRows]:
        """Create the rows for all causes of a model; other causes are censored."""
        covariance, tree = covariance_of(model), model._tree
        x = dense(tree.encode(data.frame))
        leaf, x = torch.as_tensor(tree.leaf(x)), x.cpu().double()
        for name, module in tree.hazards.items():
            rows = data if data.causes is None else data.of_cause(name)
            sample, module = sample_of(module, x, rows), copy.deepcopy(module).cpu().double()
            yield cls(name, module, covariance.hazards[name], sample, counted_weight(sample), leaf)

    def derivatives(self) -> LeafDerivatives:
        """Derivatives of the negative log-likelihood in the parameters of the leaf of each row."""
        leaves = self.module.leaf_parameters()
        return LeafDerivatives(self.module.family, leaves, self.leaf, self.sample, self.weight)

    def gradients(self) -> Tensor:
        """Derivatives of each row's negative log-likelihood in the coefficients, (n, D)."""
        by_leaf, groups = self.derivatives().scores(), self.covariance.groups[self.leaf]
        out = by_leaf.new_zeros(len(by_leaf), len(self.covariance.theta))
        for group in groups.unique().tolist():
            rows = groups == group
            out[rows] = by_leaf[rows] @ self.covariance.by_group[group]
        return out

    def check_training(self) -> None:
        """Check that the penalised gradient vanishes at the estimates, as it does at the training rows."""
        hazard = self.covariance
        gradient = self.gradients().sum(0) + hazard.precision * hazard.theta
        if (gradient @ hazard.posterior @ gradient).sqrt() < _STATIONARY:
            return
        raise DataError(
            "the model was not fitted to these rows with these weights: give the training rows, and "
            "sample_weight if training had it"
        )

    def cumulative_hazard(self) -> Tensor:
        """H(time) - H(entry) of each row, (n,): Cox-Snell residuals."""
        sample, family = self.sample, self.module.family
        with torch.no_grad():
            linear, shape = self.module.leaf_parameters().at_rows(sample.x.to_dense()[0], self.leaf)
            hazard = family.cumulative_hazard(sample.log_time[0], linear, shape)
            if sample.log_entry is not None:
                hazard = hazard - family.hazard_before(sample.log_entry[0], sample.log_time[0], linear, shape)
        return hazard


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
    if cluster is None:
        labels = np.arange(len(data)) if data.subject is None else np.asarray(data.subject)
    else:
        labels, names = pd.factorize(row_labels(cluster, len(data), "cluster"))
        if len(names) < 2:
            raise DataError("cluster has one label for all rows: standard errors need several clusters")
    n_clusters, hazards = int(labels.max()) + 1, {}
    for rows in HazardRows.by_cause(model, data):
        rows.check_training()
        scores = rows.gradients()
        sums = scores.new_zeros(n_clusters, scores.shape[1])
        sums.index_add_(0, torch.as_tensor(labels), scores)
        inverse = rows.covariance.posterior
        hazards[rows.cause] = replace(rows.covariance, robust=inverse @ (sums.mT @ sums) @ inverse)
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


ResidualKind = Literal["martingale", "deviance", "cox_snell", "score", "dfbeta"]


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
            H; ``"deviance"``, a nearly symmetric transformation of it; ``"score"``, derivatives of the
            weighted log-likelihood in the parameters of the leaf, in units of encoded features; ``"dfbeta"``,
            each estimate minus the estimate without the row, by one Newton step with the same penalties.
        sample_weight: weights of the rows. Only ``"score"`` and ``"dfbeta"`` depend on their ratios.

    Returns:
        Columns: causes for the first three kinds; parameters for ``"score"``; ``term`` and ``contrast`` as in
        :func:`sstorch.inference.coefficients` for ``"dfbeta"``. Several causes and groups are outer levels.
        ``"dfbeta"`` is NaN for a contrast without an estimate; the first three kinds have no NaN.

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
    tables: dict[tuple[str, ...], pd.DataFrame] = {}
    for rows in HazardRows.by_cause(model, data):
        if kind == "dfbeta":
            rows.check_training()
            tables |= _dfbeta(model, rows)
        elif kind == "score":
            features = [feature.name for feature in model._tree.preprocessor.leaf_features]
            family = rows.module.family
            names = [*features, "intercept", *family.shape_names]
            if family.ancillary != "constant":
                names += [f"{shape}: {feature}" for shape in family.shape_names for feature in features]
            tables[(rows.cause,)] = pd.DataFrame((-rows.derivatives().scores()).numpy(), columns=names)
        else:
            tables[(rows.cause,)] = pd.DataFrame({rows.cause: _of_events(rows, kind)})
    if kind in ("cox_snell", "martingale", "deviance"):
        found = pd.concat(tables.values(), axis=1)
    else:
        found = pd.concat(tables, axis=1)
        outer = ["cause", "group"][: len(next(iter(tables)))]
        found.columns.names = [*outer, *(["term", "contrast"] if kind == "dfbeta" else ["parameter"])]
        for name in outer:
            if found.columns.get_level_values(name).nunique() == 1:
                found = found.droplevel(name, axis=1)
    frame = to_pandas(X)
    labels = frame.index if isinstance(frame, pd.DataFrame) else pd.RangeIndex(len(data))
    return found.set_axis(labels, axis=0)


def _of_events(rows: HazardRows, kind: ResidualKind) -> FloatArray:
    """Cox-Snell, martingale or deviance residuals of a cause, (n,)."""
    expected, event = rows.cumulative_hazard().numpy(), rows.sample.event[0].numpy()
    if kind == "cox_snell":
        return np.asarray(expected)
    martingale = event - expected
    if kind == "martingale":
        return np.asarray(martingale)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.where(event > 0, np.log(expected), 0.0)
    return np.asarray(np.sign(martingale) * np.sqrt(np.maximum(-2 * (martingale + log), 0.0)))


def _dfbeta(model: Inferable, rows: HazardRows) -> dict[tuple[str, ...], pd.DataFrame]:
    """By cause and group, changes of contrasts by each row, (n, contrasts): see :func:`residuals`."""
    hazard, facts = rows.covariance, covariance_of(model).terms
    contrasts = Contrasts(model._tree.preprocessor, facts).rows(list(facts))
    names = pd.MultiIndex.from_tuples([(each.term, each.text) for each in contrasts])
    features = torch.stack([each.features for each in contrasts])
    # The gradient is of the negative log-likelihood: taking a row out moves the estimate by + V gradient.
    moved = -rows.gradients() @ hazard.posterior
    found: dict[tuple[str, ...], pd.DataFrame] = {}
    for group in range(hazard.n_groups):
        combined = features @ hazard.by_group[group][: features.shape[1]]
        change = moved @ combined.mT
        change[:, hazard.unseen(combined)] = torch.nan
        found[rows.cause, str(group + 1)] = pd.DataFrame(change.numpy(), columns=names)
    return found
