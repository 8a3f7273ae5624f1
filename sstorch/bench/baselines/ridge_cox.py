"""Cox regression by Newton's method, which needs no package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.bench.baselines.base import Baseline, BreslowBaseline
from sstorch.data import Preprocessor, Schema, Surv, SurvivalData, as_surv
from sstorch.data.coded import CodedMatrix
from sstorch.exceptions import TrainingError
from sstorch.metrics.censoring import risk_sets
from sstorch.metrics.outcome import Observed

_STEPS, _HALVINGS = 50, 30
# Newton's decrement, half the squared length of a step, at which it ends.
_TOLERANCE = 1e-9
# Runs of event times over each of which Hessians take one mean of the rows at risk.
_RUNS = 1024


@dataclass(frozen=True)
class CodedRows:
    """Features of n rows: numbers (n, d) and, behind them, indicators (n, c), a few ones a row."""

    numbers: FloatArray
    indicators: csr_array

    @classmethod
    def of(cls, x: CodedMatrix) -> Self:
        """Of encoded rows."""
        sizes = np.array([size for _, size in x.blocks], dtype=np.int64)
        codes = x.codes.cpu().numpy().astype(np.int64)
        row, block = np.nonzero(codes < sizes)
        column = codes[row, block] + (np.cumsum(sizes) - sizes)[block]
        shape = len(codes), int(sizes.sum())
        return cls(x.numbers.cpu().double().numpy(), csr_array((np.ones(len(row)), (row, column)), shape))

    @property
    def width(self) -> int:
        """Features."""
        return int(self.numbers.shape[1] + self.indicators.shape[1])

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: IntArray) -> CodedRows:
        """Some rows."""
        return CodedRows(self.numbers[rows], self.indicators[rows])

    def __matmul__(self, coefficients: FloatArray) -> FloatArray:
        """Linear scores, (n,)."""
        d = self.numbers.shape[1]
        scores: FloatArray = self.numbers @ coefficients[:d] + self.indicators @ coefficients[d:]
        return scores

    def sums(self, weight: FloatArray | csr_array) -> FloatArray:
        """Weighted sums of the rows: weights (n,) -> (p,), or (k, n) -> (k, p)."""
        parts = weight @ self.numbers, weight @ self.indicators
        return np.concatenate(
            [part if isinstance(part, np.ndarray) else part.toarray() for part in parts], -1
        )

    def gram(self, weight: FloatArray) -> FloatArray:
        """Weighted second moments, (p, p)."""
        weighted = weight[:, None] * self.numbers
        cross = self.indicators.T @ weighted
        own = (self.indicators.T @ self.indicators.multiply(weight[:, None]).tocsr()).toarray()
        return np.block([[self.numbers.T @ weighted, cross.T], [cross, own]])


@dataclass(frozen=True)
class RidgeCox(Baseline):
    """Cox regression with Breslow's ties and baseline hazard, and one ridge.

    References:
        Breslow (1974), Biometrics 30, 89-99.
    """

    name: ClassVar[str] = "ridge_cox"
    knows: ClassVar = ("entry", "weights")
    ranges: ClassVar = {"penalty": (1e-6,)}

    # the partial log-likelihood, a sum over events, is reduced by half of it times the squared coefficients
    # of the features on [0, 1]; above 0, or those of all categories of a column would not be determined
    penalty: float = 1.0

    def _fit(self, train: SurvivalData, schema: Schema, seed: int) -> ProportionalHazards:
        preprocessor = Preprocessor(schema).fit(train.frame, train.uneven_weight)

        def encoder(X: object) -> CodedRows:
            return CodedRows.of(CodedMatrix.of(preprocessor.encode(X)))

        x, y = encoder(train.frame), train.y.weighted(train.uneven_weight)
        beta = fit_ridge_cox(x, y, self.penalty)
        baseline = BreslowBaseline.of(x @ beta, y)
        return ProportionalHazards(encoder, beta, baseline)


@dataclass(frozen=True)
class ProportionalHazards:
    """Curves of a Cox model, at the requested times alone: training rows may have many."""

    encoder: Callable[[object], CodedRows]
    coefficients: FloatArray  # (p,)
    baseline: BreslowBaseline

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """See :class:`~sstorch.bench.baselines.base.Curves`."""
        return self.baseline.survival(self.encoder(X) @ self.coefficients, times)


def fit_ridge_cox(
    x: FloatArray | CodedRows, y: Surv | tuple[FloatArray, BoolArray], penalty: float
) -> FloatArray:
    """Coefficients of least negative partial log-likelihood plus half the penalty (> 0) times their squares.

    Of more than 1,024 distinct times the Hessian takes one mean of the rows at risk for each run of times,
    which bounds it from above: the minimum is the same, and memory does not grow with rows x indicators.
    Raises TrainingError if Newton's method ends without a minimum.
    """
    outcome = as_surv(y)
    (time, event, _), entry = outcome.right_censored("Cox regression"), outcome.entry
    order = np.argsort(time, kind="stable")
    rows = x if isinstance(x, CodedRows) else CodedRows(x, csr_array((len(x), 0)))
    rows = CodedRows(rows.numbers - rows.numbers.mean(axis=0), rows.indicators)[order]
    at, event = risk_sets(Observed(time[order], event[order])).position, event[order]
    each = np.ones(len(rows)) if outcome.weight is None else outcome.weight[order]
    late = None if entry is None else _Late.of(time[order], entry[order])
    problem = _Partial(rows, event, at, penalty, each, late)
    beta = np.zeros(rows.width)
    value, gradient, hessian = problem.derivatives(beta)
    for _ in range(_STEPS):
        step = -np.linalg.solve(hessian, gradient)
        decrement = float(-gradient @ step)
        if decrement < _TOLERANCE:
            return np.asarray(beta + step)
        for halving in range(_HALVINGS):
            tried = beta + 0.5**halving * step
            found = problem.derivatives(tried)
            if found[0] <= value - 1e-4 * 0.5**halving * decrement:
                break
        else:
            break
        beta, (value, gradient, hessian) = tried, found
    raise TrainingError("Cox regression does not converge; give a larger penalty")


@dataclass(frozen=True)
class _Late:
    """Rows that are not yet at risk; rows are sorted by time."""

    order: IntArray  # rows in the order of their entry, (n,)
    # place in that order of the first row that enters at or after the time of each row, (n,)
    first: IntArray
    before: IntArray  # number of distinct times up to the entry of each row, (n,)

    @classmethod
    def of(cls, time: FloatArray, entry: FloatArray) -> _Late:
        order = np.argsort(entry, kind="stable")
        first = np.searchsorted(entry[order], time, side="left")
        return cls(order, first, np.searchsorted(np.unique(time), entry, side="right"))

    def missing(self, values: FloatArray) -> FloatArray:
        """Sum of values over the rows that enter at or after the time of each row, (n,)."""
        sums = np.cumsum(values[self.order][::-1])[::-1]
        return np.append(sums, 0.0)[self.first]


@dataclass(frozen=True)
class _Partial:
    """Penalised negative partial log-likelihood; rows are sorted by time."""

    x: CodedRows  # features of the rows
    event: BoolArray  # whether each row has the event, (n,)
    at: IntArray  # number of the distinct time of each row, (n,)
    penalty: float  # > 0
    weight: FloatArray  # of the rows, (n,)
    late: _Late | None  # which rows are not yet at risk; None where all are from the beginning

    def derivatives(self, beta: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Value, gradient, and Hessian or a bound of it from above."""
        x, at, late, own = self.x, self.at, self.late, self.event * self.weight
        score = x @ beta
        largest = float(score.max())
        risk = self.weight * np.exp(score - largest)
        at_risk = np.cumsum(risk[::-1])[::-1][np.searchsorted(at, at)]  # from the first row of the same time
        if late is not None:
            # Who leaves at a time is at risk there, whatever rounding leaves of the difference.
            at_risk = np.maximum(at_risk - late.missing(risk), risk)
        jumps = np.asarray(np.bincount(at, weights=own / at_risk), dtype=np.float64)
        hazard = np.cumsum(jumps)  # of a risk of one
        steps = hazard[at]
        if late is not None:
            steps = steps - np.append(0.0, hazard)[late.before]
        value = float(own @ (np.log(at_risk) + largest - score) + 0.5 * self.penalty * beta @ beta)
        gradient = x.sums(risk * steps - own) + self.penalty * beta
        hessian = x.gram(risk * steps) - self._of_means(risk, hazard)
        return value, gradient, hessian + self.penalty * np.eye(len(beta))

    def _of_means(self, risk: FloatArray, hazard: FloatArray) -> FloatArray:
        """Sum over events of the outer product of the mean of the rows at risk, (p, p).

        Over a run of times the mean is one, weighted by their events. The sum over a run of hazard times rows
        at risk is a sum over rows of risk times the hazard of the run in which they were at risk.
        """
        n_times = len(hazard)
        n_runs = min(n_times, _RUNS)
        run = np.arange(n_times) * n_runs // n_times
        begin = np.append(0.0, hazard)[np.searchsorted(run, np.arange(n_runs))]
        width = np.diff(begin, append=hazard[-1])
        events = np.bincount(run[self.at], self.event * self.weight, n_runs)

        def until(position: IntArray, rows: IntArray) -> FloatArray:
            """Of rows at risk up to the time of a number, (runs, p)."""
            own = run[position]
            parts = [
                self.x.sums(csr_array((values, (own, rows)), shape=(n_runs, len(self.x))))
                for values in (risk[rows] * (hazard[position] - begin[own]), risk[rows])
            ]
            later = np.cumsum(parts[1][::-1], axis=0)[::-1] - parts[1]
            return parts[0] + width[:, None] * later

        sums = until(self.at, np.arange(len(self.x)))
        if self.late is not None:
            entered = np.flatnonzero(self.late.before > 0)
            sums = sums - until(self.late.before[entered] - 1, entered)
        some = events > 0
        means = sums[some] / np.sqrt(events[some])[:, None]
        return np.asarray(means.T @ means)
