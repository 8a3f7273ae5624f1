"""Tables of the groups of a tree: estimates in their rows, naive and corrected for optimism, with limits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sstorch import metrics
from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.data import SurvivalData
from sstorch.data.oddities import Oddity
from sstorch.data.target import steps_up_to
from sstorch.data.time_unit import duration, median_text, round_horizons
from sstorch.exceptions import DataError
from sstorch.groups.hooks import GroupedTree
from sstorch.metrics.censoring import followed_to, risk_sets
from sstorch.metrics.checks import half_width
from sstorch.metrics.groups import first_below, log_log_limits, risk_table, survival_and_error
from sstorch.metrics.outcome import Observed
from sstorch.metrics.weights import Weighting, check_weighting

# Share of the optimism that own rows and those left out by a resample differ by: a resample holds 63.2 % of
# the rows (Efron 1983).
_DIFFERENT = 0.632
# Expected events in a group without any: with a hazard of a tenth of the mean none has a probability of 14 %.
_EXPECTED = 20.0
# Caution on tables of training rows.
CHOSEN_RULES = (
    "The rules were chosen on the training rows: differences between groups are too large, and "
    "confidence intervals, which take the rules as given, too narrow (sstorch.validation: "
    "group_table with n_resamples, validate_groups)"
)
# Note on tables and texts of weighted training rows.
WEIGHTED = "Estimates are weighted; counts of rows and events are not."
# Of a tree of K resamples the leaf of each row and how often the row was drawn, shape (K, n) each.
Resampled = tuple[IntArray, IntArray]


def usual_horizons(tree: GroupedTree) -> FloatArray:
    """The first and the last of the times of a summary: an early one, and one near the end of follow-up."""
    return np.unique(round_horizons(tree.event_times_, tree.time_unit_)[[0, -1]])


def table_of(
    tree: GroupedTree,
    data: SurvivalData,
    horizons: FloatArray | None = None,
    level: float = 0.95,
    resampled: Resampled | None = None,
) -> pd.DataFrame:
    """Table of the groups of rows.

    Arguments are as in :func:`group_estimates`; ``horizons`` are two round times if None.
    """
    horizons = usual_horizons(tree) if horizons is None else horizons
    group, predicted = tree._leaf_of(data.frame), tree._predicted(data.frame, horizons)
    return group_estimates(group, predicted, data, horizons, level, resampled)


def group_estimates(
    group: IntArray,
    predicted: FloatArray,
    data: SurvivalData,
    horizons: FloatArray,
    level: float = 0.95,
    resampled: Resampled | None = None,
) -> pd.DataFrame:
    """Observed and predicted curves of groups (n,), see :func:`sstorch.validation.group_table`.

    `predicted` is the survival of each row of positive weight at the increasing horizons, (n, n_times), with
    competing causes their incidences, (n, K, n_times); `resampled` is for corrected estimates.
    """
    causes = data.cause_names if data.causes is not None else ()
    numbers, place = np.unique(group, return_inverse=True)
    inside = [place == number for number in range(len(numbers))]
    happened = [data.cause == k for k in range(1, len(causes) + 1)] or [data.event]
    events = np.stack([np.bincount(place, each, len(numbers)) for each in happened], axis=1)
    columns = {("rows", ""): np.repeat(np.bincount(place), events.shape[1]), ("events", ""): events.ravel()}
    bands, times, medians = dict[str, FloatArray](), horizons, dict[str, FloatArray]()
    if data.intervals is None:
        bands, times, medians = _bands(data, place, len(numbers), horizons, half_width(level), resampled)
    for kind, band in medians.items():
        found = zip(_parts(kind), first_below(times, band[:, 0], 0.5), strict=True)
        columns |= {("median", part): values for part, values in found}
    known = np.stack([followed_to(horizons, data.nominal_time[rows], data.event[rows]) for rows in inside])
    values, weight = predicted.reshape(len(data), -1, len(horizons)), data.sample_weight
    weight = weight / weight.max()  # sums of the largest weights are not finite
    mean = [np.average(values[rows], axis=0, weights=weight[rows]) for rows in inside]
    for t, time in enumerate(horizons):
        quantity = f"{'F' if causes else 'S'}({time:g})"
        for kind, band in bands.items():
            for part, each in zip(_parts(kind), band[..., t], strict=True):
                columns[quantity, part] = np.where(known[:, t, None], each.T, np.nan).ravel()
        columns[quantity, "model"] = np.stack(mean)[..., t].ravel()
    index = pd.Index(numbers.astype(np.int64), name="group")
    if causes:
        index = pd.MultiIndex.from_product([index, causes], names=["group", "cause"])
    table = pd.DataFrame(columns, index=index).astype({name: np.int64 for name in columns if not name[1]})
    table.columns.names = ["quantity", "statistic"]
    return table


def _bands(
    data: SurvivalData,
    place: IntArray,
    n_groups: int,
    horizons: FloatArray,
    half: float,
    resampled: Resampled | None,
) -> tuple[dict[str, FloatArray], FloatArray, dict[str, FloatArray]]:
    """Estimates and limits of curves at horizons, (3, K, L, T), by kind, ``""`` or ``"corrected "``.

    Then, of one event, the same of survival at the times of all events, which are between the two.
    """
    competing, weighting = data.causes is not None, check_weighting(data.sample_weight, len(data))
    times = _event_times(data)
    at = horizons if competing and resampled is None else times
    curves = _curves_of_groups(data, place, n_groups, at, weighting)
    read = steps_up_to(at, horizons)
    medians: dict[str, FloatArray] = {}
    if competing:
        incidence, error = (np.pad(part, ((0, 0), (0, 0), (1, 0)))[..., read] for part in curves.incidences())
        bands = {"": np.stack([incidence, *incidence_limits(incidence, half * error)])}
    else:
        medians[""] = np.stack([curves.values, *log_log_limits(curves.values, half * curves.error)])
        bands = {"": _steps(medians[""])[..., read]}
    if resampled is not None:
        corrected = _corrected(curves.values, half * curves.error, place, data, resampled, weighting, times)
        bands["corrected "] = _steps(corrected)[..., read]
        if competing:
            bands["corrected "] = 1.0 - bands["corrected "][[0, 2, 1]]
        else:
            medians["corrected "] = corrected
    return bands, times, medians


class _Curves(NamedTuple):
    """Curves of the groups that fall from 1, of Q quantities, (Q, L, n_times): of causes 1 - incidence."""

    values: FloatArray
    error: FloatArray  # standard error of log(-log)

    def incidences(self) -> tuple[FloatArray, FloatArray]:
        """One minus the curves, and their standard errors."""
        inner = np.clip(self.values, np.finfo(np.float64).tiny, 1.0 - 1e-16)
        return 1.0 - self.values, self.error * self.values * -np.log(inner)


def _curves_of_groups(
    data: SurvivalData, group: IntArray, n_groups: int, times: FloatArray, weighting: Weighting
) -> _Curves:
    """Kaplan-Meier of groups, or one minus their incidences of Aalen and Johansen."""
    if data.causes is None:
        rows = Observed(data.time, data.event, data.entry, weighting.values, data.subject)
        values, error = survival_and_error(rows, group, n_groups, times, weighting.robust)
        return _Curves(values[None], error[None])
    parts = [data.subset(group == number).weighted_y for number in range(n_groups)]
    free = 1.0 - np.stack([metrics.aalen_johansen(part, times) for part in parts], axis=1)
    error = np.stack([metrics.aalen_johansen_error(part, times) for part in parts], axis=1)
    inner = np.where((free > 0) & (free < 1), free, np.nan)
    return _Curves(free, np.nan_to_num(error / (inner * -np.log(inner))))


def _reweighted(
    data: SurvivalData, weight: FloatArray, group: IntArray, n_groups: int, times: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """The same curves with other weights (n,), (Q, L, n_times), and which groups have rows, (L,)."""
    if data.causes is None:
        table = risk_table(Observed(data.time, data.event, data.entry, weight), group, n_groups, times)
        return table.survival()[None], np.asarray(table.at_risk.any(axis=1))
    n_causes, known = len(data.cause_names), np.bincount(group, weight, n_groups) > 0
    free = np.ones((n_causes, n_groups, len(times)))
    for number in np.flatnonzero(known):
        inside = group == number
        free[:, number] -= metrics.aalen_johansen(
            data.y[inside], times, n_causes=n_causes, sample_weight=weight[inside]
        )
    return free, known


def incidence_limits(incidence: FloatArray, half: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Confidence limits of cumulative incidences F on the scale of log(-log F); nan if F is 0 or 1.

    `half` is the quantile of the normal distribution times the standard error of F, of the shape of F.
    """
    inner = np.where((incidence > 0) & (incidence < 1 - 1e-12), incidence, np.nan)
    step = half / (inner * -np.log(inner))
    return inner ** np.exp(step), inner ** np.exp(-step)


