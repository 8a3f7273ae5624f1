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

`y` may be a `Surv`, whose entry times, subjects, weights and causes go along with the rows.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sstorch._types import FloatArray
from sstorch.checks import check_choice, check_horizon
from sstorch.data import Surv, as_surv
from sstorch.exceptions import ConfigError, DataError, named
from sstorch.metrics.evaluation import score, scored_rows
from sstorch.metrics.incidence_evaluation import ScoredIncidences
from sstorch.metrics.registry import METRICS, names_of
from sstorch.metrics.scored_rows import GivenRows, split_rows


@dataclass(frozen=True, eq=False)
class SurvivalScorer:
    """Scorer of predictions for `scoring=` of scikit-learn, as in `cross_val_score` and `GridSearchCV`.

    ``scorer(estimator, X, y)`` predicts as `evaluate` and returns the metric, negated if lower is better:
    higher is always better.

    Args:
        metric: a name of `evaluate` with a direction, such as "ibs_graf", "c_uno" or, of causes, "ibs".
        train: y of the training rows, for a fixed split; or
        all_rows: y of all rows; the training rows are those that are not scored. The order of rows does not
            matter. Not for nested loops, nor with `train_size` or `return_train_score`: see the description
            of the module.
        cause: number of a competing cause, 1 .. K, or its name; None for the mean over all causes.
        tau: as in `evaluate`.

    Raises:
        ConfigError: an unknown metric or cause, both or neither of `train` and `all_rows`, or tau is not > 0.
        DataError: `train` or `all_rows` is not a valid outcome.

    Examples:
        >>> from sklearn.model_selection import cross_val_score
        >>> from sstorch import Surv, SurvivalRegression, load_dataset
        >>> data = load_dataset("gbsg2")
        >>> tree = SurvivalRegression(random_state=0)
        >>> scorer = SurvivalScorer("ibs_graf", all_rows=data.y)
        >>> cross_val_score(tree, data.frame, data.y, cv=2, scoring=scorer).round(1).tolist()
        [-0.2, -0.1]
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(200, 1))
        >>> y = Surv(rng.exponential(np.exp(-x[:, 0])), rng.integers(0, 3, 200), causes="auto")
        >>> scorer = SurvivalScorer("ibs", all_rows=y, cause=1)
        >>> cross_val_score(SurvivalRegression(), x, y, cv=2, scoring=scorer).round(1).tolist()
        [-0.2, -0.2]
    """

    metric: str
    train: Any = field(default=None, repr=False)
    all_rows: Any = field(default=None, repr=False)
    cause: int | str | None = None
    tau: float | None = None

    def __post_init__(self) -> None:
        known = [
            name
            for name in names_of()
            if METRICS[name].value is not None and METRICS[name].higher_is_better is not None
        ]
        check_choice(self.metric, "metric", tuple(known))
        _check_options(self.train, self.all_rows, self.tau)
        if self.cause is not None:
            self._number(as_surv(self.train if self.all_rows is None else self.all_rows))

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Score a fitted estimator on some rows.

        Raises a `DataError` as `evaluate`, for rows that are not among `all_rows`, and for an estimator that
        is known not to be fitted on all the others.
        """
        outcome = as_surv(y)
        train = _training_rows(outcome, self.train, self.all_rows)
        if self.all_rows is not None:
            _check_fitted_on(estimator, train)
        given = split_rows((X, outcome), "y", estimator)
        rows = scored_rows(estimator, GivenRows(None, train), given, self.tau)
        causes = [0]
        if isinstance(rows, ScoredIncidences):
            causes = list(range(1, len(rows.names) + 1)) if self.cause is None else [self._number(train)]
        value = float(np.mean([score(self.metric, rows, self.tau, cause) for cause in causes]))
        return value if METRICS[self.metric].higher_is_better else -value

    def _number(self, y: Surv) -> int:
        if y.coded_causes is None:
            raise ConfigError(f"cause={self.cause!r}, but y has one event")
        assert self.cause is not None
        return y.coded_causes.number(self.cause)


def remedy_for_names(scoring: object) -> str:
    """Remedy for a scoring of scikit-learn given by name; empty otherwise."""
    from sklearn.metrics import get_scorer_names

    if scoring not in get_scorer_names():
        return ""
    return (
        f"; {scoring!r} of scikit-learn knows neither times nor censoring, "
        "sstorch.metrics.SurvivalScorer('ibs_graf', all_rows=y) does"
    )


def _check_options(train: Any, all_rows: Any, tau: float | None) -> None:
    if (train is None) == (all_rows is None):
        raise ConfigError(
            "give either train, y of the training rows, or all_rows, y of all rows that are "
            f"split, got {'neither' if train is None else 'both'}."
        )
    if tau is not None:
        check_horizon(tau, "tau")
    for name, rows in (("train", train), ("all_rows", all_rows)):
        if rows is not None:
            with named(name):
                as_surv(rows)


def _check_fitted_on(estimator: Any, train: Surv) -> None:
    """Refuse weights from rows that the estimator, by its attributes, was not fitted on."""
    fitted = getattr(estimator, "best_estimator_", estimator)
    fitted = fitted[-1] if hasattr(fitted, "steps") else fitted
    remedy = (
        "as in a nested loop, with train_size or with return_train_score; give train=, y of the rows it was "
        "fitted on."
    )
    if train.weight is not None:  # estimators leave out rows of weight 0
        train = train[train.weight > 0.0]
    n_rows = len(train)
    n_fitted = getattr(fitted, "n_samples_fit_", None)
    if n_fitted is not None and n_rows > n_fitted:
        raise DataError(
            f"all_rows: {n_rows} rows are not scored, but the estimator was fitted on {n_fitted}, {remedy}"
        )
    known = getattr(fitted, "event_times_", None)
    if train.time is None or train.event is None:
        return
    time, event = train.time, train.event
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


def _training_rows(y: Surv, train: Any, all_rows: Any) -> Surv:
    """The outcome of the training rows."""
    if all_rows is None:
        return as_surv(train)
    whole = as_surv(all_rows)
    if whole.causes is not None and y.causes is not None:
        y = y.recoded(whole.causes)
    every, some = _table(whole), _table(y)
    if every.shape[1] != some.shape[1]:
        raise DataError(f"y is {y.type}, and all_rows is {whole.type}; give both alike")
    if whole.id is not None and y.id is not None:
        codes = np.unique(np.concatenate((whole.id, y.id)), return_inverse=True)[1]
        every = np.column_stack((every, codes[: len(every)]))
        some = np.column_stack((some, codes[len(every) :]))
    rows, position = np.unique(np.concatenate((every, some)), axis=0, return_inverse=True)
    position = position.reshape(-1)
    # Of equal rows the first so many are scored; which ones makes no difference.
    scored = np.bincount(position[len(every) :], minlength=len(rows))
    missing = scored > np.bincount(position[: len(every)], minlength=len(rows))
    if missing.any():
        time, value = rows[int(missing.argmax()), :2]
        name = "event" if y.causes is None else "cause"
        raise DataError(
            f"y: a scored row with time {time:g} and {name} {value:g} is not among all_rows; give y of all "
            "rows that cross-validation splits."
        )
    order = np.argsort(position[: len(every)], kind="stable")
    own = position[: len(every)][order]
    rank = np.arange(len(own)) - np.searchsorted(own, own)
    left = np.sort(order[rank >= scored[own]])
    if left.size == 0:
        raise DataError("y: all of all_rows are scored, so that no training row is left for the weights.")
    return whole[left]


def _table(y: Surv) -> FloatArray:
    """Times, events or causes, entry times and weights, a row each."""
    time, event, _ = y.right_censored("a scorer")
    parts: list[Any] = [time, event if y.cause is None else y.cause]
    parts += [part for part in (y.entry, y.weight) if part is not None]
    return np.column_stack(parts).astype(np.float64)
