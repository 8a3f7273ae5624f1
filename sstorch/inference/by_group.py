"""Effect of a covariate within each prognostic group, and whether it differs between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy.stats import chi2, norm
from torch import Tensor

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import check_share
from sstorch.data.fingerprint import on_training_rows
from sstorch.exceptions import ConfigError, DataError
from sstorch.inference.added import AddedFeatures
from sstorch.inference.groups import SAME_ROWS, honest_text
from sstorch.inference.hazard_rows import HazardRows
from sstorch.inference.model import Refitted, covariance_of
from sstorch.inference.terms import Contrasts, Values
from sstorch.threads import torch_threads


@dataclass(frozen=True)
class GroupEffects:
    """Effects of a covariate within groups.

    Attributes:
        table: indexed by ``group``, with competing causes by ``cause`` and ``group``: ``rows``, ``events``,
            ``estimate``, difference of the linear predictor, its ``standard error``, the ratio if the family
            has one, with ``lower`` and ``upper`` limits, ``p`` of the Wald test of no effect, and ``reason``
            for a missing estimate, or "".
        heterogeneity: indexed by ``cause``: ``statistic``, ``df`` and ``p`` of the Wald test of equal effects
            in all groups with an estimate; NaN with fewer than two groups.
        text: description of the comparison.
        intervals: condition of the intervals.
        level: level of the confidence limits.
    """

    table: pd.DataFrame
    heterogeneity: pd.DataFrame
    text: str
    intervals: str
    level: float

    def __str__(self) -> str:
        names = [str(name) for name in self.table]
        shown = next((name for name in names if name.endswith(" ratio")), "estimate")
        name = shown if shown != "estimate" else "difference of the linear predictor"
        lines = [f"{self.text}: {name} ({self.level:.0%} confidence interval), {self.intervals}"]
        for at, row in self.table.iterrows():
            who = " ".join(map(str, at)) if isinstance(at, tuple) else f"group {at}"
            found = f"{row[shown]:.3g} ({row['lower']:.3g} to {row['upper']:.3g})"
            found = row["reason"] or found
            lines.append(f"  {who}: {found}, {row['rows']:.0f} rows, {row['events']:.0f} events")
        for cause, test in self.heterogeneity.iterrows():
            of = f" of {cause}" if len(self.heterogeneity) > 1 else ""
            if test["df"]:
                lines.append(f"  the same in all groups{of}: p = {test['p']:.3g}")
        return "\n".join(lines)


@torch_threads(1)  # a second one gains nothing on small matrices
def effect_by_group(
    model: Refitted,
    X: object,
    y: object,
    column: str,
    value: object = None,
    reference: object = None,
    *,
    sample_weight: object = None,
    level: float = 0.95,
) -> GroupEffects:
    """Estimate the effect of a covariate within each group, and test for equal effects.

    One coefficient of the covariate per group is added without a penalty, and all coefficients are
    re-estimated; the others keep the penalties of the fit. Effects are therefore not shrunk towards each
    other. Variances are for fixed penalties and gates.

    Args:
        model: fitted groups.
        X: the training rows, or other ones: coefficients are re-estimated from these rows, and ``intervals``
            of the result states which rows chose the gates.
        y: outcome of the rows.
        column: the covariate, such as a treatment.
        value: compared with
        reference: this one. None are the 95 % and the 5 % quantile of a number, or the second and the most
            frequent of two categories.
        sample_weight: weights of training, (n,).
        level: level of the confidence limits, in (0, 1).

    Raises:
        ConfigError: the model has no covariance or a single group, or a category has several levels and no
            value is named.
        DataError: unknown column or value, or the covariate has one value in a group.
    """
    check_share(level, "level")
    covariance, tree = covariance_of(model), model._tree
    contrasts = Contrasts(tree.preprocessor, covariance.terms)
    pair = _pair(contrasts, column, value, reference)
    if pair.first == pair.second:
        raise DataError(f"column {column!r} is {pair.first!r} on both sides: give value and reference")
    data = model._rows(X, y, sample_weight)
    group = np.asarray(tree.apply(tree.encode(data.frame)))
    numbers = np.unique(group)
    if len(numbers) < 2:
        raise ConfigError("effect_by_group compares groups, and these rows are one: see effect()")
    z = _values(data.frame[column], pair)
    for number in numbers:
        if np.ptp(z[group == number]) == 0:
            raise DataError(f"column {column!r} has one value in group {number}: its effect there is unknown")
    (direction,) = contrasts.between(column, [pair])
    tables, tests = [], []
    for rows in HazardRows.by_cause(model, data):
        added = torch.as_tensor(np.where(group[:, None] == numbers, z[:, None], 0.0))
        fit = AddedFeatures.at_optimum(rows, added)
        maps = [rows.covariance.by_group[_hazard_of(rows, group == number)] for number in numbers]
        p = len(direction.features)
        shared = torch.stack([direction.features @ each[:p] for each in maps])
        combined = torch.cat([shared, torch.eye(len(numbers), dtype=shared.dtype)], 1)
        event = rows.sample.event[0].numpy() > 0
        reasons = [_unknown(z, event & (group == number)) for number in numbers]
        known = np.array([not reason for reason in reasons])
        estimate = combined @ fit.theta
        error = (combined @ fit.covariance @ combined.mT).diagonal().sqrt()
        value, wide = (np.where(known, each.numpy(), np.nan) for each in (estimate, error))
        table = _table(value, wide, rows.module.family.constant_ratio, level).assign(reason=reasons)
        table.insert(0, "rows", [int((group == number).sum()) for number in numbers])
        table.insert(1, "events", [int(event[group == number].sum()) for number in numbers])
        tables.append(table.set_axis(pd.MultiIndex.from_product([[rows.cause], numbers])))
        tests.append({"cause": rows.cause, **_same(combined[torch.as_tensor(known)], fit)})
    table = pd.concat(tables).rename_axis(["cause", "group"])
    return GroupEffects(
        table if tree.competing else table.droplevel("cause"),
        pd.DataFrame(tests).set_index("cause"),
        f"{column} {pair.text}",
        SAME_ROWS if on_training_rows(model, X, y) else _other_rows(model),
        level,
    )


def _other_rows(model: Refitted) -> str:
    """Condition of intervals from rows that are not all rows of the training."""
    return honest_text(vars(model).get("gate_subjects_", 0)) or "given the gates, which other rows chose"


def _unknown(z: FloatArray, event: BoolArray) -> str:
    """Why the events of a group have no information on an effect; empty if they do."""
    if not event.any():
        return "no events in the group"
    if np.isin(z, (0.0, 1.0)).all() and np.ptp(z[event]) == 0:
        return f"no events {'without' if z[event][0] else 'with'} the value that is compared"
    return ""


def _same(combined: Tensor, fit: AddedFeatures) -> dict[str, float]:
    """Wald test that some combinations of coefficients are equal."""
    if len(combined) < 2:
        return {"statistic": np.nan, "df": 0, "p": np.nan}
    change, df = combined[1:] - combined[0], len(combined) - 1
    away, own = change @ fit.theta, change @ fit.covariance @ change.mT
    statistic = float(away @ torch.linalg.solve(own, away))
    return {"statistic": statistic, "df": df, "p": float(chi2.sf(statistic, df))}


def _hazard_of(rows: HazardRows, inside: BoolArray) -> int:
    """The group of coefficients of some rows that share one."""
    (found,) = rows.covariance.groups[rows.leaf[torch.as_tensor(inside)]].unique().tolist()
    return int(found)


def _pair(contrasts: Contrasts, column: str, value: object, reference: object) -> Values:
    """The two values that are compared."""
    if value is not None and reference is not None:
        return Values.of(contrasts.checked(column, reference), contrasts.checked(column, value))
    if value is not None or reference is not None:
        raise ConfigError("give value and reference, or neither")
    contrasts.checked(column, contrasts.reference.get(column))
    pairs = contrasts.outer(column)
    if len(pairs) != 1:
        raise ConfigError(f"column {column!r} has several values to compare: give value and reference")
    return pairs[0]


def _values(column: pd.Series, pair: Values) -> FloatArray:
    """0 at the reference, 1 at the value; of a number in proportion, missing ones at the reference."""
    if isinstance(pair.first, str):
        return (column.astype(object) == pair.second).to_numpy().astype(np.float64)
    first, second = float(pair.first), float(pair.second)
    return (column.to_numpy(np.float64, na_value=first) - first) / (second - first)


def _table(estimate: FloatArray, error: FloatArray, ratio: str | None, level: float) -> pd.DataFrame:
    width = norm.ppf((1 + level) / 2) * error
    lower, upper = estimate - width, estimate + width
    table = pd.DataFrame({"estimate": estimate, "standard error": error})
    if ratio is not None:
        table[ratio], lower, upper = np.exp(estimate), np.exp(lower), np.exp(upper)
    return table.assign(lower=lower, upper=upper, p=2 * norm.sf(np.abs(estimate / error)))
