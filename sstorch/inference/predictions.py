"""Predictions with standard errors and confidence limits, by the delta method."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.special import expit, logit
from torch import Tensor
from typing_extensions import override

from sstorch._types import FloatArray
from sstorch.base import check_times
from sstorch.checks import blocks, check_choice, check_same_order, check_share, check_truncation
from sstorch.data.design_matrix import dense
from sstorch.exceptions import ConfigError, DataError, warn
from sstorch.fitted import FittedTree
from sstorch.fitted.incidence import panels_before
from sstorch.inference.covariance import FitCovariance, Inferable, LeafFeatures, covariance_of, index_of
from sstorch.metrics.checks import half_width
from sstorch.nn import SurvivalDistribution
from sstorch.threads import torch_threads

What = Literal["survival", "incidence", "quantile", "rmst"]
# Elements of the largest intermediate.
_ELEMENTS = 2**21
# Probability of a row's path in a tree with trained gates below which limits are too narrow.
_SURE = 0.9
# Predictions (n, ...) and their deviations to first order as combinations of independent standard normal
# variables, (n, ..., D).
Moved = tuple[Tensor, Tensor]
# Confidence limits of estimates v by standard errors times normal quantiles, e < 0 and e > 0, symmetric on a
# scale on which estimates are nearly normal.
Limits = Callable[[FloatArray, FloatArray], FloatArray]


def of_survival(v: FloatArray, e: FloatArray) -> FloatArray:
    """Limits on the scale of log(-log S); S itself at time zero, NaN where S underflows."""
    limits: FloatArray = v ** np.exp(e / (v * np.log(v)))
    return limits


def of_incidence(v: FloatArray, e: FloatArray) -> FloatArray:
    """Limits on the scale of log(-log(1 - F)); F itself at time zero."""
    rest = np.log1p(-v)
    return np.where(v > 0, -np.expm1(rest * np.exp(-e / ((1 - v) * rest))), v)


@dataclass(frozen=True)
class IntervalEstimates:
    """Estimates with standard errors and confidence limits.

    Attributes:
        estimate: shape (n, n_times), (n, K, n_times) of incidences, or (n,).
        standard_error: same shape; NaN if the data do not determine it.
        lower: lower confidence limits, same shape.
        upper: upper confidence limits, same shape.
        index: labels of the rows.
        times: times of curves, (n_times,); None otherwise.
        causes: names of the K causes; empty for one event.
    """

    estimate: FloatArray
    standard_error: FloatArray
    lower: FloatArray
    upper: FloatArray
    index: Sequence[Any]
    times: FloatArray | None = None
    causes: tuple[str, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """Return a frame by row, time and cause: ``estimate``, ``standard error``, ``lower``, ``upper``."""
        axes: dict[str, Sequence[Any]] = {"row": list(self.index)}
        if self.causes:
            axes["cause"] = self.causes
        if self.times is not None:
            axes["time"] = self.times.tolist()
        index = pd.MultiIndex.from_product(list(axes.values()), names=list(axes))
        columns = ("estimate", "standard_error", "lower", "upper")
        values = {name.replace("_", " "): getattr(self, name).ravel() for name in columns}
        return pd.DataFrame(values, index=index if len(axes) > 1 else pd.Index(self.index))


@dataclass(frozen=True)
class Quantity:
    """A predicted quantity of a model, as a function of the parameters of the hazards of a row."""

    fitted: FittedTree
    covariance: FitCovariance
    prediction: Callable[[Tensor], Tensor]  # from parameters (n, Q) to predictions (n, ...), row by row
    limits: Limits
    times: FloatArray | None = None  # of curves
    elements: int = 64  # numbers that one row takes on the way
    causes: tuple[str, ...] = ()  # names, where it has one value for each

    @classmethod
    def of(
        cls, model: Inferable, what: What, times: npt.ArrayLike | None, q: float, tau: float | None
    ) -> Quantity:
        """Create it for a fitted model; arguments as in :func:`predict`."""
        covariance, fitted = covariance_of(model), model._tree
        if fitted.prediction != "hbp":
            raise ConfigError("intervals need predictions by one group: use prediction='hbp'")
        hazards = {name: copy.deepcopy(module).cpu().double() for name, module in fitted.hazards.items()}
        tree = _TreeOfParameters(hazards, fitted.preprocessor, event_times=fitted.event_times)
        check_choice(what, "what", get_args(What))
        if what == "quantile":
            check_share(q, "q")
            return cls(fitted, covariance, lambda p: tree.quantiles(p, q), lambda v, e: v * np.exp(e / v))
        if what == "rmst":
            if tau is None or math.isinf(check_truncation(tau)):
                raise ConfigError("tau must be a finite time > 0 for what='rmst'")

            def limits(v: FloatArray, e: FloatArray) -> FloatArray:  # by the logit of the share of tau
                return np.asarray(tau * expit(logit(v / tau) + e * tau / (v * (tau - v))))

            return cls(fitted, covariance, lambda p: tree.restricted_means(p, tau), limits, elements=512)
        if times is None:
            raise ConfigError(f"times must be given for what={what!r}")
        grid = check_times(times)
        at = torch.as_tensor(grid)
        if what == "survival":
            curves = tree.function("survival")
            return cls(fitted, covariance, lambda p: curves(p, at), of_survival, grid, len(grid))
        if not tree.competing:
            raise ConfigError("what='incidence' needs competing causes: use 'survival'")
        edges = torch.as_tensor(panels_before(tree.panels, float(grid.max(initial=0.0))))
        elements, both = len(tree.causes) * (len(edges) + len(grid)) * 5, tree.incidence_and_survival
        rest = of_incidence, grid, elements, tree.causes
        return cls(fitted, covariance, lambda p: both(p, at, edges)[0], *rest)

    def deviations(self, x: Tensor) -> Iterator[Moved]:
        """Predictions and deviations of encoded rows, a chunk at a time; NaN where there is no estimate."""
        width = sum(len(each.theta) for each in self.covariance.hazards.values())
        n_values = (1 if self.times is None else len(self.times)) * max(1, len(self.causes))
        for rows in blocks(len(x), max(self.elements * 8, n_values * width, x.shape[1]), _ELEMENTS):
            parameters, moves = self.parameters(x[rows])
            value, slopes = derivatives(self.prediction, parameters)
            yield value, torch.einsum("nq...,nqd->n...d", slopes, moves)

    def parameters(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Linear predictors and shapes of encoded rows, of every cause (n, Q), and deviations (n, Q, D)."""
        # Deviations are combinations of independent standard normal ones; NaN in rows without an estimate.
        leaf = torch.as_tensor(self.fitted.leaf(x))
        x = x.detach().cpu().double()
        values, deviations = [], []
        for name, module in self.fitted.hazards.items():
            hazard, leaves = self.covariance.hazards[name], module.leaf_parameters()
            with torch.no_grad():
                at_rows = leaves.at_rows(x.to(leaves.slope), leaf.to(leaves.slope.device))
            linear, shape = (part.cpu().double() for part in at_rows)
            values += [linear[:, None], shape]
            groups, n_shapes = hazard.groups[leaf], shape.shape[1]
            combined = x.new_zeros(len(x), 1 + n_shapes, len(hazard.theta))
            for group in groups.unique().tolist():
                rows = groups == group
                features = LeafFeatures(leaves.features(x[rows]), hazard.map.shape[1], n_shapes)
                combined[rows] = features.combined(hazard.map[group])
            moved = combined @ hazard.root
            moved[hazard.unseen(combined[:, 0])] = torch.nan
            deviations.append(moved)
        # Coefficients of different causes are independent.
        return torch.cat(values, 1), torch.vmap(torch.block_diag)(*deviations)

    def intervals(
        self, parts: Iterable[Moved], level: float, index: Sequence[Any], difference: bool = False
    ) -> IntervalEstimates:
        """Intervals of chunks of predictions, or of differences of them, which are nearly normal."""
        half, found = half_width(level) * np.array([-1.0, 1.0]), []
        for predicted, moves in parts:
            estimate, error = predicted.numpy(), moves.norm(dim=-1).numpy()
            error = np.where(np.isfinite(estimate), error, np.nan)
            e = np.multiply.outer(half, error)
            with np.errstate(divide="ignore", invalid="ignore"):
                found.append((estimate, error, *(estimate + e if difference else self.limits(estimate, e))))
        value, error, lower, upper = (np.concatenate(each) for each in zip(*found, strict=True))
        return IntervalEstimates(value, error, lower, upper, index, self.times, self.causes)


