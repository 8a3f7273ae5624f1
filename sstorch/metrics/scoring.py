"""Scorers for scikit-learn that know the training rows.

Most metrics need the training rows of a fold for their censoring weights, and scikit-learn hands a scorer
only the rows it scores. Either the training rows are given once (a fixed split), or all rows that
cross-validation splits are given: the training rows of a fold are then those that are not scored, which is
exact for every splitter whose training rows are the complement of its test rows. (Scores of the
training rows themselves, as with `return_train_score=True`, are then weighted by the test rows.)
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sstorch.data import parse_target
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.checks import BoolArray, FloatArray, check_choice, check_horizon
from sstorch.metrics.concordance import concordance_harrell_risk, concordance_uno_risk
from sstorch.metrics.evaluation import METRICS, score
from sstorch.metrics.scored_rows import ScoredRows

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
            and events are compared as a bag, so that the order does not matter.
        tau: as in `evaluate`.

    Raises:
        ConfigError: an unknown metric, both or neither of `train` and `all_rows`, or tau is no time > 0.

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
    train: Any = None
    all_rows: Any = None
    tau: float | None = None

    def __post_init__(self) -> None:
        known = tuple(name for name, metric in METRICS.items() if metric.higher_is_better is not None)
        check_choice(self.metric, "metric", known)
        _check_options(self.train, self.all_rows, self.tau)

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Score a fitted estimator on some rows.

        Raises:
            DataError: as `evaluate`, or rows that are not among `all_rows`.
        """
        train = _training_rows(y, self.train, self.all_rows)
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
    train: Any = None
    all_rows: Any = None
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
        time, event = parse_target(y_true)
        if self.metric == "c_harrell":
            return concordance_harrell_risk(time, event, y_pred, tau=self.tau, sample_weight=sample_weight)
        train = _training_rows(y_true, self.train, self.all_rows)
        return concordance_uno_risk(
            time, event, y_pred, train=train, tau=self.tau, sample_weight=sample_weight
        )


def _check_options(train: Any, all_rows: Any, tau: float | None) -> None:
    if (train is None) == (all_rows is None):
        raise ConfigError(
            "train, all_rows: expected one of them, y of the training rows or y of all rows that are "
            f"split; got {'neither' if train is None else 'both'}."
        )
    if tau is not None:
        check_horizon(tau, "tau")


def _training_rows(y: Any, train: Any, all_rows: Any) -> tuple[FloatArray, BoolArray]:
    if all_rows is None:
        return parse_target(train)
    whole, scored = (np.column_stack(parse_target(rows)) for rows in (all_rows, y))
    pairs, position = np.unique(np.concatenate((whole, scored)), axis=0, return_inverse=True)
    position = position.reshape(-1)
    left = np.bincount(position[: len(whole)], minlength=len(pairs))
    left -= np.bincount(position[len(whole) :], minlength=len(pairs))
    if (left < 0).any():
        time, event = pairs[int((left < 0).argmax())]
        raise DataError(
            f"y: a scored row with time {time:g} and event {event:g} is not among all_rows; give y of all "
            "rows that cross-validation splits."
        )
    if not left.any():
        raise DataError("y: all of all_rows are scored, so that no training row is left for the weights.")
    time, event = np.repeat(pairs, left, axis=0).astype(np.float64).T
    return time, event > 0.0
