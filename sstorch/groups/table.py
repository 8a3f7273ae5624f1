"""Kaplan-Meier estimates of the groups of a tree, naive and corrected for optimism, with limits."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sstorch._types import FloatArray, IntArray
from sstorch.data import SurvivalData
from sstorch.exceptions import DataError
from sstorch.metrics.checks import half_width
from sstorch.metrics.groups import first_below, log_log_limits, risk_table, survival_and_error
from sstorch.metrics.outcome import Observed
from sstorch.metrics.weights import Weighting, WeightKind, check_weighting

# Share of the optimism that own rows and those left out by a resample differ by: a resample holds 63.2 % of
# the rows (Efron 1983).
_DIFFERENT = 0.632


def group_table(
    group: IntArray,
    n_groups: int,
    predicted: FloatArray,
    data: SurvivalData,
    horizons: FloatArray,
    confidence: float = 0.95,
    resampled: tuple[IntArray, IntArray] | None = None,
    weights: WeightKind = "sampling",
) -> pd.DataFrame:
    """Kaplan-Meier medians and survival of groups: see :meth:`SurvivalGroups.group_table`.

    Args:
        group: of each row, 0 .. n_groups - 1, shape (n,).
        n_groups: number of groups, also those without rows.
        predicted: survival of each row at the horizons, shape (n, n_times).
        data: rows of positive weight with their times and events.
        horizons: times at which survival is given, increasing, shape (n_times,).
        confidence: of the intervals, in (0, 1).
        resampled: for corrected estimates beside the naive ones, of K trees of resamples the leaf of each row
            and how often the row was drawn, shape (K, n) each.
        weights: what the weights of the rows are.

    Raises:
        DataError: the rows have no event, or frequency weights are no integers.
        ConfigError: ``confidence`` is out of range, or the kind of weights does not exist.
    """
    times, factor = _event_times(data), half_width(confidence)
    weighting = check_weighting(data.sample_weight, len(data), weights)
    observed = Observed(data.time, data.event, data.entry, weighting.values, data.person)
    values, error = survival_and_error(observed, group, n_groups, times, weighting.robust)
    bands = {"": np.stack([values, *log_log_limits(values, factor * error)])}
    if resampled is not None:
        bands["corrected "] = _corrected(values, factor * error, group, data, times, resampled, weighting)
    rows = []
    for number in np.unique(group):
        inside = group == number
        # Beyond the last row that was observed nothing is known.
        known = (horizons <= data.time[inside].max()) | (values[number, -1] <= 0)
        line: dict[tuple[str, str], float] = {
            ("rows", ""): int(inside.sum()),
            ("events", ""): int(data.event[inside].sum()),
        }
        for kind, band in bands.items():
            medians = first_below(times, band[:, number], 0.5)
            for part, median in zip(_parts(kind), medians, strict=True):
                line["median", part] = float(median)
        for k, t in enumerate(horizons):
            for kind, band in bands.items():
                steps = np.concatenate([np.ones((3, 1)), band[:, number]], axis=1)
                survival = steps[:, np.searchsorted(times, t, side="right")]
                for part, value in zip(_parts(kind), survival, strict=True):
                    line[f"S({t:g})", part] = float(value) if known[k] else np.nan
            weight = data.sample_weight[inside]
            line[f"S({t:g})", "model"] = float(np.average(predicted[inside, k], weights=weight))
        rows.append(line)
    columns = pd.MultiIndex.from_tuples(list(rows[0]), names=["quantity", "part"])
    values_by_row = [list(line.values()) for line in rows]
    return pd.DataFrame(values_by_row, index=pd.Index(np.unique(group), name="group"), columns=columns)


def groups_text(table: pd.DataFrame) -> str:
    """A :func:`group_table` for readers: a column a quantity, each number with its interval.

    Groups that live longest come first, by the mean of their predicted survival at the horizons.
    """
    kind = "corrected" if ("median", "corrected") in table else "estimate"
    low, high = (f"corrected {end}" if kind == "corrected" else end for end in ("lower", "upper"))
    survival = table.loc[:, table.columns.get_level_values(1) == "model"].mean(axis=1)
    table = table.loc[survival.sort_values(ascending=False, kind="stable").index]
    text = pd.DataFrame({"rows": table["rows", ""], "events": table["events", ""]}).astype(int).astype(str)
    for name in table.columns.get_level_values(0).unique():
        if name in ("rows", "events"):
            continue
        parts = table[name][[kind, low, high]].itertuples(index=False)
        text[name] = [interval_text(*part) for part in parts]
        if (name, "model") in table:
            text[f"model {name}"] = [_short(value) for value in table[name, "model"]]
    head = "corrected for optimism" if kind == "corrected" else "Kaplan-Meier of these rows"
    return f"Groups, {head}, with intervals\n{text.reset_index().to_string(index=False)}"


def interval_text(value: float, lower: float, upper: float) -> str:
    """An estimate and its limits with few digits; a dash for what is not known or not reached."""
    return f"{_short(value)} ({_short(lower)} to {_short(upper)})"


def _short(value: float) -> str:
    if not np.isfinite(value):
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _parts(kind: str) -> tuple[str, str, str]:
    return kind.strip() or "estimate", f"{kind}lower", f"{kind}upper"


def _event_times(data: SurvivalData) -> FloatArray:
    if not data.event.any():
        raise DataError("no row has an event: survival of the groups cannot be estimated; give more rows")
    return np.unique(data.time[data.event])


def _corrected(
    values: FloatArray,
    half: FloatArray,
    group: IntArray,
    data: SurvivalData,
    times: FloatArray,
    resampled: tuple[IntArray, IntArray],
    weighting: Weighting,
) -> FloatArray:
    """Curves less their optimism, with limits, (3, n_groups, n_times): see the method for the definition."""
    rows = Observed(data.time, data.event, data.entry)
    optimism, place = np.zeros((len(resampled[0]), *values.shape)), _places(values, group, data)
    for number, (leaf, drawn) in enumerate(zip(*resampled, strict=True)):
        n_leaves = max(len(values), int(leaf.max()) + 1)  # trees of resamples may have other numbers
        own, other = (
            risk_table(rows._replace(weight=data.sample_weight * part), leaf, n_leaves, times)
            for part in (drawn.astype(np.float64), (drawn == 0).astype(np.float64))
        )
        curves = own.survival()
        excess = np.where(other.at_risk.any(axis=1, keepdims=True), curves - other.survival(), 0.0)
        optimism[number] = _over_places(excess, _places(curves, leaf, data), place)
    centre = np.clip(values - _DIFFERENT * optimism.mean(axis=0), 0.0, 1.0)
    centre = np.minimum.accumulate(centre, axis=1)
    # No curve is nearer to 0 or 1 than half a subject, or no limit would ever leave it.
    least = 0.5 / np.maximum(weighting.counts(group, len(values)), 1)[:, None]
    shift = np.abs(_log_log(centre, least) - _log_log(values, least))
    lower, upper = log_log_limits(np.clip(centre, least, 1.0 - least), half + shift)
    limits = np.stack([np.minimum(lower, centre), np.maximum(upper, centre)])
    return np.concatenate([centre[None], np.minimum.accumulate(limits, axis=2)])


def _log_log(survival: FloatArray, least: FloatArray) -> FloatArray:
    return np.asarray(np.log(-np.log(np.clip(survival, least, 1.0 - least))), dtype=np.float64)


def _places(curves: FloatArray, group: IntArray, data: SurvivalData) -> FloatArray:
    """Begin and end of each group in the order of risk, (n_groups, 2), shares of the weight of all rows."""
    share = np.bincount(group, data.sample_weight, len(curves)) / data.sample_weight.sum()
    order = np.argsort(curves.mean(axis=1), kind="stable")
    ends = np.empty(len(curves))
    ends[order] = np.cumsum(share[order])
    return np.stack([ends - share, ends], axis=1)


def _over_places(values: FloatArray, place: FloatArray, wanted: FloatArray) -> FloatArray:
    """Means over the wanted places of values that are known for others, (n_groups, n_times)."""
    begin, end = wanted[:, None, :].transpose(2, 0, 1)
    shared = np.clip(np.minimum(end, place[:, 1]) - np.maximum(begin, place[:, 0]), 0.0, None)
    total = shared.sum(axis=1, keepdims=True)
    return np.asarray(shared @ values / np.where(total > 0, total, 1.0), dtype=np.float64)
