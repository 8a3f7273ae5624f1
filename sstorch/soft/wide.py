"""Many columns: prior variances of the columns of a regression that has more of them than rows.

One variance for all columns (ridge) is right where many columns matter a little, and useless where ten of
5,000 matter. Several priors are fitted to the training rows, and the one that predicts held-out rows
best is kept:

* dense: one variance for all columns, the one with the largest evidence;
* sparse, graded: a variance of its own for each column, from the mean-field posterior under a mixture of
  normal priors with a point mass at zero, whose shares are estimated, from starting values with few or many
  effects; columns without a visible effect have the variance zero;
* dense and sparse, dense and graded: the mean of the two variances.

The posterior mean under the mixture is that of a ridge whose variance of column j is m_j / g_j, posterior
mean over score. So every prior is one of independent normal coefficients with a variance a column, and
everything else is as with few columns. The log-likelihood is replaced by its expansion at the present linear
predictor, as in iterated least squares; products over columns are formed once, and the rest is in n x n
matrices.

References:
    MacKay (1992), Neural Computation 4, 415-447, the evidence of a ridge; Kim, Wang, Carbonetto and Stephens
    (2024), Journal of Machine Learning Research 25(185), the mixture and its coordinate ascent; Fan and Lv
    (2008), Journal of the Royal Statistical Society B 70, 849-911, screening by scores.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.data import SurvivalData
from sstorch.data.folds import stratified_folds
from sstorch.optim.linear_design import LinearDesign
from sstorch.optim.newton import Gaussian, LinearHazards, newton
from sstorch.soft.design import Design, null_start

# Columns that the sparse priors look at, those with the largest scores, and folds by which priors are chosen.
SCREENED, N_FOLDS = 5_000, 5
# Variances of the components of the mixture, columns standardised, and shares of the point mass at zero from
# which the ascent starts, with few effects and with many.
_COMPONENTS = np.r_[0.0, np.geomspace(1e-4, 1.0, 12)]
_FEW, _EVEN = 0.99, 1 / 13
# Nonzero coefficients of the lasso that the ascent also starts from, as a share of the rows.
_LASSO = 0.2
# Effective degrees of freedom below which a column has the variance zero under a sparse prior.
_VISIBLE = 0.01
# Sweeps over the columns at most, and the change in nats that ends them.
_SWEEPS, _SETTLED = 500, 1e-3
# Expansions at most, the change of a linear predictor that ends them, and the largest one at once.
_EXPANSIONS, _NEAR, _LONGEST = 10, 0.02, 3.0
# Least curvature of a row, as a share of the mean.
_LEAST_CURVATURE = 1e-3
# Precision that holds the coefficient of a given linear predictor at one, and of what is not penalised.
_HELD, _VAGUE = 1e8, 1e-4
# Precision of free shape parameters, most of them logarithms, around those without covariates.
_SHAPES = 4.0
# Log variances of a ridge between which the best one is sought.
_RANGE = (-25.0, 2.0)
# By name, how much of the dense and of the sparse variances a prior has, and which start the latter have.
PRIORS: dict[str, tuple[float, float, float | None]] = {
    "dense": (1.0, 0.0, None),
    "sparse": (0.0, 1.0, _FEW),
    "graded": (0.0, 1.0, _EVEN),
    "dense and sparse": (0.5, 0.5, _FEW),
    "dense and graded": (0.5, 0.5, _EVEN),
}


@dataclass(frozen=True)
class ColumnPrior:
    """Prior of the coefficients of standardised columns: independent, normal, of mean zero."""

    name: str  # a key of ``PRIORS``
    variance: FloatArray  # of each coefficient, (p,); 0 for columns without a visible effect
    # intercept and shape parameters and the linear predictors of held-out rows, (1, 1 + m): with more
    # columns than rows those of the training rows allow a perfect fit
    shapes: Tensor


@dataclass(frozen=True)
class _Expansion:
    """A log-likelihood to second order in the predictors of rows: weights (n,) and centred targets (n,)."""

    weight: FloatArray
    target: FloatArray

    def centred(self, values: FloatArray) -> FloatArray:
        """Values (..., n) minus their weighted mean."""
        out: FloatArray = values - (values @ self.weight / self.weight.sum())[..., None]
        return out

    def gram(self, gram: FloatArray) -> FloatArray:
        """Products of rows (n, n), centred and in units of the roots of the weights."""
        root = np.sqrt(self.weight)
        return root[:, None] * self.centred(self.centred(gram).T) * root

    def dual(self, gram: FloatArray) -> FloatArray:
        """Posterior mean, (n,), of combinations of rows with prior covariance `gram` (n, n)."""
        root = np.sqrt(self.weight)
        matrix = self.gram(gram)
        matrix[np.diag_indices_from(matrix)] += 1.0
        return self._spread(cho_solve(cho_factor(matrix, lower=True), root * self.target))

    def best_ridge(self, gram: FloatArray) -> tuple[float, FloatArray]:
        """The variance with the largest evidence, and the combination of rows, both as in :meth:`dual`."""
        values, vectors = np.linalg.eigh(self.gram(gram))
        values = np.clip(values, 0.0, None)
        target = vectors.T @ (np.sqrt(self.weight) * self.target)

        def loss(log_variance: float) -> float:
            scale = 1.0 + np.exp(log_variance) * values
            return float((np.log(scale) + target**2 / scale).sum())

        variance = float(np.exp(minimize_scalar(loss, bounds=_RANGE, method="bounded").x))
        return variance, variance * self._spread(vectors @ (target / (1.0 + variance * values)))

    def _spread(self, solved: FloatArray) -> FloatArray:
        root = np.sqrt(self.weight)
        out: FloatArray = root * solved - self.weight * (root @ solved) / self.weight.sum()
        return out


class _Rows:
    """The log-likelihood of some rows as a function of their linear predictors; other parameters are free."""

    def __init__(self, hazards: LinearHazards, start: Tensor, seen: BoolArray | None = None) -> None:
        """Of one problem; ``start`` holds the intercept and the shapes without covariates, (1, 1 + m)."""
        self._start = start
        counts = hazards.weight if seen is None else hazards.weight * torch.as_tensor(seen).to(hazards.weight)
        self._hazards = replace(hazards, weight=counts)

    def _at(self, hazards: LinearHazards, predictor: FloatArray) -> LinearHazards:
        eta = torch.as_tensor(predictor).to(hazards.weight)[None, :, None]
        return replace(hazards, design=LinearDesign.of(torch.cat([torch.ones_like(eta), eta], -1)))

    def _null(self, problem: LinearHazards, held: bool = False) -> Tensor:
        """Intercept, one, and shapes, held or free, under a given linear predictor, (1, 2 + m)."""
        one = torch.ones_like(self._start[:, :1])
        mean = torch.cat([self._start[:, :1], one, self._start[:, 1:]], -1)
        precision = torch.full_like(mean, _VAGUE)
        precision[:, 2:] = _HELD if held else _SHAPES
        precision[:, 1] = _HELD
        return newton(problem, Gaussian(precision, mean), mean, tolerance=1e-4).theta

    def expansion(self, predictor: FloatArray, held: bool = False) -> _Expansion:
        """The log-likelihood near linear predictors (n,), shapes free or held at those without covariates."""
        problem = self._at(self._hazards, predictor)
        _, first, second = problem.row_derivatives(self._null(problem, held))
        counts = problem.weight[0].cpu().numpy()
        slope, curvature = first[0, :, 0].cpu().numpy(), second[0, :, 0, 0].cpu().numpy()
        mean = (counts @ np.maximum(curvature, 0.0)) / counts.sum()
        curvature = np.maximum(curvature, _LEAST_CURVATURE * mean)
        weight = counts * curvature
        target = predictor - slope / curvature
        return _Expansion(weight, target - (weight @ target) / weight.sum())

    def recalibrated(self, predictor: FloatArray) -> tuple[float, Tensor]:
        """With a free slope of linear predictors (n,): loss in nats; intercept and shapes, (1, 1 + m)."""
        problem = self._at(self._hazards, predictor)
        slope = torch.zeros_like(self._start[:, :1])
        start = torch.cat([self._start[:, :1], slope, self._start[:, 1:]], -1)
        found = newton(problem, Gaussian(torch.full_like(start, _VAGUE), start), start)
        return float(found.loss), found.theta[:, torch.arange(start.shape[-1]) != 1]


class _Columns:
    """Standardised columns of n rows, (p, n), and the priors that the rows taking part give them."""

    def __init__(self, x: FloatArray, gram: FloatArray, rows: _Rows) -> None:
        self._x, self._gram, self._rows = x, gram, rows
        self._first = rows.expansion(np.zeros(x.shape[1]))
        self._fitted: dict[float, tuple[IntArray, FloatArray]] = {}

    @cached_property
    def _ridge(self) -> float:
        """The variance of all coefficients with the largest evidence."""
        variance = 0.0

        def step(near: _Expansion) -> FloatArray:
            nonlocal variance
            variance, dual = near.best_ridge(self._gram)
            return self._gram @ dual

        # With free shapes and more columns than rows a perfect fit would be in reach.
        self._iterated(step, held=True)
        return variance

    def _sparse(self, share: float) -> tuple[IntArray, FloatArray]:
        """Places and variances of the columns with a visible effect, from a share of zeros to start with."""
        if share not in self._fitted:
            self._fitted[share] = self._mixture(share)
        return self._fitted[share]

    def variances(self, name: str) -> FloatArray:
        """Of each column's coefficient under a prior, (p,)."""
        dense, sparse, share = PRIORS[name]
        out = np.full(len(self._x), dense * self._ridge if dense else 0.0)
        if share is not None:
            places, variance = self._sparse(share)
            out[places] += sparse * variance
        return out

    def predictor(self, name: str) -> FloatArray:
        """Posterior means of the linear predictors of all rows under a prior, seen or not, (n,)."""
        dense, sparse, share = PRIORS[name]
        gram = dense * self._ridge * self._gram if dense else np.zeros_like(self._gram)
        if share is not None:
            places, variance = self._sparse(share)
            some = self._x[places]
            gram += (some.T * (sparse * variance)) @ some
        return self._iterated(lambda near: gram @ near.dual(gram), held=share is None)

    def _iterated(self, step: Callable[[_Expansion], FloatArray], held: bool = False) -> FloatArray:
        """Linear predictors where a step from an expansion leads to itself, (n,)."""
        predictor, near = np.zeros(self._x.shape[1]), self._first
        for _ in range(_EXPANSIONS):
            move = np.clip(near.centred(step(near)) - predictor, -_LONGEST, _LONGEST)
            predictor = predictor + move
            if np.abs(move).max() < _NEAR:
                break
            near = self._rows.expansion(predictor, held)
        return predictor

    def _mixture(self, share: float) -> tuple[IntArray, FloatArray]:
        first = self._first
        away = first.centred(self._x)
        information = away**2 @ first.weight
        with np.errstate(invalid="ignore", divide="ignore"):
            score = np.nan_to_num(np.abs(away @ (first.weight * first.target)) / np.sqrt(information))
        places = np.sort(np.argsort(-score, kind="stable")[:SCREENED])
        x = np.ascontiguousarray(self._x[places])
        starts = [np.zeros(len(x))]
        if share == _FEW:
            starts.append(_lasso(first, x))
        states = [_Mixture(first, x, start, share, len(self._x)) for start in starts]
        best = max(states, key=lambda state: state.bound)

        def step(near: _Expansion) -> FloatArray:
            if near is not first:
                best.ascend(near, x)
            return np.asarray(best.mean @ x)

        self._iterated(step)
        visible = best.shrinkage * best.information > _VISIBLE
        # The mean is shrinkage times the score without the column, which is the score plus d times the mean:
        # the variance of a ridge with this mean is shrinkage / (1 - shrinkage d).
        shrinkage = best.shrinkage[visible]
        return places[visible], shrinkage / (1.0 - shrinkage * best.information[visible])


