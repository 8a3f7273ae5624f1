"""Cross-validation of a tree for competing causes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold

from sstorch import metrics
from sstorch._types import IntArray
from sstorch.bench.baselines.competing import AalenJohansen, Incidences
from sstorch.data import Schema, SurvivalData
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.nn import HazardFamily
from sstorch.soft import CompetingRisksTree, SoftSurvivalTree

_SCORES = ("c_wolbers", "c_cause_specific", "ibs")
# What is no setting of a single training.
_OWN = {"random_state", "verbose", "n_starts"}


@dataclass(frozen=True)
class CauseValidation:
    """Scores of trees on the rows that they were not trained on, and the tree of all rows.

    Attributes:
        scores: a row for each fold, model (``tree`` and ``aalen_johansen``) and cause: ``events`` of the
            fold, ``c_wolbers`` of the incidence at the last time scored, ``c_cause_specific``, and ``ibs``,
            the Brier score of the incidence, mean over time. Where rows entered late only
            ``c_cause_specific`` is defined, of pairs at risk together; the others are nan.
        model: trained on all rows.
        folds: of the rows, (n,).
    """

    scores: pd.DataFrame
    model: CompetingRisksTree
    folds: IntArray

    def table(self) -> pd.DataFrame:
        """Means over folds, by cause and model."""
        means = self.scores.groupby(["cause", "model"], sort=False)
        return means[list(_SCORES)].mean()


def competing_risks_tree(tree: SoftSurvivalTree, leaf: str | HazardFamily = "auto") -> CompetingRisksTree:
    """The tree for competing causes with the parameters of a tree for one event.

    Args:
        tree: whose parameters are taken.
        leaf: hazard family instead of that of the tree.

    Raises:
        ConfigError: a parameter of the tree that the other does not have has another value than its default.
    """
    own = set(CompetingRisksTree._get_param_names()) - {"leaf", "causes"}
    given, plain = tree.get_params(deep=False), SoftSurvivalTree().get_params(deep=False)
    for name, value in given.items():
        if name not in own | _OWN | {"leaf"} and value != plain[name]:
            raise ConfigError(f"{name} is not used where causes compete; leave it out")
    shared = {name: given[name] for name in own if given.get(name) is not None}
    return CompetingRisksTree(leaf=leaf, **shared)


def cause_folds(data: SurvivalData, n_folds: int, seed: int) -> IntArray:
    """Folds stratified by cause, (n,).

    Raises:
        DataError: a cause has fewer events than there are folds.
        ConfigError: fewer than two folds.
    """
    if n_folds < 2:
        raise ConfigError(f"n_folds={n_folds}; cross-validation needs at least 2")
    for number, name in enumerate(data.cause_names, 1):
        if (count := int((data.cause == number).sum())) < n_folds:
            raise DataError(f"cause {name} has {count} events, too few for {n_folds} folds; choose fewer")
    fold = np.zeros(len(data), dtype=np.int64)
    splitter = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # Said when fewer rows than folds are censored, which does no harm.
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        for k, (_, test) in enumerate(splitter.split(np.zeros((len(data), 1)), data.cause)):
            fold[test] = k
    return fold


def cross_validate_causes(
    estimator: CompetingRisksTree, data: SurvivalData, n_folds: int = 5, seed: int = 0
) -> CauseValidation:
    """Train a tree outside each fold and on all rows, and score those on their folds.

    Args:
        estimator: not fitted itself.
        data: rows whose causes are known.
        n_folds: number of folds, stratified by cause.
        seed: of the folds.

    Raises:
        DataError: a cause has fewer events than there are folds.
        ConfigError: fewer than two folds.
    """
    if data.entry.any():
        warnings.warn(
            "rows entered late: likelihood and cause-specific concordance, of pairs at risk together, know "
            "it; other scores do not and are left out (nan)",
            DataWarning,
            stacklevel=2,
        )
    folds, schema, rows = cause_folds(data, n_folds, seed), Schema.of(data.frame), []
    for fold in range(n_folds):
        train, test = data.subset(folds != fold), data.subset(folds == fold)
        models: dict[str, Incidences] = {
            "tree": clone(estimator).fit_data(train, schema),
            "aalen_johansen": AalenJohansen().fit(train, schema),
        }
        for name, model in models.items():
            rows += [{"fold": fold, "model": name} | row for row in score_causes(model, test, train)]
    return CauseValidation(pd.DataFrame(rows), clone(estimator).fit_data(data, schema), folds)


def score_causes(model: Incidences, test: SurvivalData, train: SurvivalData) -> list[dict[str, object]]:
    """Scores of the incidence of each cause, by :func:`sstorch.metrics.evaluate`.

    Args:
        model: fitted.
        test: rows to score.
        train: training rows, which give times and weights for censoring.
    """
    late = test.entry.any() or train.entry.any()
    known = ("c_cause_specific",) if late else _SCORES
    table = metrics.evaluate(model, train, test, metrics=known)["value"].unstack("metric")
    table = table.reindex(columns=list(_SCORES))
    return [
        {"cause": name, "events": int((test.cause == k).sum()), **table.loc[name]}
        for k, name in enumerate(test.cause_names, 1)
    ]
