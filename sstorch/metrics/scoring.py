"""Scorers for scikit-learn that know the training rows.

Most metrics need the training rows of a fold for their censoring weights, and scikit-learn hands a scorer
only the rows it scores. Either the training rows are given once (a fixed split), or all rows that
cross-validation splits are given: the training rows of a fold are then those that are not scored.

That is exact only where the rows fitted on are the complement of the rows scored. It is not where rows are
held out elsewhere: in the inner loop of a nested cross-validation (the complement holds the outer test rows),
with `train_size` of `ShuffleSplit` (rows in neither part), and with `return_train_score=True` (the complement
of the training rows are the test rows). There give `train=`, or use `sstorch.metrics.evaluate`; in nested
cross-validation make the scorer in the outer loop, with `all_rows` the outer training rows. An estimator that
keeps the event times it was fitted on as `event_times_`, as `SoftSurvivalTree` does, or their number as
`n_samples_fit_`, is refused where the complement holds others or more.

scikit-learn hands on X and y alone, so rows are taken as observed from time zero. Where some entered late,
use the estimator's ``score`` or ``log_likelihood`` with `entry`, or `sstorch.metrics.evaluate`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import get_scorer_names

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import check_choice, check_horizon
from sstorch.data import Causes, Surv, as_surv
from sstorch.data.columns import check_same_order
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.concordance import concordance_harrell_risk, concordance_uno_risk
from sstorch.metrics.evaluation import METRICS, ScoredRows, score
from sstorch.metrics.incidence_evaluation import (
    INCIDENCE_METRICS,
    ScoredIncidences,
    score_incidence,
)
from sstorch.metrics.outcome import read_causes

RISK_METRICS = ("c_harrell", "c_uno")


@dataclass(frozen=True, eq=False)
class SurvivalScorer:
    """A scorer of survival curves, for `scoring=` of `cross_val_score`, `GridSearchCV` and their like.

    ``scorer(estimator, X, y)`` predicts the curves of X by ``estimator.predict_survival_function(X, times)``
    and returns the metric, with the sign turned where lower is better, so that greater is always better.

    Args:
        metric: a name of `evaluate` with a direction, such as "ibs_graf" or "c_uno".
        train: y of the training rows, for a fixed split; or
        all_rows: y of all rows that are split: the training rows are those of them that are not scored. Times
            and events are compared as a bag, so that the order does not matter. Not for nested loops, nor
            with `train_size` or `return_train_score`: see the module's description.
        tau: truncation of the concordances, of the AUC, and of the horizons; None for none.

    Raises:
        ConfigError: an unknown metric, both or neither of `train` and `all_rows`, or tau is no time > 0.
        DataError: `train` or `all_rows` is no y.

    Examples:
        >>> from sklearn.model_selection import cross_val_score
        >>> from sstorch import SoftSurvivalTree, load_dataset
        >>> data = load_dataset("gbsg2")
        >>> y = np.array(list(zip(data.event, data.time)), dtype=[("event", bool), ("time", float)])
        >>> tree = SoftSurvivalTree(depth=0, n_starts=1, random_state=0)
        >>> scorer = SurvivalScorer("ibs_graf", all_rows=y)
        >>> cross_val_score(tree, data.frame, y, cv=2, scoring=scorer).round(1).tolist()
        [-0.2, -0.1]
    """

    metric: str
    train: Any = field(default=None, repr=False)
    all_rows: Any = field(default=None, repr=False)
    tau: float | None = None

    def __post_init__(self) -> None:
        known = tuple(name for name, metric in METRICS.items() if metric.higher_is_better is not None)
        check_choice(self.metric, "metric", known)
        _check_options(self.train, self.all_rows, self.tau)

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Score a fitted estimator on some rows.

        Raises:
            DataError: as `evaluate`, rows that are not among `all_rows`, or an estimator that is known not to
                be fitted on all the others.
        """
        train = _training_rows(y, self.train, self.all_rows)
        if self.all_rows is not None:
            _check_fitted_on(estimator, *train)
        value = score(self.metric, ScoredRows.of(estimator, (None, train), (X, y)), self.tau)
        return value if METRICS[self.metric].higher_is_better else -value


