"""Scores of fitted models: overall, of their groups, and by sensitive group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sstorch import metrics
from sstorch._types import FloatArray, IntArray
from sstorch.bench.models import Fit, ScoredTree
from sstorch.checks import has_method
from sstorch.data import SurvivalData
from sstorch.data.folds import Fold
from sstorch.data.survival_data import Groups
from sstorch.exceptions import ConfigError, DataError
from sstorch.groups.validation import concordance_of_rows, count_groups
from sstorch.metrics.evaluation import score
from sstorch.metrics.fairness import gap, group_parity, group_scores, leaf_groups, mean_gini
from sstorch.metrics.grids import thinned, thinned_together
from sstorch.metrics.groups import adjusted_rand_index
from sstorch.metrics.registry import METRICS, declare, names_of
from sstorch.metrics.scored import GivenRows, Scored, default_grids, split_rows
from sstorch.objective import L2Parity
from sstorch.optim.run import Checkpoint, kept
from sstorch.soft.estimator import SoftEstimator
from sstorch.threads import report

# Scores that a study computes from the curves of any model; a likelihood is added where the model has one.
CURVE_SCORES = tuple(names_of("event", "study"))
# Of training rows those of the tables of the paper: nothing is decided by their calibration.
TRAIN_SCORES = tuple(name for name in names_of("event", "published") if name in CURVE_SCORES)
LIKELIHOOD = declare(
    "log_likelihood", title="Log-likelihood", short="log L", higher_is_better=True, averaged=False
).name
SCORES = (*names_of("event", "tree"), LIKELIHOOD)
# Scores of incidences, each of every cause.
CAUSE_SCORES = tuple(names_of("competing", "study"))
# Scores of the groups that a model makes, if it makes any.
GROUP_SCORES = tuple(
    declare(name, title=title, short=short, higher_is_better=higher).name
    for name, title, short, higher in (
        ("c_groups", "Concordance of the groups alone", "C groups", True),
        ("n_groups", "Groups of at least 5 % of the rows", "groups", None),
        ("ari", "Adjusted Rand index of the groups of two folds", "ARI", True),
    )
)
OBJECTIVE = declare(
    "objective", title="Training objective", short="objective", higher_is_better=None, averaged=False
).name
# Metrics that are printed of every task, and of every model at the end; those of groups if any.
_PRINTED = {name: "C" if METRICS[name].higher_is_better else "IBS" for name in names_of(tag="headline")}
_PRINTED |= {"c_groups": "C groups", "n_groups": "groups", "ari": "ARI"}
# Disparities that every table shows.
DISPARITIES = ("parity", "gini", "gini_weighted", "rmst_gap", "calibration_gap", "c_gap")

# Equal steps of the follow-up over which Brier scores and AUC of training rows are integrated.
_TRAIN_STEPS = 200
# Columns of a table of scores that name its rows.
_ABOUT = ["fold", "start", "part", "chosen"]
_About = dict[str, Any]  # which fit some scores are of


class Score(NamedTuple):
    """A value, NaN if the metric is not defined, and why."""

    value: float
    reason: str = ""


def scores_of(data: SurvivalData, plain: tuple[str, ...] = SCORES) -> tuple[str, ...]:
    """Names of the scores of some rows, the likelihood last: `plain`, or ``CAUSE_SCORES`` of each cause."""
    if data.causes is None:
        return plain
    return (*(f"{name}:{cause}" for cause in data.cause_names for name in CAUSE_SCORES), LIKELIHOOD)


def printed(metrics: Iterable[str]) -> dict[str, str]:
    """The metrics that are printed among some, and how: of causes with the name of the cause."""
    heads = {metric: metric.partition(":") for metric in metrics}
    return {
        metric: f"{short} {cause}".rstrip()
        for name, short in _PRINTED.items()
        for metric, (of, _, cause) in heads.items()
        if of == name
    }


def check_scorable(rows: SurvivalData, train: SurvivalData) -> None:
    """Make sure, before any training, that the scores of these rows will be defined."""
    if rows.causes is not None:
        return  # folds have events of every cause
    metrics.evaluation_times(rows.time, train.time, "graf")
    metrics.evaluation_times(rows.time, train.time, "sksurv")
    metrics.concordance_harrell(rows.y, np.zeros(len(rows)))


# ---------------------------------------------------------------------- one model on rows


class RowsToScore:
    """Rows of a fold for scores of any model on the same grids; censoring weights are those of `train`."""

    def __init__(self, rows: SurvivalData, train: SurvivalData, thin: bool = False) -> None:
        self._rows, self._train = rows, train
        if rows.causes is not None:
            return
        # Metrics compare rows in this order: curves that are predicted in it need not be copied.
        order = np.lexsort((~rows.event, rows.time))
        self._rows = rows = rows.subset(order).counted()
        train = train.counted()
        if thin:  # for training rows: 200 equal steps of the follow-up leave the third decimal unchanged
            grids = thinned_together(_steps(rows, train), len(rows))
        else:
            grids = default_grids(rows.time, train.time, ("graf", "osst", "sksurv"))
        events = thinned(rows.event_times, len(rows))
        y, known = (GivenRows(None, part.y.weighted(part.uneven_weight)).rows for part in (rows, train))
        self._scored = Scored.on_grids(y, known, grids, events)

    def scores(self, predictor: Any, names: Sequence[str] = CURVE_SCORES) -> dict[str, Score]:
        """Scores `names` of a model fitted on ``train``, NaN if not defined, and its likelihood per row."""
        # Competing causes have the scores of `scores_of`; DataError if the model predicts no incidences.
        rows, found = self._rows, dict[str, Score]()
        if rows.causes is None:
            scored = self._scored.with_curves(predictor.falling_curves(rows.frame, self._scored.times))
        elif has_method(predictor, "predict_cumulative_incidence"):
            names = scores_of(rows)[:-1]
            known, given = split_rows(self._train, "train"), split_rows(rows, "test")
            scored = Scored.of(_from_zero(predictor), known, given)
        else:
            raise DataError("the rows have competing causes, and the model predicts no cumulative incidences")
        for name in names:
            metric, _, cause = name.partition(":")
            try:
                found[name] = Score(score(metric, scored, rows.cause_names.index(cause) + 1 if cause else 0))
            except DataError as error:
                found[name] = Score(np.nan, str(error).partition(": ")[2])
        return found | {LIKELIHOOD: _log_likelihood(predictor, rows)}


def _from_zero(predictor: Any) -> Any:
    """A model of incidences from time zero: time-varying covariates stay as they are in the row."""
    if not isinstance(predictor, SoftEstimator):
        return predictor
    predict = partial(predictor.predict_cumulative_incidence, after=0.0)
    return SimpleNamespace(predict_cumulative_incidence=predict)


def _steps(rows: SurvivalData, train: SurvivalData) -> dict[str, FloatArray]:
    """Equal steps of the follow-up, for each convention those that it can read."""
    last = float(rows.time.max())
    steps = np.linspace(0.0, last, _TRAIN_STEPS + 1)[1:]
    inside = steps[(steps > max(rows.time.min(), train.time.min())) & (steps < min(last, train.time.max()))]
    return {"graf": steps, "osst": steps, "sksurv": inside}


def _log_likelihood(predictor: object, rows: SurvivalData) -> Score:
    likelihood = getattr(predictor, "log_likelihood", None)
    if likelihood is None:
        return Score(np.nan, "the model has no density")
    try:
        value = float(likelihood(rows.frame, rows.y.weighted(rows.uneven_weight)))
    except DataError as error:
        return Score(np.nan, str(error))
    return Score(value) if np.isfinite(value) else Score(np.nan, f"{value:g}")


# ---------------------------------------------------------------------- the fits of a cross-validation


def wide(scores: pd.DataFrame) -> pd.DataFrame:
    """Scores of :func:`score_fits`, a row per fold, start and part, a column per metric and the objective."""
    places = pd.MultiIndex.from_frame(scores[_ABOUT].drop_duplicates())
    table = scores.pivot(index=_ABOUT, columns="metric", values="value")
    table = table[list(dict.fromkeys(scores["metric"]))].reindex(places).reset_index()
    table.columns.name = None
    if OBJECTIVE in table:
        table[OBJECTIVE] = table.groupby(["fold", "start"])[OBJECTIVE].transform("first")
    return table


def score_fits(
    fits: Iterable[Fit],
    data: SurvivalData,
    folds: Sequence[Fold],
    names: Mapping[str, Sequence[str]],
    *,
    thin: bool = False,
    groups: bool = True,
    disparities: bool = True,
    checkpoint: Checkpoint | None = None,
) -> pd.DataFrame:
    """Score models on the parts of their folds: columns fold, start, part, chosen, metric, value, reason."""
    # Fits of a fold are consecutive, with all starts in each; `names` are by part, ``"train"`` or ``"test"``;
    # likelihood and training objective are added. A held checkpoint keeps the scores of each fit.
    rows, found = list[dict[str, Any]](), list[tuple[_About, IntArray]]()

    @lru_cache(maxsize=1)
    def ready(fold: Fold) -> dict[str, RowsToScore]:
        return {part: RowsToScore(fold.parts[part], fold.train, thin and part == "train") for part in names}

    def scored(fold: Fold, fit: Fit, about: _About) -> list[dict[str, Any]]:
        made = list[dict[str, Any]]()
        for part, own in names.items():
            has_objective = part == "train" and not np.isnan(fit.objective)
            scores = {OBJECTIVE: Score(fit.objective)} if has_objective else {}
            scores |= ready(fold)[part].scores(fit.predictor, own)
            if disparities and data.groups is not None:
                gaps = score_fairness(fit.predictor, fold.parts[part], fold.train)
                scores |= {name: Score(value) for name, value in gaps.items()}
            made += _long(about, part, scores)
        return made

    for fit in fits:
        about = {"fold": fit.fold, "start": fit.start, "chosen": fit.chosen}
        fold = folds[fit.fold]
        report("scoring", fit.fold, len(folds))
        place = f"scores/{fit.fold}/{fit.start}"
        rows += kept(checkpoint, place, partial(scored, fold, fit, about))
        if groups and has_method(fit.predictor, "apply"):
            found.append((about, np.asarray(fit.predictor.apply(data.frame))))
    for (about, group), ari in zip(found, agreements(found), strict=True):
        fold = folds[about["fold"]]
        for part in names:
            inside = fold.inside if part == "test" else ~fold.inside
            scores = score_groups(group[inside], fold.parts[part], group[~fold.inside], fold.train)
            rows += _long(about, part, scores | {"ari": ari})
    return pd.DataFrame(rows)


def _long(about: _About, part: str, scores: Mapping[str, Score]) -> list[dict[str, Any]]:
    return [
        {**about, "part": part, "metric": name, "value": value, "reason": reason}
        for name, (value, reason) in scores.items()
    ]


def score_groups(
    group: IntArray, rows: SurvivalData, train_group: IntArray, train: SurvivalData
) -> dict[str, Score]:
    """``c_groups`` and ``n_groups`` of the groups, (n,), of some rows, given those of the training rows."""
    if rows.causes is not None:
        concordance = Score(np.nan, "causes compete: the order of risk depends on the cause")
    else:
        try:
            concordance = Score(concordance_of_rows(group, rows, train_group, train))
        except DataError as error:
            concordance = Score(np.nan, str(error))
    return {"c_groups": concordance, "n_groups": Score(float(count_groups(group, rows.sample_weight)))}


def agreements(found: Sequence[tuple[_About, IntArray]]) -> list[Score]:
    """``ari`` of each fit: mean adjusted Rand index of all rows with the chosen fits of the other folds."""
    others = [group for about, group in found if about["chosen"]]
    scores = [Score(np.nan, "one group")] * len(found)
    for start in {about["start"] for about, _ in found}:
        places = [place for place, (about, _) in enumerate(found) if about["start"] == start]
        compared = np.stack([*(found[place][1] for place in places), *others])
        if np.ptp(compared, axis=1).any():
            index = adjusted_rand_index(compared)[: len(places), len(places) :]
            for fold, place in enumerate(places):
                scores[place] = Score(float(np.delete(index[fold], fold).mean()))
    return scores


# ---------------------------------------------------------------------- sensitive groups


def known_groups(rows: SurvivalData) -> Groups:
    """The sensitive groups of the rows, which must be known."""
    if rows.groups is None:
        raise ConfigError("the sensitive groups are missing: use data.with_sensitive(column)")
    return rows.groups


def leaf_table(tree: SoftEstimator | ScoredTree, rows: SurvivalData) -> pd.DataFrame:
    """Rows, Gini index and share of each sensitive group in the prognostic groups of a tree, by number.

    Raises:
        ConfigError: the sensitive groups of the rows are unknown.
    """
    groups = known_groups(rows)
    n_leaves = 2**tree.module_.topology.depth  # the parameter may have been set again since
    table = leaf_groups(tree.apply(rows.frame) - 1, groups.codes, len(groups.labels), n_leaves)
    table.index = pd.RangeIndex(1, n_leaves + 1, name="group")
    return table.rename(columns={f"share_{k}": f"{groups.name}={v}" for k, v in enumerate(groups.labels)})


def score_fairness(
    tree: SoftEstimator | ScoredTree,
    rows: SurvivalData,
    train: SurvivalData,
    tau: float | None = None,
) -> dict[str, float]:
    """Disparities between sensitive groups in the predicted survival of a tree.

    With competing causes, survival is that until any of them: an event is one of any cause.

    Args:
        tree: fitted on ``train``.
        rows: rows to score, with their groups.
        train: training rows, whose extreme times bound the integral.
        tau: horizon; the 80 % quantile of the training times if None.

    Returns:
        ``parity``: mean over the pairs of subjects of different groups of the integral of (S_i(t) - S_j(t))^2
        between the extreme training times, the penalty at rho = 1. ``gini`` and ``gini_weighted``: mean Gini
        index of the leaves, plain and weighted by their rows. ``rmst_gap``: largest difference between groups
        of the mean up to tau of the mean predicted curve. For each group, ``calibration:NAME`` (mean
        predicted less Kaplan-Meier survival at tau) and ``c_harrell:NAME``; and the largest differences
        ``calibration_gap`` and ``c_gap``. What a group that is absent from the rows, or too small, leaves
        undefined is NaN.

    Raises:
        ConfigError: the groups of the rows are unknown, or tau is outside the observed training times.
        DataError: times are interval-censored: predicted survival is compared with that of Kaplan-Meier.
    """
    groups = known_groups(rows)
    first, last = float(train.time.min()), float(train.time.max())
    tau = float(np.quantile(train.time, 0.8)) if tau is None else tau
    if not first < tau <= last:
        raise ConfigError(
            f"`tau` must be above {first:g} and at most {last:g}, the last training time, got {tau!r}"
        )
    nodes, weights = L2Parity().nodes(train.time)
    parity = np.nan
    if len(np.unique(groups.codes)) > 1:
        parity = group_parity(tree.falling_curves(rows.frame, nodes), weights, groups.codes)
    gini, weighted = mean_gini(leaf_table(tree, rows))
    result = {"parity": float(parity), "gini": gini, "gini_weighted": weighted}
    seen = thinned(np.unique(np.r_[train.time, rows.time]), len(rows))
    grid = np.unique(np.r_[seen, tau, np.linspace(first, tau, 101)])
    curves, y, n_groups = tree.falling_curves(rows.frame, grid), rows.y.any_cause(), len(groups.labels)
    table = group_scores(y, curves, grid, groups.codes, tau=tau, n_groups=n_groups)
    result |= {f"{column}_gap": gap(table[column]) for column in ("rmst", "calibration")}
    result["c_gap"] = gap(table["c_harrell"])
    for column in ("calibration", "c_harrell"):
        named = zip(groups.labels, table[column], strict=True)
        result |= {f"{column}:{label}": float(value) for label, value in named}
    return result
