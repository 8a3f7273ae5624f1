"""The table of metrics of one model, for any type of outcome, and scorers for scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from sstorch.checks import check_choice, check_horizon, has_method
from sstorch.data import Surv
from sstorch.data.surv import as_surv
from sstorch.data.target import cause_number
from sstorch.exceptions import DataError, named
from sstorch.metrics.registry import ASKED, METRICS, check_names, names_of
from sstorch.metrics.scored import GivenRows, Rows, Scored, same_kind, split_rows

_WORDS = {"event": "one event", "competing": "competing causes"}


def evaluate(
    model: Any,
    train: Rows,
    test: Rows,
    *,
    metrics: Iterable[str] | None = None,
    tau: float | None = None,
    after: float | None = None,
) -> pd.DataFrame:
    """Score a model by name, for every type of outcome; `docs/metrics.md` defines the metrics.

    One event: "c_harrell", "c_uno", "cd_auc", "ibs_graf", "ibs_sksurv", "ibs_surtree", "ibs_osst",
    "scaled_ibs_graf", "d_calibration_p" (a p-value), "ici_pseudo" (at the median test event time). Competing
    causes, per cause: "c_cause_specific", "c_wolbers", "auc" and "brier" at the horizon tau; "ibs"
    over quantiles of the training event times up to tau. Both: "negative_log_likelihood".

    Weights of training rows are used in the censoring distribution and the reference curves. With entry times
    (left truncation) "c_harrell" and "c_cause_specific" use pairs at risk at the same time, and the
    likelihood is conditional on survival to entry; other metrics need a landmark, `after`. Beyond 2^27 values
    (rows x times) curves are predicted at at most 512 of the times.

    Args:
        model: a fitted estimator with ``predict_survival_function(X, times)`` -> (n, n_times), or a model of
            lifelines or scikit-survival; for competing causes ``predict_cumulative_incidence(X, times)`` ->
            (n, K, n_times); or a pair (curves, times) for the test rows.
        train: training rows for censoring weights and reference curves: `SurvivalData`, or (X, y) with y a
            `Surv` or a tuple (time, event).
        test: test rows, in the same form.
        metrics: names; None for all metrics defined for the outcome and the model.
        tau: truncation of the concordances, of the AUC, and of the horizons; None for none.
        after: a landmark: rows at risk at this time, entry <= after < time, are scored with conditional
            curves. All times, including `tau`, count from the landmark; see `Surv.followed_from`.

    Returns:
        A row per metric, indexed by its name, and with competing causes by cause and name: value;
        higher_is_better (True, False, or None for p-values); reason for a NaN, or "".

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
    """
    if tau is not None:
        check_horizon(tau, "tau")
    trained, given = split_rows(train, "train", model), split_rows(test, "test", model)
    kind = same_kind(trained.y, given.y)
    if metrics is None:
        needs = ((name, METRICS[name].needs) for name in names_of(kind))
        names = [name for name, method in needs if method is None or has_method(model, method)]
    else:
        others = [name for name in names_of() if METRICS[name].outcomes]
        names = check_names(metrics, dict.fromkeys([*names_of(kind), *names_of(kind, ASKED), *others]))
    rows = Scored.of(model, trained, given, tau, after)
    # Cause 0 is that of one event, and of what is of all causes together.
    parts = [
        (cause, name)
        for cause in ([*range(1, len(rows.names) + 1), 0] if rows.names else [0])
        for name in names
        if not rows.names or (METRICS[name].value is None) == (cause == 0)
    ]
    table = []
    for cause, name in parts:
        value, reason = np.nan, ""
        try:
            if METRICS[name].value is None:
                value = _loss(model, name, given, after)
            else:
                value = score(name, rows, cause)
        except DataError as error:
            if metrics is not None:
                raise
            reason = str(error).removeprefix(f"{_called(name, rows, cause)}: ")
        where = rows.names[cause - 1] if cause else "all"
        table.append((where, name, value, METRICS[name].higher_is_better, reason))
    frame = pd.DataFrame(table, columns=["cause", "metric", "value", "higher_is_better", "reason"])
    frame["higher_is_better"] = frame["higher_is_better"].astype(object)
    if kind == "competing":
        return frame.set_index(["cause", "metric"])
    return frame.drop(columns="cause").set_index("metric")


def _loss(model: Any, name: str, given: GivenRows, after: float | None) -> float:
    """Negative log-likelihood of rows, from a landmark if there is one."""
    method = METRICS[name].needs
    if method is None or not has_method(model, method):
        raise DataError(f"{name} must be an estimator with {method}(X, y), got {type(model).__name__}.")
    if after is not None:
        given = given.take(*given.y.entering(after))
    y = given.y
    if y.causes is None and y.weight is not None and not np.ptp(y.weight):
        y = y.weighted(None)
    return -float(getattr(model, method)(given.X, y))


def _called(name: str, rows: Scored, cause: int) -> str:
    return f"{name} of {rows.names[cause - 1]}" if cause else name


def score(name: str, rows: Scored, cause: int = 0) -> float:
    """One metric of scored rows, with competing causes that of a cause, 1 .. K."""
    called, known = _called(name, rows, cause), METRICS[name]
    if rows.kind not in known.outcomes or known.value is None:
        raise DataError(
            f"{called}: it is not defined for {_WORDS[rows.kind]}; there {', '.join(names_of(rows.kind))} "
            "are."
        )
    truncated = rows.y.entry is not None or rows.train.entry is not None
    if truncated and not known.entry:
        others = ", ".join(f"'{other}'" for other in names_of(rows.kind) if METRICS[other].entry)
        raise DataError(
            f"{called}: it takes every row as at risk from time zero, and some have entry times (left "
            f"truncation): use {others}, or score the rows at risk at a time (after=)."
        )
    with named(called):
        return known.value(rows, cause or 1)


@dataclass(frozen=True, eq=False)
class SurvivalScorer:
    """Scorer of predictions for `scoring=` of scikit-learn, as in `cross_val_score` and `GridSearchCV`.

    ``scorer(estimator, X, y)`` predicts and scores as `evaluate`, negated if lower is better: higher is
    always better. scikit-learn hands a scorer only the rows that it scores, and most metrics need others for
    censoring weights and reference curves, those of `train`.

    Args:
        metric: a name of `evaluate` with a direction, such as "ibs_graf", "c_uno" or, of causes, "ibs".
        train: y of the training rows; in a cross-validation y of all rows.
        cause: number of a competing cause, 1 .. K, or its name; None for the mean over all causes.
        tau: as in `evaluate`.

    Raises:
        ConfigError: an unknown metric or cause, or tau is not > 0.
        DataError: `train` is not a valid outcome; when called, as `evaluate`.

    Examples:
        >>> from sklearn.model_selection import cross_val_score
        >>> from sstorch import SurvivalRegression, load_dataset
        >>> data = load_dataset("gbsg2")
        >>> tree = SurvivalRegression(random_state=0)
        >>> scorer = SurvivalScorer("ibs_graf", data.y)
        >>> cross_val_score(tree, data.frame, data.y, cv=2, scoring=scorer).round(2).tolist()
        [-0.17, -0.15]
    """

    metric: str
    train: Any = field(repr=False)
    cause: int | str | None = None
    tau: float | None = None

    def __post_init__(self) -> None:
        known = [
            name for name in names_of() if METRICS[name].value and METRICS[name].higher_is_better is not None
        ]
        check_choice(self.metric, "metric", known)
        if self.tau is not None:
            check_horizon(self.tau, "tau")
        self._causes(self._known())

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Score a fitted estimator on some rows."""
        train = self._known()
        given = split_rows((X, as_surv(y)), "y", estimator)
        rows = Scored.of(estimator, GivenRows(None, train), given, self.tau)
        value = float(np.mean([score(self.metric, rows, cause) for cause in self._causes(train)]))
        return value if METRICS[self.metric].higher_is_better else -value

    def _known(self) -> Surv:
        with named("train"):
            return as_surv(self.train)

    def _causes(self, y: Surv) -> list[int]:
        """Numbers of the scored causes, 0 for one event."""
        if self.cause is None:
            return [0] if y.causes is None else list(range(1, len(y.causes) + 1))
        return [cause_number(self.cause, y.causes or ("",))]
