"""Residuals and influence of the rows that a regression was fitted to."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import pandas as pd
import torch

from sstorch._types import FloatArray
from sstorch.checks import check_choice, check_tree
from sstorch.data.columns import to_pandas
from sstorch.inference.covariance import Inferable, covariance_of
from sstorch.inference.hazard_rows import HazardRows
from sstorch.inference.terms import Contrasts

ResidualKind = Literal["martingale", "deviance", "cox_snell", "score", "dfbeta"]


def residuals(
    model: Inferable,
    X: object,
    y: object,
    kind: ResidualKind = "martingale",
    sample_weight: object = None,
) -> pd.DataFrame:
    """Compute residuals: one row per row of X, by index label.

    With competing causes residuals are cause-specific, with other causes censored. For start-stop rows, sum
    residuals by subject to get one value per subject.

    Args:
        model: fitted regression, or groups.
        X: n rows; the training rows for ``"dfbeta"``, with their weights.
        y: outcome of the rows.
        kind: ``"cox_snell"``, the cumulative hazard H between entry and time; ``"martingale"``, event minus
            H; ``"deviance"``, a nearly symmetric transformation of it; ``"score"``, derivatives of the
            weighted log-likelihood in the parameters of the leaf, in units of encoded features; ``"dfbeta"``,
            each estimate minus the estimate without the row, by one Newton step with the same penalties.
        sample_weight: weights of the rows. Only ``"score"`` and ``"dfbeta"`` depend on their ratios.

    Returns:
        Columns: causes for the first three kinds; parameters for ``"score"``; ``term`` and ``contrast`` as in
        :func:`sstorch.inference.coefficients` for ``"dfbeta"``. Several causes and groups are outer levels.
        ``"dfbeta"`` is NaN for a contrast without an estimate; the first three kinds have no NaN.

    Raises:
        ConfigError: the kind is unknown, or the model has no covariance of coefficients.
        DataError: the rows are invalid, or times are interval-censored.

    References:
        Therneau, Grambsch and Fleming (1990), "Martingale-based residuals for survival models", Biometrika
        77, 147-160; Cain and Lange (1984), Biometrics 40, 493-499, on dfbeta.

    >>> from sstorch import SurvivalRegression, load_dataset
    >>> data = load_dataset("gbsg2")
    >>> regression = SurvivalRegression("weibull").fit(data.frame, data.y)
    >>> residuals(regression, data.frame[:2], data.y[:2]).round(2)
       event
    0   0.16
    1   0.26
    """
    check_tree(model, "_scored", "soft survival tree")
    check_choice(kind, "kind", get_args(ResidualKind))
    data = model._scored(X, y, sample_weight)
    data.refuse_intervals("residuals")
    tables: dict[tuple[str, ...], pd.DataFrame] = {}
    for rows in HazardRows.by_cause(model, data):
        if kind == "dfbeta":
            rows.check_training()
            tables |= _dfbeta(model, rows)
        elif kind == "score":
            features = [feature.name for feature in model._tree.preprocessor.leaf_features]
            family = rows.module.family
            names = [*features, "intercept", *family.shape_names]
            if family.ancillary != "constant":
                names += [f"{shape}: {feature}" for shape in family.shape_names for feature in features]
            tables[(rows.cause,)] = pd.DataFrame((-rows.derivatives().scores()).numpy(), columns=names)
        else:
            tables[(rows.cause,)] = pd.DataFrame({rows.cause: _of_events(rows, kind)})
    if kind in ("cox_snell", "martingale", "deviance"):
        found = pd.concat(tables.values(), axis=1)
    else:
        found = pd.concat(tables, axis=1)
        outer = ["cause", "group"][: len(next(iter(tables)))]
        found.columns.names = [*outer, *(["term", "contrast"] if kind == "dfbeta" else ["parameter"])]
        for name in outer:
            if found.columns.get_level_values(name).nunique() == 1:
                found = found.droplevel(name, axis=1)
    frame = to_pandas(X)
    labels = frame.index if isinstance(frame, pd.DataFrame) else pd.RangeIndex(len(data))
    return found.set_axis(labels, axis=0)


def _of_events(rows: HazardRows, kind: ResidualKind) -> FloatArray:
    """Cox-Snell, martingale or deviance residuals of a cause, (n,)."""
    expected, event = rows.cumulative_hazard().numpy(), rows.sample.event[0].numpy()
    if kind == "cox_snell":
        return np.asarray(expected)
    martingale = event - expected
    if kind == "martingale":
        return np.asarray(martingale)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.where(event > 0, np.log(expected), 0.0)
    return np.asarray(np.sign(martingale) * np.sqrt(np.maximum(-2 * (martingale + log), 0.0)))


def _dfbeta(model: Inferable, rows: HazardRows) -> dict[tuple[str, ...], pd.DataFrame]:
    """By cause and group, changes of contrasts by each row, (n, contrasts): see :func:`residuals`."""
    hazard, facts = rows.covariance, covariance_of(model).terms
    contrasts = Contrasts(model._tree.preprocessor, facts).rows(list(facts))
    names = pd.MultiIndex.from_tuples([(each.term, each.text) for each in contrasts])
    features = torch.stack([each.features for each in contrasts])
    # The gradient is of the negative log-likelihood: taking a row out moves the estimate by + V gradient.
    moved = -rows.gradients() @ hazard.posterior
    found: dict[tuple[str, ...], pd.DataFrame] = {}
    for group in range(hazard.n_groups):
        combined = features @ hazard.by_group[group][: features.shape[1]]
        change = moved @ combined.mT
        change[:, hazard.unseen(combined)] = torch.nan
        found[rows.cause, str(group + 1)] = pd.DataFrame(change.numpy(), columns=names)
    return found
