"""The table of metrics of one model, for any type of outcome, and scorers for scikit-learn.

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

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

import sstorch.metrics.named  # noqa: F401  # declares the metrics
from sstorch.checks import check_choice, check_horizon, has_method
from sstorch.data import Surv, as_surv
from sstorch.data.causes import cause_number
from sstorch.data.outcomes import recoded
from sstorch.exceptions import ConfigError, DataError, named
from sstorch.metrics.censoring import censoring_distribution, floored
from sstorch.metrics.registry import ASKED, METRICS, check_names, kind_of, names_of
from sstorch.metrics.scored import GivenRows, Rows, Scored, same_kind, split_rows


def evaluate(
    model: Any,
    train: Rows,
    test: Rows,
    *,
    metrics: Iterable[str] | None = None,
    tau: float | None = None,
    after: float | None = None,
) -> pd.DataFrame:
    """Score a model by name, for every type of outcome.

    `docs/metrics.md` lists the names. The outcome determines which are defined. One event: "c_harrell" and
    "c_uno" (time-dependent concordance), "cd_auc", "ibs_graf", "ibs_sksurv", "ibs_surtree", "ibs_osst",
    "scaled_ibs_graf", "d_calibration_p" (a p-value), "ici_pseudo" (at the median test event time). Competing
    causes, per cause: "c_cause_specific", "c_wolbers", "auc" and "brier" at the horizon tau; "ibs",
    "scaled_ibs" and "aj_calibration" over the `incidence_times` of the training rows up to tau. Both:
    "negative_log_likelihood".

    Weights of test rows are used in each metric that supports them, weights of training rows in the censoring
    distribution and the reference curves. With entry times (left truncation) "c_harrell" and
    "c_cause_specific" use pairs at risk at the same time, and the likelihood is conditional on survival to
    entry; other metrics need a landmark, `after`.

    Curves are predicted at every distinct test time up to 2^27 values (rows x times), beyond that at the
    quantiles of `sstorch.metrics.thinned`: 512 for 130 000 rows, 67 for a million. They need half a GiB.

    Args:
        model: a fitted estimator with ``predict_survival_function(X, times)`` -> (n, n_times), or a model of
            lifelines or scikit-survival; for competing causes ``predict_cumulative_incidence(X, times)`` ->
            (n, K, n_times); or a pair (curves, times) for the test rows.
        train: training rows for censoring weights and reference curves: `SurvivalData`, or (X, y) with y a
            `Surv` or a tuple (time, event).
        test: test rows, in the same form.
        metrics: names; None for all metrics defined for the outcome and the model.
        tau: truncation of the concordances, of the AUC, and of the horizons; None for none.
        after: a landmark: training and test rows at risk at this time, entry <= after < time, are scored with
            conditional curves. All times, including `tau`, count from the landmark. Follow-up continues
            through later start-stop rows, see `Surv.followed_from`.

    Returns:
        A row per metric, indexed by its name, and with competing causes by cause and name: value;
        higher_is_better (True, False, or None for p-values); for one event n_floored, number of test rows
        with a weight 1 / G limited by the floor of G, and n_beyond, number of test rows observed longer than
        all training rows, where G is unknown (0 without weights); reason for a NaN, or "".

    Raises:
        DataError: rows, curves or model are invalid, the outcome is not of the type of the model, or a metric
            requested by name is not defined for these rows; the message begins with its name. With
            `metrics=None` such a metric is NaN.
        ConfigError: an unknown name, or tau is not > 0.

    Examples:
        >>> survival = [[0.4, 0.1, 0.0], [0.8, 0.5, 0.2], [0.9, 0.7, 0.6]]
        >>> rows = (None, ([1.0, 2.0, 3.0], [1, 1, 0]))
        >>> evaluate((survival, [1.0, 2.0, 3.0]), rows, rows, metrics=["c_harrell", "ibs_graf"])["value"]
        metric
        c_harrell    1.000000
        ibs_graf     0.070741
        Name: value, dtype: float64
        >>> rows = (None, Surv([1.0, 2.0, 3.0, 4.0], [1, 2, 1, 0], causes=("relapse", "death")))
        >>> first, second = [[0.4, 0.6], [0.1, 0.2], [0.3, 0.5], [0.1, 0.1]], [[0.2, 0.3]] * 4
        >>> model = (np.stack([first, second], axis=1), [1.5, 3.5])
        >>> evaluate(model, rows, rows, metrics=["c_wolbers", "brier"])["value"].unstack().round(3)
        metric   brier  c_wolbers
        cause
        death    0.190        0.5
        relapse  0.115        1.0
    """
    if tau is not None:
        check_horizon(tau, "tau")
    trained, given = split_rows(train, "train", model), split_rows(test, "test", model)
    kind = same_kind(trained.y, given.y)
    if metrics is None:
        names = [name for name in names_of(kind) if _has(model, METRICS[name].needs)]
    else:
        others = [
            name for name in names_of() if METRICS[name].outcomes and kind not in METRICS[name].outcomes
        ]
        names = check_names(metrics, [*names_of(kind), *names_of(kind, ASKED), *others])
    rows = Scored.of(model, trained, given, tau, after)
    table: list[tuple[Any, ...]] = []
    for cause, name in _parts_of(rows, names):
        value, reason, n_floored, n_beyond = np.nan, "", 0, 0
        try:
            if METRICS[name].value is None:
                value = _loss(model, name, given, after)
            else:
                value = score(name, rows, cause)
                n_floored, n_beyond = _counts(name, rows)
        except DataError as error:
            if metrics is not None:
                raise
            reason = str(error).removeprefix(f"{_called(name, rows, cause)}: ")
        where = _cause_name(rows, cause)
        table.append((where, name, value, METRICS[name].higher_is_better, n_floored, n_beyond, reason))
    columns = ["cause", "metric", "value", "higher_is_better", "n_floored", "n_beyond", "reason"]
    frame = pd.DataFrame(table, columns=columns)
    frame["higher_is_better"] = frame["higher_is_better"].astype(object)
    if kind == "competing":
        return frame.drop(columns=["n_floored", "n_beyond"]).set_index(["cause", "metric"])
    return frame.drop(columns="cause").set_index("metric")


def _has(model: object, method: str | None) -> bool:
    return method is None or has_method(model, method)


def _loss(model: Any, name: str, given: GivenRows, after: float | None) -> float:
    """Negative log-likelihood of rows, from a landmark if there is one."""
    if not _has(model, METRICS[name].needs):
        raise DataError(f"{name} must be an estimator with log_likelihood(X, y), got {type(model).__name__}.")
    if after is not None:
        given = given.take(*given.y.entering(after))
    y = given.y
    if kind_of(y) == "event" and y.weight is not None and not np.ptp(y.weight):
        y = y.weighted(None)
    return -float(model.log_likelihood(given.X, y))


def _parts_of(rows: Scored, names: list[str]) -> Iterator[tuple[int, str]]:
    """Causes, 0 if there is one event or a metric is of all causes, and names of metrics."""
    for cause in range(1, len(rows.names) + 1):
        yield from ((cause, name) for name in names if METRICS[name].value is not None)
    yield from ((0, name) for name in names if not rows.names or METRICS[name].value is None)


def _cause_name(rows: Scored, cause: int) -> str:
    return rows.names[cause - 1] if cause else _ALL


def _called(name: str, rows: Scored, cause: int) -> str:
    return f"{name} of {_cause_name(rows, cause)}" if cause else name


def _counts(name: str, rows: Scored) -> tuple[int, int]:
    """Rows whose weight a floor holds down, and rows beyond the training rows."""
    known = METRICS[name]
    if rows.names or not known.censoring_weights:
        return 0, 0
    n_floored = 0
    if known.weighted_times is not None:
        at = known.weighted_times(rows)
        censoring = censoring_distribution(rows.train)
        n_floored = int(np.count_nonzero(censoring.before(at) < floored(censoring).before(at)))
    return n_floored, int(np.count_nonzero(rows.y.time > rows.train.time.max()))


def score(name: str, rows: Scored, cause: int = 0) -> float:
    """One metric of scored rows, with competing causes that of a cause, 1 .. K."""
    called, known = _called(name, rows, cause), METRICS[name]
    if rows.kind not in known.outcomes or known.value is None:
        raise DataError(
            f"{called}: it is not defined for {_WORDS[rows.kind]}; there {', '.join(names_of(rows.kind))} "
            "are."
        )
    if rows.truncated and not known.entry:
        others = ", ".join(f"'{other}'" for other in names_of(rows.kind) if METRICS[other].entry)
        raise DataError(
            f"{called}: it takes every row as at risk from time zero, and some have entry times (left "
            f"truncation): use {others}, or score the rows at risk at a time (after=)."
        )
    with named(called):
        return known.value(rows, cause or 1)


_WORDS = {"event": "one event", "competing": "competing causes"}
# Cause of what is of all causes together.
_ALL = "all"


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
        rows = Scored.of(estimator, GivenRows(None, train), given, self.tau)
        causes = [0]
        if rows.names:
            causes = list(range(1, len(rows.names) + 1)) if self.cause is None else [self._number(train)]
        value = float(np.mean([score(self.metric, rows, cause) for cause in causes]))
        return value if METRICS[self.metric].higher_is_better else -value

    def _number(self, y: Surv) -> int:
        if y.causes is None:
            raise ConfigError(f"cause={self.cause!r}, but y has one event")
        assert self.cause is not None
        return cause_number(self.cause, y.causes)


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
    if train.time is not None and train.event is not None:  # and rows without follow-up
        train = train[(train.time > 0.0) | train.event]
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
        y = recoded(y, whole.causes)
    subjects = whole.id is not None and y.id is not None
    every, some = _table(whole, subjects), _table(y, subjects)
    if list(every) != list(some):
        raise DataError(f"y is {y.type}, and all_rows is {whole.type}; give both alike")
    # Of equal rows the first so many are scored; which ones makes no difference.
    keys, scored = (
        pd.MultiIndex.from_frame(rows.assign(copy=rows.groupby(list(rows), dropna=False).cumcount()))
        for rows in (every, some)
    )
    if (missing := ~scored.isin(keys)).any():
        time, value = some[missing].iloc[0, :2]
        name = "event" if y.causes is None else "cause"
        raise DataError(
            f"y: a scored row with time {time:g} and {name} {value:g} is not among all_rows; give y of all "
            "rows that cross-validation splits."
        )
    left = np.flatnonzero(~keys.isin(scored))
    if left.size == 0:
        raise DataError("y: all of all_rows are scored, so that no training row is left for the weights.")
    return whole[left]


def _table(y: Surv, subjects: bool) -> pd.DataFrame:
    """Times, causes, and entry times, weights and subjects if there are any."""
    parts = {"time": y.right_censored("a scorer")[0], "cause": y.cause}
    others = {"entry": y.entry, "weight": y.weight, "id": y.id if subjects else None}
    return pd.DataFrame(parts | {name: part for name, part in others.items() if part is not None})