def shown_table(table: pd.DataFrame) -> pd.DataFrame:
    """A table of groups as texts for readers: a column per quantity, each number with its interval.

    Predicted values are columns ``model ...``; corrected estimates replace the others.
    """
    corrected = "corrected " * ("corrected" in table.columns.unique("statistic"))
    estimate, *ends = _parts(corrected)
    shown = {}
    for quantity in table.columns.unique("quantity"):
        own: Any = table[quantity]
        if own.ndim == 1:  # counts, or parameters
            shown[quantity] = [str(v) if own.dtype.kind == "i" else f"{v:.3f}" for v in own]
        elif estimate in own:
            parts = own[[estimate, *ends]].itertuples(index=False)
            shown[quantity] = [interval_text(*part) for part in parts]
        if own.ndim > 1 and "model" in own:
            shown[f"model {quantity}"] = [short_number(value) for value in own["model"]]
    return pd.DataFrame(shown, index=table.index)


def groups_text(table: pd.DataFrame) -> str:
    """A table of groups for readers, see :func:`shown_table`; competing causes have a table each."""
    statistics = table.columns.unique("statistic")
    competing = table.index.nlevels > 1
    name = "Aalen-Johansen" if competing else "Kaplan-Meier"
    head = "corrected for optimism" if "corrected" in statistics else f"{name} of these rows"
    head = f"{head}, with intervals" if "estimate" in statistics else "mean predictions"
    lines, shown = [f"Groups, {head}"], shown_table(table)
    for cause in shown.index.unique("cause") if competing else [""]:
        part = shown.xs(cause, level="cause") if competing else shown
        lines += [*([cause] if competing else []), part.reset_index().to_string(index=False)]
    return "\n".join(lines)