class _TreeOfParameters(FittedTree):
    """A tree whose rows are the parameters of their hazards, (n, Q), by cause linear predictor and shapes."""

    @override
    def distributions(self, x: Any) -> list[SurvivalDistribution]:
        modules = list(self.hazards.values())
        parts = x.split([1 + len(module.family.shape_names) for module in modules], 1)
        return [
            SurvivalDistribution(
                module.family,
                torch.zeros_like(own[None, :, 0]),
                own[None, :, 0],
                own[None, :, 1:],
                module.log_time_scale.detach(),
            )
            for module, own in zip(modules, parts, strict=True)
        ]


@torch_threads(1)  # a second one gains nothing on small matrices
def predict(
    model: Inferable,
    X: object,
    what: What = "survival",
    times: npt.ArrayLike | None = None,
    *,
    q: float = 0.5,
    tau: float | None = None,
    level: float = 0.95,
) -> IntervalEstimates:
    """Predict with standard errors and confidence limits.

    Limits are symmetric on a scale on which estimates are nearly normal: log(-log S) for survival, log(-log(1
    - F)) for incidences, the logarithm for quantiles, the logit of the share of tau for restricted means.
    They are for the expectation of subjects with these covariates, conditional on the family, the columns and
    (for groups) the gates; with estimated penalties they are Bayesian, with approximately the stated coverage
    on average over the covariates.

    Args:
        model: fitted.
        X: n rows with the training columns.
        what: ``"survival"`` S(t | x), ``"incidence"`` F_k(t | x) of each competing cause, ``"quantile"`` or
            ``"rmst"``, the restricted mean survival time.
        times: times of curves, (n_times,), original units.
        q: level of the quantile, in (0, 1).
        tau: end of the restricted mean, original units.
        level: level of the confidence limits, in (0, 1).

    Raises:
        ConfigError: an argument is out of range, or the model has no covariance.
        DataError: X lacks columns or has no rows.

    Warns:
        DataWarning: gates were trained with the leaves, and the path of some rows has a probability below .9:
            which leaf they belong to is uncertain, and their limits are too narrow.

    References:
        Nychka (1988), Journal of the American Statistical Association 83, 1134-1143; Marra and Wood (2012),
        Scandinavian Journal of Statistics 39, 53-74, on the coverage of Bayesian intervals of curves.
    """
    check_share(level, "level")
    quantity = Quantity.of(model, what, times, q, tau)
    index, x = _encoded(model, X)
    if getattr(vars(model).get("choice_"), "has_trained_gates", False):
        unsure = int((quantity.fitted.leaf_probability(x).max(axis=1) < _SURE).sum())
        if unsure:
            text = f"the path of {unsure} of {len(x)} rows has a probability below {_SURE:g}"
            remedy = "their confidence limits take it as given and are too narrow; see predict_leaf_proba"
            warn(f"{text}: {remedy}")
    return quantity.intervals(quantity.deviations(x), level, index)


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
) -> IntervalEstimates:
    """Estimate the difference of a prediction between two sets of n rows, ``X_a`` minus ``X_b``.

    Other arguments are as in :func:`sstorch.inference.predict`.

    Both predictions use the same coefficients: the standard error accounts for their correlation. For the
    effect of a treatment in a population, pass the rows with each value of the treatment and ``average=True``
    for the mean over rows (standardisation, the parametric g-formula). The effect is causal only if the
    covariates include all common causes of treatment and outcome. Its interval is for subjects with these
    covariates.

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
    check_same_order(X_a=X_a, X_b=X_b)
    quantity = Quantity.of(model, what, times, q, tau)
    (index, a), (_, b) = _encoded(model, X_a), _encoded(model, X_b)
    if len(a) != len(b):
        raise DataError(f"X_a has {len(a)} rows and X_b {len(b)}: give a row of X_b for each of X_a")
    sides = zip(quantity.deviations(a), quantity.deviations(b), strict=True)
    parts = [(one[0] - other[0], one[1] - other[1]) for one, other in sides]
    if average:
        sums = (torch.stack([part.sum(0) for part in each]).sum(0) for each in zip(*parts, strict=True))
        value, moves = (each[None] / len(a) for each in sums)
        parts, index = [(value, moves)], ["mean"]
    return quantity.intervals(parts, level, index, difference=True)


def _encoded(model: Inferable, X: object) -> tuple[Sequence[Any], Tensor]:
    """Labels of rows and their encoded features, (n, p), at least one."""
    frame = model._cleaned(X)
    if not len(frame):
        raise DataError("the data have no rows")
    return index_of(X, len(frame)).tolist(), dense(model._tree.encode(frame))


def derivatives(prediction: Callable[[Tensor], Tensor], values: Tensor) -> tuple[Tensor, Tensor]:
    """Predictions (n, ...) and derivatives in the parameters, (n, Q, ...): Q passes, differentiated twice."""
    with torch.enable_grad():
        parameters = values.clone().requires_grad_()
        value = prediction(parameters)
        weight = torch.zeros_like(value, requires_grad=True)
        (pulled,) = torch.autograd.grad(value, parameters, weight, create_graph=True)
        columns = [
            torch.autograd.grad(pulled[:, k].sum(), weight, retain_graph=True)[0]
            for k in range(values.shape[1])
        ]
    return value.detach(), torch.stack(columns, 1)