class _Mixture:
    """Mean-field posterior of the coefficients of columns (q, n) under the mixture.

    Attributes:
        mean: of the coefficients, (q,).
        shrinkage: of each, posterior mean over its score without the column, (q,).
        information: of each, (q,).
        bound: lower bound of the log evidence, but for a constant of the expansion, in nats.
    """

    def __init__(
        self, near: _Expansion, x: FloatArray, start: FloatArray, share: float, n_columns: int
    ) -> None:
        self.mean, self.shrinkage = start.copy(), np.zeros(len(start))
        others = np.full(len(_COMPONENTS) - 1, (1.0 - share) / (len(_COMPONENTS) - 1))
        self._share = np.r_[share, others]
        self._unseen = n_columns - len(start)
        self.ascend(near, x)

    def ascend(self, near: _Expansion, x: FloatArray) -> None:
        """Coordinate ascent where the log-likelihood is its expansion."""
        from sstorch.optim.compiled.mixture_sweeps import mixture_sweeps  # numba takes a second to load

        away = near.centred(x)
        weighted = away * near.weight
        self.information = np.einsum("ij,ij->i", weighted, away)
        score = near.weight * (near.target - self.mean @ away)
        _, bound = mixture_sweeps(
            away,
            weighted,
            self.information,
            score,
            self.mean,
            _COMPONENTS,
            self._share,
            self.shrinkage,
            self._unseen,
            _SWEEPS,
            _SETTLED,
        )
        self.bound = bound - float(np.sum(score**2 / np.where(near.weight > 0, near.weight, 1.0))) / 2