def survival_texts(table: pd.DataFrame, unit: str | None) -> list[str]:
    """``"median 2 years"`` of each group; of all ``", survival 0.93 at 5 years"`` where one has no median.

    Args:
        table: a row per group with columns ``median`` and ``S(t)`` by increasing t; the last is taken.
        unit: of the times.
    """
    texts = [median_text(median, unit) for median in table["median"]]
    horizons = [name for name in map(str, table) if name.startswith("S(")]
    if np.isfinite(table["median"]).all() or not horizons:
        return texts
    at = f"at {duration(float(horizons[-1][2:-1]), unit)}"
    return [
        f"{text}, survival {value:.3g} {at}" for text, value in zip(texts, table[horizons[-1]], strict=True)
    ]


def interval_text(value: float, lower: float, upper: float) -> str:
    """An estimate and its limits, if known, with few digits; a dash for one that is not reached."""
    limits = "" if np.isnan([lower, upper]).all() else f" ({short_number(lower)} to {short_number(upper)})"
    return f"{short_number(value)}{limits}"


def short_number(value: float) -> str:
    """A number with few digits; a dash for one that is not finite."""
    if not np.isfinite(value):
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _parts(kind: str) -> tuple[str, str, str]:
    return kind.strip() or "estimate", f"{kind}lower", f"{kind}upper"


def _event_times(data: SurvivalData) -> FloatArray:
    if not data.event.any():
        raise DataError("no row has an event: survival of the groups cannot be estimated; give more rows")
    return np.unique(data.time[data.event])


def _steps(bands: FloatArray) -> FloatArray:
    """Survival with limits, (3, ..., n_times), with 1 before the first of the times in front."""
    start = np.where(np.isnan(bands[..., :1]), np.nan, 1.0)  # no limits without events
    return np.concatenate([start, bands], axis=-1)