@dataclass(frozen=True, eq=False)
class RiskScore:
    """A metric of risk scores, for `sklearn.metrics.make_scorer`: ``score(y_true, y_pred)``.

    The estimator's ``predict`` has to give a risk, higher where the event is expected earlier.

    Args:
        metric: "c_harrell" or "c_uno".
        train: y of the training rows, for a fixed split; or
        all_rows: y of all rows that are split, as for `SurvivalScorer`. "c_harrell" needs neither.
        tau: pairs count only if the earlier time is below tau.

    Raises:
        ConfigError: an unknown metric; for "c_uno" both or neither of `train` and `all_rows`; tau is no
            time > 0.

    Examples:
        >>> from sklearn.metrics import make_scorer
        >>> scorer = make_scorer(RiskScore("c_harrell"))
        >>> RiskScore("c_harrell")(([1.0, 2.0, 3.0], [1, 1, 0]), [3.0, 2.0, 1.0])
        1.0
    """

    metric: str = "c_harrell"
    train: Any = field(default=None, repr=False)
    all_rows: Any = field(default=None, repr=False)
    tau: float | None = None

    def __post_init__(self) -> None:
        check_choice(self.metric, "metric", RISK_METRICS)
        if self.metric == "c_uno":
            _check_options(self.train, self.all_rows, self.tau)
        elif self.tau is not None:
            check_horizon(self.tau, "tau")

    @property
    def __name__(self) -> str:
        """Name that scikit-learn shows."""
        return self.metric

    def __call__(
        self, y_true: Any, y_pred: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None
    ) -> float:
        """Score the risks of some rows.

        Raises:
            DataError: as `concordance_harrell_risk` and `concordance_uno_risk`, or rows not among `all_rows`.
        """
        outcome = as_surv(y_true)
        check_same_order(("y_true", outcome), ("y_pred", y_pred), ("sample_weight", sample_weight))
        if self.metric == "c_harrell":
            return concordance_harrell_risk(outcome, y_pred, tau=self.tau, sample_weight=sample_weight)
        train = _training_rows(y_true, self.train, self.all_rows)
        return concordance_uno_risk(outcome, y_pred, train=train, tau=self.tau, sample_weight=sample_weight)


def remedy_for_names(scoring: object) -> str:
    """What to write instead of a scoring of scikit-learn's own, given by name; empty for all else."""
    if scoring not in get_scorer_names():
        return ""
    return (
        f"; {scoring!r} of scikit-learn knows neither times nor censoring, "
        "sstorch.metrics.SurvivalScorer('ibs_graf', all_rows=y) does"
    )