def _lasso(near: _Expansion, x: FloatArray) -> FloatArray:
    """Coefficients of the first lasso on a path with so many that are not zero, (q,)."""
    from sklearn.linear_model import lasso_path  # of wide data alone, and slow to load

    root = np.sqrt(near.weight)
    columns, target = (near.centred(x) * root).T, root * near.target
    # The penalty from which on all coefficients are zero.
    largest = max(float(np.abs(target @ columns).max()) / len(target), np.finfo(np.float64).resolution)
    most = _LASSO * int((near.weight > 0).sum())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a start need not be a minimum
        path = lasso_path(columns, target, alphas=np.geomspace(largest, 0.1 * largest, 20), max_iter=100)[1]
    enough = np.flatnonzero((path != 0).sum(axis=0) >= most)
    return np.array(path[:, enough[0] if len(enough) else -1])


def column_prior(hazards: LinearHazards, start: Tensor, z: Tensor, fold: IntArray | None) -> ColumnPrior:
    """The prior of standardised columns z (n, p) that predicts held-out rows best, for one problem.

    `fold` (n,) is that of each row, negative without weight; None for too few events, for which the dense
    prior is taken. The criterion is the log-likelihood of the held-out rows, their linear predictors with one
    free slope.
    """
    x = np.ascontiguousarray(z.cpu().numpy().T)
    gram = x.T @ x
    whole = _Rows(hazards, start)
    if fold is None:
        return ColumnPrior("dense", _Columns(x, gram, whole).variances("dense"), start)
    held_out = {name: np.zeros(x.shape[1]) for name in PRIORS}
    for number in range(N_FOLDS):
        columns = _Columns(x, gram, _Rows(hazards, start, fold != number))
        for name, predictor in held_out.items():
            predictor[fold == number] = columns.predictor(name)[fold == number]
    fits = {name: whole.recalibrated(predictor) for name, predictor in held_out.items()}
    best = min(fits, key=lambda name: fits[name][0])
    return ColumnPrior(best, _Columns(x, gram, whole).variances(best), fits[best][1])