def _corrected(
    values: FloatArray,
    half: FloatArray,
    group: IntArray,
    data: SurvivalData,
    resampled: Resampled,
    weighting: Weighting,
    times: FloatArray,
) -> FloatArray:
    """Curves minus their optimism, with limits, (3, Q, n_groups, n_times): see :func:`group_table`.

    `values` are curves of the groups, falling from 1, (Q, n_groups, n_times), and `half` half the width of
    their intervals on the scale of log(-log), at `times`.
    """
    n_groups = values.shape[1]
    optimism, place = np.zeros((len(resampled[0]), *values.shape)), _places(values, group, data)
    for number, (leaf, drawn) in enumerate(zip(*resampled, strict=True)):
        n_leaves = max(n_groups, int(leaf.max()) + 1)  # trees of resamples may have other numbers
        own, _ = _reweighted(data, data.sample_weight * drawn, leaf, n_leaves, times)
        other, known = _reweighted(data, data.sample_weight * (drawn == 0), leaf, n_leaves, times)
        excess = np.where(known[:, None], own - other, 0.0)
        optimism[number] = _over_places(excess, _places(own, leaf, data), place)
    centre = np.clip(values - _DIFFERENT * optimism.mean(axis=0), 0.0, 1.0)
    centre = np.minimum.accumulate(centre, axis=-1)
    # No curve is nearer to 0 or 1 than half a subject, or no limit would ever leave it.
    least = 0.5 / np.maximum(weighting.counts(group, n_groups), 1)[:, None]
    shift = np.abs(_log_log(centre, least) - _log_log(values, least))
    lower, upper = log_log_limits(np.clip(centre, least, 1.0 - least), half + shift)
    limits = np.stack([np.minimum(lower, centre), np.maximum(upper, centre)])
    return np.concatenate([centre[None], np.minimum.accumulate(limits, axis=-1)])


def _log_log(survival: FloatArray, least: FloatArray) -> FloatArray:
    return np.asarray(np.log(-np.log(np.clip(survival, least, 1.0 - least))), dtype=np.float64)


def _places(curves: FloatArray, group: IntArray, data: SurvivalData) -> FloatArray:
    """Begin and end of each group in the order of risk, (n_groups, 2), shares of the weight of all rows."""
    n_groups = curves.shape[1]
    share = np.bincount(group, data.sample_weight, n_groups) / data.sample_weight.sum()
    order = np.argsort(curves.sum(axis=0).mean(axis=1), kind="stable")
    ends = np.empty(n_groups)
    ends[order] = np.cumsum(share[order])
    return np.stack([ends - share, ends], axis=1)


def _over_places(values: FloatArray, place: FloatArray, wanted: FloatArray) -> FloatArray:
    """Means over the wanted places of values that are known for others, (n_groups, n_times)."""
    begin, end = wanted[:, None, :].transpose(2, 0, 1)
    shared = np.clip(np.minimum(end, place[:, 1]) - np.maximum(begin, place[:, 0]), 0.0, None)
    total = shared.sum(axis=1, keepdims=True)
    return np.asarray(shared @ values / np.where(total > 0, total, 1.0), dtype=np.float64)


def groups_without_events(group: IntArray, data: SurvivalData) -> list[Oddity]:
    """Name groups, (n,), without events in which the hazard of all rows would give 20 or more.

    A column that is known only with the outcome makes such groups, and their curves rest on no event.
    """
    entry = data.entry if data.entry.any() else None
    sets = risk_sets(Observed(data.nominal_time, data.event, entry))
    hazard = np.cumsum(
        np.divide(sets.n_events, sets.at_risk, where=sets.at_risk > 0, out=np.zeros(len(sets.times)))
    )
    levels = np.concatenate(([0.0], hazard))
    at_end, at_entry = (
        levels[np.searchsorted(sets.times, time, side="right")] for time in (data.nominal_time, data.entry)
    )
    expected = np.bincount(group, at_end - at_entry)
    events, rows = np.bincount(group, data.event), np.bincount(group)
    return [
        Oddity(
            f"group {k} has no event in {rows[k]} rows, where the hazard of all rows would give "
            f"{expected[k]:.0f}",
            "make sure that the columns that divide the rows are known at time zero",
        )
        for k in np.flatnonzero((events == 0) & (expected >= _EXPECTED))
    ]
