"""Conformal lower bounds of event times."""

from __future__ import annotations

import math
import warnings
from typing import Literal, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from sstorch._types import BoolArray, FloatArray
from sstorch.base import SurvivalEstimator
from sstorch.checks import blocks, check_integer, check_share
from sstorch.data import Schema, SurvivalData, as_surv
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.metrics import KaplanMeier, censoring_distribution

# Times at which a bound is looked for; it is rounded down to one of them.
_GRID = 512
# Elements of the curves of rows that are looked at together.
_CHUNK_ELEMENTS = 2**22
# So much later, relatively, counts a censoring for the model of it: G just before a time is G there then.
_LATER = 1e-9
# A censoring model that is farther from Kaplan-Meier at the cutoff, and not by chance, is warned of.
_FAR = 0.1
# Share of the population that is not censored at the default cutoff.
_UNCENSORED = 0.2


class ConformalLowerBound(BaseEstimator):  # type: ignore[misc]
    """Predictive lower bounds L(x) with P(T >= L(X)) >= level, for any model and any right censoring.

    Weighted split conformal prediction with inverse probability of censoring weights. One part of the rows
    trains the model and estimates the censoring distribution, G(t | x) = P(C > t | x); the other part
    calibrates. Times are truncated at a ``cutoff`` c: min(T, c) is known for rows with an event before c or
    follow-up to c. A row with values (x, t) is among these with probability G(min(t, c)- | x); weights 1 / G
    correct for this selection. The score of a row with an event before the cutoff is F(t | x); other rows
    have an infinite score. The bound is the first time with a score above the lowest 1 - level of the
    weighted scores, with the weight of the predicted subject added below all scores.

    Coverage is on average over subjects and calibration rows, not for each subject. It is valid for any
    sample size and any model if

    * all subjects, including those predicted, are independent and from one population;
    * T and C are independent given x (with ``censoring="kaplan_meier"``: C is independent of x);
    * G(c- | x) > 0 for all x;
    * G is known. With an estimated G, coverage can be lower by half the mean absolute error of the normalised
      weights (Lei and Candès).

    Bounds are at most the cutoff. If more than ``level`` of all subjects survive to the cutoff, coverage
    exceeds ``level``.

    Args:
        estimator: model, such as :class:`~sstorch.SoftSurvivalTree`; cloned and fitted.
        level: coverage, in (0, 1).
        calibration: share of the rows for calibration, stratified by event, in (0, 1).
        censoring: ``"kaplan_meier"``, or a model of the censoring time given x, such as
            ``SoftSurvivalTree(depth=0)``: cloned and fitted with event and censoring exchanged.
        cutoff: c > 0, original units; None for the last training time at which 20 % of the population are not
            censored yet. A later one allows larger bounds and larger weights.
        random_state: seed of the division, an integer.

    Attributes:
        estimator_: fitted to the training part.
        censoring_: estimate of G, a :class:`~sstorch.metrics.KaplanMeier` or a fitted model.
        cutoff_: c.
        scores_: F(t | x) of the calibration rows with known min(T, c), increasing, +inf at and beyond the
            cutoff.
        weights_: weights of these rows.
        effective_size_: effective sample size of these weights, (sum w)^2 / sum w^2.

    References:
        Tibshirani, Foygel Barber, Candès and Ramdas (2019), "Conformal prediction under covariate shift".
        Candès, Lei and Ren (2023), "Conformalized survival analysis", JRSS B 85, 24-45: cutoff and weights
        for fully observed censoring times. Lei and Candès (2021), "Conformal inference of counterfactuals and
        individual treatment effects", JRSS B 83, 911-938: estimated weights. Robins and Rotnitzky (1992): the
        weights 1 / G of events under general right censoring.

    >>> from sstorch import SoftSurvivalTree, load_dataset
    >>> data = load_dataset("gbsg2")
    >>> tree = SoftSurvivalTree(depth=0, trainer="joint", n_starts=1)
    >>> bounds = ConformalLowerBound(tree, level=0.8).fit(data.frame, (data.time, data.event))
    >>> lower = bounds.predict(data.frame)          # days that 80 % of such patients reach
    >>> lower.shape, bool((lower <= bounds.cutoff_).all())
    ((686,), True)
    """

    estimator_: SurvivalEstimator
    censoring_: KaplanMeier | SurvivalEstimator
    cutoff_: float
    scores_: FloatArray
    weights_: FloatArray
    effective_size_: float

    def __init__(
        self,
        estimator: SurvivalEstimator,
        level: float = 0.9,
        calibration: float = 0.5,
        censoring: Literal["kaplan_meier"] | SurvivalEstimator = "kaplan_meier",
        cutoff: float | None = None,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.level = level
        self.calibration = calibration
        self.censoring = censoring
        self.cutoff = cutoff
        self.random_state = random_state

    def fit(self, X: object, y: object) -> Self:
        """Train on one part of the rows and calibrate on the other.

        Args:
            X: features, a DataFrame or an array (n, p).
            y: right-censored outcome, a :class:`~sstorch.Surv` or a (time, event) tuple.

        Raises:
            DataError: the data are invalid or have weights, or too few rows can calibrate.
            ConfigError: a parameter has an invalid value.
        """
        self._check()
        outcome = as_surv(y)
        if outcome.type != "right":
            raise DataError(
                f"conformal bounds need right-censored times, and y is {outcome.type}: their weights come "
                "from the censoring distribution of subjects observed from time zero"
            )
        if outcome.weight is not None and np.ptp(outcome.weight) > 0:
            raise DataError(
                "y has weights, and conformal bounds do not support them: leave them out for bounds in the "
                "population of the rows as they are"
            )
        data = SurvivalData(X, outcome)
        self._schema = Schema.of(data.frame)
        held = self._calibration_rows(data.event)
        train, rows = data.subset(~held), data.subset(held)
        self.estimator_ = clone(self.estimator).fit(train.frame, train.y)
        self.censoring_ = self._fit_censoring(train)
        self.cutoff_ = self._cutoff(train)
        self._warn_if_far(train)
        self._grid = _times(train.time, self.cutoff_)
        beyond = rows.time >= self.cutoff_
        known = rows.subset(beyond | rows.event)
        beyond = known.time >= self.cutoff_
        score = np.where(beyond, np.inf, 1 - _at_each_time(self.estimator_, known.frame, known.time))
        uncensored = self._uncensored_before(known.frame, np.minimum(known.time, self.cutoff_))
        if not (uncensored > 0).all():
            raise DataError(
                f"some rows are all but certain to be censored before the cutoff {self.cutoff_:g}: choose a "
                "smaller one"
            )
        weight = 1 / uncensored
        order = np.argsort(score, kind="stable")
        self.scores_, self.weights_ = score[order], weight[order]
        self.effective_size_ = float(weight.sum() ** 2 / np.square(weight).sum())
        return self

    def predict(self, X: object, level: float | None = None) -> FloatArray:
        """Lower bounds on the time of the event.

        Args:
            X: rows with the training columns.
            level: another level with the same calibration; None for the parameter.

        Returns:
            shape (n,), original units, from 0 to ``cutoff_``; 0 if there are too few calibration rows.

        Raises:
            ConfigError: ``level`` is out of range.
        """
        check_is_fitted(self, "scores_")
        asked = self.level if level is None else level
        check_share(asked, "level")
        frame = self._schema.clean(X)
        parts = [
            self._bounds(frame.iloc[rows].reset_index(drop=True), 1 - asked)
            for rows in blocks(len(frame), len(self._grid), _CHUNK_ELEMENTS)
        ]
        return np.concatenate(parts)

    def _bounds(self, frame: pd.DataFrame, alpha: float) -> FloatArray:
        grid = self._grid
        failed = 1 - self.estimator_.falling_curves(frame, grid)
        weight = 1 / np.maximum(self._uncensored_on_grid(frame), np.finfo(np.float64).tiny)
        # F rises with time and the threshold falls: from the first time on all are inside.
        inside = failed >= self._threshold(weight, alpha)
        first = np.where(inside.any(axis=1), inside.argmax(axis=1), len(grid))
        bounds: FloatArray = np.r_[0.0, grid][first]
        return bounds

    def _threshold(self, weight: FloatArray, alpha: float) -> FloatArray:
        """Largest score below which the share alpha of the weights is, with a row of ``weight`` below all.

        -inf if that row alone is more than the share.
        """
        below = np.r_[0.0, np.cumsum(self.weights_)]
        room = alpha * (below[-1] + weight) - weight
        missed = np.searchsorted(below, room * (1 + 1e-12), side="right") - 1
        threshold: FloatArray = np.r_[-np.inf, self.scores_, np.inf][missed + 1]
        return threshold

    def _uncensored_on_grid(self, frame: pd.DataFrame) -> FloatArray:
        """G just before each time of the grid, (n, n_times), or (1, n_times) if it is the same for all."""
        if isinstance(self.censoring_, KaplanMeier):
            return self.censoring_.before(self._grid)[None]
        return self.censoring_.falling_curves(frame, self._grid)

    def _uncensored_before(self, frame: pd.DataFrame, time: FloatArray) -> FloatArray:
        """G just before each row's own time, shape (n,)."""
        if isinstance(self.censoring_, KaplanMeier):
            return self.censoring_.before(time)
        return _at_each_time(self.censoring_, frame, time)

    def _fit_censoring(self, train: SurvivalData) -> KaplanMeier | SurvivalEstimator:
        if self.censoring == "kaplan_meier" or train.event.all():
            return censoring_distribution(train.y)
        # A row with an event is at no more risk of censoring then, and G is wanted just before each time.
        time = np.where(train.event, train.time, train.time * (1 + _LATER))
        model: SurvivalEstimator = clone(self.censoring).fit(train.frame, (time, ~train.event))
        return model

    def _warn_if_far(self, train: SurvivalData) -> None:
        """Compare the censoring model, on average, with Kaplan-Meier at the cutoff."""
        if isinstance(self.censoring_, KaplanMeier):
            return
        at = np.array([self.cutoff_])
        known = float(censoring_distribution(train.y).before(at)[0])
        rows = train.frame.iloc[: _CHUNK_ELEMENTS // 2]
        modelled = float(self.censoring_.falling_curves(rows, at).mean())
        # About the standard error of Kaplan-Meier, from those who are still observed.
        error = known * math.sqrt((1 - known) / max(int((train.time >= self.cutoff_).sum()), 1))
        if abs(modelled - known) > max(_FAR, 2 * error):
            warnings.warn(
                f"just before the cutoff {self.cutoff_:g} the censoring model leaves {modelled:.0%} "
                f"uncensored on average, Kaplan-Meier {known:.0%}: the bounds hold only if the model is "
                "right. Where many are censored at one time, such as the end of a study, a smooth model is "
                "not: take 'kaplan_meier', or trees with steps, or a cutoff before that time",
                DataWarning,
                stacklevel=3,
            )

    def _cutoff(self, train: SurvivalData) -> float:
        if self.cutoff is not None:
            if self.cutoff > train.time.max():
                raise ConfigError(
                    f"cutoff={self.cutoff:g} is beyond the last training time, {train.time.max():g}, where "
                    "nothing is known of censoring: choose a smaller one"
                )
            return float(self.cutoff)
        censoring, times = censoring_distribution(train.y), np.unique(train.time)
        return float(times[censoring.before(times) >= _UNCENSORED].max())

    def _calibration_rows(self, event: BoolArray) -> BoolArray:
        draws = np.random.default_rng(check_integer("random_state", self.random_state, 0))
        held = np.zeros(len(event), dtype=bool)
        for kind in (True, False):
            rows = draws.permutation(np.flatnonzero(event == kind))
            held[rows[: round(self.calibration * len(rows))]] = True
        if not 0 < (held & event).sum() < event.sum():
            raise DataError(
                f"calibration={self.calibration:g} of {event.sum()} rows with an event leaves none to "
                "train or none to calibrate: choose another share, or more rows"
            )
        return held

    def _check(self) -> None:
        for name in ("level", "calibration"):
            check_share(getattr(self, name), name)
        if self.cutoff is not None and not (np.isfinite(self.cutoff) and self.cutoff > 0):
            raise ConfigError(f"cutoff must be a finite time > 0, or None, got {self.cutoff!r}")
        for name, model in (("estimator", self.estimator), ("censoring", self.censoring)):
            if not isinstance(model, SurvivalEstimator) and (name, model) != ("censoring", "kaplan_meier"):
                known = "an estimator of sstorch" + ", or 'kaplan_meier'" * (name == "censoring")
                raise ConfigError(f"{name} must be {known}, got {model!r}")


def _at_each_time(model: SurvivalEstimator, frame: pd.DataFrame, time: FloatArray) -> FloatArray:
    """S(t_i | x_i), shape (n,)."""
    times, place = np.unique(time, return_inverse=True)
    curves = [
        model.falling_curves(frame.iloc[rows].reset_index(drop=True), times)
        for rows in blocks(len(frame), len(times), _CHUNK_ELEMENTS)
    ]
    return np.concatenate(curves)[np.arange(len(frame)), place]


def _times(train: FloatArray, cutoff: float) -> FloatArray:
    """Increasing times up to the cutoff, as dense as the training times are."""
    inside = np.r_[0.0, train[train < cutoff], cutoff]
    grid = np.unique(np.quantile(inside, np.linspace(0, 1, _GRID + 1)))
    return grid[grid > 0]