def with_column_priors(
    design: Design, hazards: LinearHazards, splits: Sequence[SurvivalData], seed: int
) -> tuple[Design, tuple[str, ...], Tensor]:
    """The design with a variance for each of many columns, names of the priors, and starts (S, 1 + m)."""
    null, columns = replace(hazards, design=hazards.design.without_features), design.z
    starts = null_start(null)
    lines = torch.tensor([kind == "line" for kind in design.kinds], device=columns.device)
    weight = hazards.weight / hazards.weight.sum(-1, keepdim=True)
    variance, names, shapes = torch.zeros_like(design.scale), [], []
    for split, data in enumerate(splits):
        z = columns[split]
        deviation = (weight[split] @ z.square()).sqrt()
        z = z / torch.where(lines | (deviation == 0), 1.0, deviation)
        at = torch.tensor([split], device=z.device)
        prior = column_prior(null.select(at), starts[at], z, _folds(hazards.sample.event[split], data, seed))
        variance[split] = torch.as_tensor(prior.variance).to(variance)
        names.append(prior.name)
        shapes.append(prior.shapes)
    return design.rotated(variance), tuple(names), torch.cat(shapes)


def _folds(event: Tensor, data: SurvivalData, seed: int) -> IntArray | None:
    """Fold of each row, by subject and stratified by event, (n,), -1 for padding; None for too few events."""
    had = event[: len(data)].cpu().numpy() > 0
    events = int(had.sum()) if data.subject is None else len(np.unique(data.subject[had]))
    if events < N_FOLDS:
        return None
    fold = np.full(len(event), -1)
    fold[: len(data)] = stratified_folds(had, N_FOLDS, seed, data.subject)
    return fold
