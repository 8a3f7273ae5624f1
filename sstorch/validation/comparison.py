"""Several models on the same rows: scores at several times and paired differences, with limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from sstorch.checks import (
    as_numbers,
    check_after,
    check_choice,
    check_horizon,
    check_integer,
    check_same_order,
    check_share,
    check_weight,
)
from sstorch.data.folds import folds_of
from sstorch.data.surv import as_surv
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.measures import MEASURES
from sstorch.metrics.registry import check_names
from sstorch.validation.paired import (
    Cohort,
    Estimate,
    Found,
    check_model,
    scores_of_folds,
    scores_of_rows,
)


class ModelComparison(NamedTuple):
    """Scores of several models and their paired differences.

    Attributes:
        scores: indexed by cause (with competing causes), time, score and model: value, lower, upper, method
            of the limits, and reason for a missing value or missing limits, or "".
        differences: indexed by cause (with competing causes), time, score, first and second: difference
            (first minus second), lower, upper, p of no difference, method and reason.
    """

    scores: pd.DataFrame
    differences: pd.DataFrame

    def __repr__(self) -> str:
        parts = (self.scores[["value", "lower", "upper"]], self.differences.iloc[:, :4])
        return "\n\n".join(str(part.round(3) + 0.0) for part in parts)


def compare(
    models: Mapping[str, Any],
    X: Any,
    y: Any,
    *,
    times: npt.ArrayLike,
    scores: Iterable[str] = ("auc", "brier"),
    by: Literal["data", "folds"] = "data",
    sample_weight: npt.ArrayLike | None = None,
    after: float | None = None,
    n_folds: int = 5,
    n_resamples: int = 200,
    level: float = 0.95,
    random_state: int = 0,
) -> ModelComparison:
    """Compare models at several times, with confidence limits of scores and paired differences.

    * ``by="data"``: fitted models on held-out rows. Differences of concordance, AUC and Brier score have Wald
      limits from the influence functions of the rows; other measures have percentile limits of a paired
      bootstrap of subjects. The models are not refitted.
    * ``by="folds"``: each model is fitted outside each of `n_folds` folds and scored inside. Limits are from
      the t test for overlapping training rows, see
      :func:`sstorch.metrics.comparison.corrected_resampled_t_test`.

    Censoring weights come from the scored rows. Limits are not adjusted for multiple comparisons.

    Args:
        models: two or more models by name, with ``predict_survival_function(X, times)`` or, for competing
            causes, ``predict_cumulative_incidence(X, times)``. Folds need scikit-learn
            estimators with ``fit(X, y)``, fitted or not, which are cloned; models of scikit-survival receive
            a structured array as y.
        X: features of n rows.
        y: outcome of the rows, a :class:`~sstorch.Surv` or (time, event); not interval-censored.
        times: times of the predictions, in the unit of y.
        scores: names of measures of :func:`sstorch.validation.validate`, without net benefits.
        by: "data" or "folds".
        sample_weight: weights of the rows for scores and refits, shape (n,); None for the weights of `y`.
        after: a landmark: rows at risk at this time are scored, with times counted from it. Only with
            ``by="data"``.
        n_folds: number of folds, at least 2.
        n_resamples: number of bootstrap resamples of measures without influence functions, at least 20.
        level: level of all limits, in (0, 1).
        random_state: seed of folds and resamples.

    Returns:
        Tables of scores and differences.

    Raises:
        DataError: invalid rows or predictions; an unfitted model with ``by="data"``.
        ConfigError: fewer than two models, unknown scores, times that are not > 0, or models that cannot be
            cloned for refitting.

    References:
        Blanche, Dartigues and Jacqmin-Gadda (2013), Statistics in Medicine 32, 5381-5397, for paired
        influences; Nadeau and Bengio (2003), Machine Learning 52, 239-281, for the corrected t test.

    Examples:
        >>> from sstorch import PrognosticTree, SurvivalRegression, load_dataset
        >>> data = load_dataset("gbsg2")
        >>> train, test = data.subset(range(400)), data.subset(range(400, 686))
        >>> models = {"regression": SurvivalRegression(), "tree": PrognosticTree(depth=1)}
        >>> fitted = {name: model.fit(train.frame, train.y) for name, model in models.items()}
        >>> found = compare(fitted, test.frame, test.y, times=[730, 1500])
        >>> found.differences.shape
        (4, 6)
    """
    outcome = as_surv(y)
    check_same_order(X=X, y=outcome, sample_weight=sample_weight)
    if not isinstance(models, Mapping) or len(models) < 2:
        raise ConfigError("models must be a mapping from names to two or more models")
    grid = [check_horizon(t, "times") for t in np.unique(np.atleast_1d(as_numbers(times, "times")))]
    known = [name for name, each in MEASURES.items() if each.defined_for(outcome.causes is not None)]
    names = check_names(scores, known)
    check_choice(by, "by", ("data", "folds"))
    check_share(level, "level")
    check_integer("n_folds", n_folds, 2)
    check_integer("n_resamples", n_resamples, 20)
    check_integer("random_state", random_state, 0)
    for model in models.values():
        check_model(model)
    if by == "data":
        landmark = None if after is None else float(check_after(after, 1)[0])
        _check_fitted(models)
        cohorts = {
            name: Cohort.of(model, X, outcome, sample_weight, landmark) for name, model in models.items()
        }
        found = scores_of_rows(models, cohorts, grid, names, (n_resamples, random_state), level)
    else:
        if after is not None:
            raise ConfigError(f'after must be None unless by="data", got {after!r}')
        weight = check_weight(outcome.weight if sample_weight is None else sample_weight, len(outcome))
        cohort = Cohort(X, outcome.weighted(weight))
        folds = folds_of(cohort.y, n_folds, random_state)
        found = scores_of_folds(models, cohort, folds, grid, names, level)
    return _tables(found)


def _check_fitted(models: Mapping[str, Any]) -> None:
    for name, model in models.items():
        if isinstance(model, BaseEstimator):
            try:
                check_is_fitted(model)
            except NotFittedError as error:
                raise DataError(
                    f'model {name!r} is not fitted: fit it to other rows, or use by="folds"'
                ) from error


def _tables(found: Found) -> ModelComparison:
    rows = [
        (*cell, *names, *estimate) for cell, of_cell in found.items() for names, estimate in of_cell.items()
    ]
    tables = []
    for levels, value in ((["model"], "value"), (["first", "second"], "difference")):
        index = ["cause", "time", "score", *levels]
        columns = [*index, value, *Estimate._fields[1:]]
        table = pd.DataFrame([row for row in rows if len(row) == len(columns)], columns=columns)
        table = table.rename(columns={"p_value": "p"}).set_index(index)
        tables.append(table if any(cell.cause for cell in found) else table.droplevel("cause"))
    return ModelComparison(tables[0].drop(columns="p"), tables[1])