@dataclass(frozen=True, eq=False)
class IncidenceScorer:
    """A scorer of incidences of competing causes, for `scoring=` of `cross_val_score` and its like.

    ``scorer(estimator, X, y)`` predicts by ``estimator.predict_cumulative_incidence(X, times)`` and returns
    the metric, with the sign turned where lower is better, so that greater is always better. ``y`` has times
    and causes in a form that is split by rows, such as a DataFrame with columns ``time`` and ``cause``.

    Args:
        metric: a name of `evaluate_incidence`, such as "ibs" or "c_wolbers".
        train: y of the training rows, for a fixed split; or
        all_rows: y of all rows that are split, as for `SurvivalScorer`.
        cause: number of a cause, 1 .. K, or its name; None for the mean over all causes.
        tau: the horizon, see `evaluate_incidence`.

    Raises:
        ConfigError: an unknown metric or cause, both or neither of `train` and `all_rows`, or tau is no
            time > 0.
        DataError: `train` or `all_rows` is no y with causes.

    Examples:
        >>> from sklearn.model_selection import cross_val_score
        >>> from sstorch import CompetingRisksTree, Surv
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(200, 1))
        >>> y = Surv(rng.exponential(np.exp(-x[:, 0])), rng.integers(0, 3, 200), causes="auto")
        >>> scorer = IncidenceScorer("ibs", all_rows=y, cause=1)
        >>> cross_val_score(CompetingRisksTree(depth=0), x, y, cv=2, scoring=scorer).round(1).tolist()
        [-0.2, -0.2]
    """

    metric: str
    train: Any = field(default=None, repr=False)
    all_rows: Any = field(default=None, repr=False)
    cause: int | str | None = None
    tau: float | None = None

    def __post_init__(self) -> None:
        check_choice(self.metric, "metric", tuple(INCIDENCE_METRICS))
        _check_options(self.train, self.all_rows, self.tau, as_surv)
        if self.cause is not None:
            self._known()[1].number(self.cause)

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Score a fitted estimator on some rows.

        Raises:
            DataError: as `evaluate_incidence`, rows that are not among `all_rows`, or an estimator that is
                known not to be fitted on all the others.
        """
        known_time, causes = self._known()
        outcome = as_surv(y).recoded(causes.names)
        time, scored = _time_and_causes(outcome)
        check_same_order(("X", X), ("y", outcome))
        train = known_time, causes.codes
        if self.all_rows is not None:
            left_time, left = _not_scored(train, (time, scored.codes), "cause")
            train = left_time, left.astype(np.int64)
            _check_fitted_on(estimator, left_time, left > 0.0)
        known = read_causes(train, "this score", n_causes=len(causes.names))
        rows = ScoredIncidences.predicted(estimator, X, outcome, known, causes.names, self.tau)
        which = range(1, len(causes.names) + 1) if self.cause is None else [causes.number(self.cause)]
        value = float(np.mean([score_incidence(self.metric, rows, k) for k in which]))
        return value if INCIDENCE_METRICS[self.metric].higher_is_better else -value

    def _known(self) -> tuple[FloatArray, Causes]:
        """Times and causes of the rows that were given."""
        return _time_and_causes(as_surv(self.train if self.all_rows is None else self.all_rows))


def _time_and_causes(y: Surv) -> tuple[FloatArray, Causes]:
    causes = y.coded_causes
    if causes is None:
        raise DataError("y has no causes; give Surv(time, cause, causes=...)")
    return y.right_censored("a score of incidences")[0], causes


def _check_options(
    train: Any, all_rows: Any, tau: float | None, parse: Callable[[Any], object] = as_surv
) -> None:
    if (train is None) == (all_rows is None):
        raise ConfigError(
            "train, all_rows: expected one of them, y of the training rows or y of all rows that are "
            f"split; got {'neither' if train is None else 'both'}."
        )
    if tau is not None:
        check_horizon(tau, "tau")
    for name, rows in (("train", train), ("all_rows", all_rows)):
        if rows is not None:
            try:
                parse(rows)
            except DataError as error:
                raise DataError(f"{name}: {error}") from error


def _check_fitted_on(estimator: Any, time: FloatArray, event: BoolArray) -> None:
    """Refuse weights from rows that the estimator, as far as it tells, was not fitted on."""
    fitted = getattr(estimator, "best_estimator_", estimator)
    fitted = fitted[-1] if hasattr(fitted, "steps") else fitted
    remedy = (
        "as in a nested loop, with train_size or with return_train_score; give train=, y of the rows it was "
        "fitted on."
    )
    n_fitted = getattr(fitted, "n_samples_fit_", None)
    if n_fitted is not None and time.size > n_fitted:
        raise DataError(
            f"all_rows: {time.size} rows are not scored, but the estimator was fitted on {n_fitted}, {remedy}"
        )
    known = getattr(fitted, "event_times_", None)
    events = np.unique(time[event & (time > 0.0)])  # zeros may have been moved before the fit
    if known is None or events.size == 0:
        return
    known = np.unique(np.asarray(known, dtype=np.float64))
    after = np.searchsorted(known, events).clip(max=known.size - 1)
    near = np.minimum(np.abs(known[after] - events), np.abs(known[np.maximum(after - 1, 0)] - events))
    strange = near > 1e-6 * events  # the estimator may have kept float32
    if strange.any():
        raise DataError(
            f"all_rows: a row that is not scored has its event at {events[strange][0]:g}, where the "
            f"estimator has seen no event, {remedy}"
        )


def _training_rows(y: Any, train: Any, all_rows: Any) -> tuple[FloatArray, BoolArray]:
    if all_rows is None:
        return _time_and_event(train)
    time, event = _not_scored(_time_and_event(all_rows), _time_and_event(y), "event")
    return time, event > 0.0


def _time_and_event(y: Any) -> tuple[FloatArray, BoolArray]:
    time, event, _ = as_surv(y).right_censored("this score")
    return time, event


def _not_scored(
    whole: tuple[FloatArray, npt.NDArray[Any]], scored: tuple[FloatArray, npt.NDArray[Any]], name: str
) -> tuple[FloatArray, FloatArray]:
    """Times and events, or causes, of all rows but the scored ones; `name` says which they are."""
    every, some = np.column_stack(whole), np.column_stack(scored)
    pairs, position = np.unique(np.concatenate((every, some)), axis=0, return_inverse=True)
    position = position.reshape(-1)
    left = np.bincount(position[: len(every)], minlength=len(pairs))
    left -= np.bincount(position[len(every) :], minlength=len(pairs))
    if (left < 0).any():
        time, value = pairs[int((left < 0).argmax())]
        raise DataError(
            f"y: a scored row with time {time:g} and {name} {value:g} is not among all_rows; give y of all "
            "rows that cross-validation splits."
        )
    if not left.any():
        raise DataError("y: all of all_rows are scored, so that no training row is left for the weights.")
    time, value = np.repeat(pairs, left, axis=0).astype(np.float64).T
    return time, value
