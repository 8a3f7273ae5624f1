"""Tables of the groups of a tree, naive and corrected for optimism, with limits; model card of a tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch import metrics
from sstorch._types import FloatArray, IntArray
from sstorch._version import __version__
from sstorch.base import check_times
from sstorch.checks import check_choice, check_integer, check_tree
from sstorch.data import SurvivalData
from sstorch.data.target import steps_up_to
from sstorch.data.time_unit import CONSTANT_COVARIATES, duration, median_text, round_horizons
from sstorch.deploy.calculator import PAGE_TEXTS
from sstorch.document import Block, Code, Document, Section, as_table, number, to_html, to_markdown
from sstorch.exceptions import ConfigError, DataError
from sstorch.groups.recalibration import SurvivalTree
from sstorch.groups.validation import resamples
from sstorch.metrics.censoring import followed_to, risk_sets
from sstorch.metrics.checks import half_width
from sstorch.metrics.groups import first_below, log_log_limits, survival_and_error
from sstorch.metrics.incidence import aalen_johansen_error
from sstorch.metrics.outcome import Observed
from sstorch.metrics.weights import Weighting, check_weighting

# Share of the optimism that own rows and those left out by a resample differ by: a resample holds 63.2 % of
# the rows (Efron 1983).
_DIFFERENT = 0.632
# Expected events in a group without any: with a hazard of a tenth of the mean none has a probability of 14 %.
_EXPECTED = 20.0
# Survival below this is the rounding error of none.
_NOTHING = 1e-12
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


def group_table(
    tree: SurvivalTree,
    X: object,
    y: object,
    horizons: npt.ArrayLike | None = None,
    n_resamples: int = 0,
    level: float = 0.95,
    sample_weight: object = None,
) -> pd.DataFrame:
    """Estimate survival or incidences of each group, observed and predicted, with confidence intervals.

    The table contains Kaplan-Meier medians and survival, or the Aalen-Johansen incidence of each competing
    cause. Start-stop rows are grouped by subject. Intervals are pointwise, for groups, not for subjects.

    On held-out rows the estimates have no selection bias. On the training rows differences between groups are
    too large, since splits were placed where these rows differ. ``n_resamples`` corrects this. Each resample
    refits the tree; its optimism is .632 times the difference between the curves of its groups on drawn and
    on not drawn rows, as in Efron's estimate of prediction error. A group has the optimism of the groups of
    other trees at the same quantiles of all rows, in the order of risk (mean of the curves). The mean over
    resamples, at each time, is subtracted from the curve, from which medians are computed.
    Limits are those of the corrected curve on the scale of log(-log S), widened on both sides by the
    correction: they allow for an optimism between zero and twice the estimate.
    In simulations of soft trees, 95 % intervals of medians had coverage 96 to 99 % with correction and 58 to
    82 % without (``experiments/groups``). If groups do not differ at all, some bias remains. Earlier choices,
    such as of parameters, are not corrected; use test rows for these.

    Uncorrected intervals are on the scale of log(-log S) with Greenwood's variance; that of the median
    contains the times at which the band contains 1/2 (Brookmeyer and Crowley). Those of incidences are on the
    scale of log(-log F), as R's ``survfit(conf.type="log-log")``.

    Args:
        tree: fitted.
        X: rows; with ``n_resamples`` those of training.
        y: outcome of the rows, as in ``fit``.
        horizons: times of survival or incidences; None for two round times near the tertiles of the training
            event times.
        n_resamples: number of resamples for the correction of one event, 50 or more; 0 for no correction.
        level: level of the intervals.
        sample_weight: (n,), >= 0. Intervals then use the infinitesimal jackknife
            (:class:`~sstorch.metrics.KaplanMeier`) and do not depend on the scale of the weights.
            Resamples draw rows with their weights.

    Returns:
        One row per group with rows, indexed by ``group``, with competing causes by ``group`` and ``cause``;
        columns have two levels, ``quantity`` and ``statistic``. Unweighted ``rows`` and ``events``; of one
        event ``median`` with ``estimate``, ``lower`` and ``upper``, +inf if not reached; ``S(t)``, or
        ``F(t)`` of a cause, with these and ``model``, the weighted mean prediction; with resamples also
        ``corrected``, ``corrected lower`` and ``corrected upper``. Estimates are nan beyond the last observed
        time; limits of an incidence are nan if it is 0 or 1; interval-censored times have no estimates.

    Raises:
        DataError: the data are invalid, or hold too few events.
        ConfigError: an argument is out of range, or ``n_resamples`` is given with competing causes.

    References:
        Efron (1983), Journal of the American Statistical Association 78, 316-331. Harrell (2015), Regression
        Modeling Strategies, 2nd edition, section 5.3. LeBlanc and Crowley (1993), Journal of the American
        Statistical Association 88, 457-467, on the correction of split statistics.
    """
    check_tree(tree, "_can_divide")
    data = tree._rows(X, y, sample_weight)
    at = None if horizons is None else check_times(horizons)
    if check_integer("n_resamples", n_resamples, 0) == 0:
        return table_of(tree, data, at, level)
    if data.causes is not None:
        raise ConfigError(
            "n_resamples must be 0 with competing causes: score rows that did not place the gates"
        )
    splits, draws = resamples(data, n_resamples, tree._seed)
    groups = np.stack([groups_of(data.frame).leaf for groups_of in tree._trained(data, splits)])
    tree._chosen.group_table_ = table = table_of(tree, data, at, level, (groups, draws))
    return table


def table_of(
    tree: SurvivalTree,
    data: SurvivalData,
    horizons: FloatArray | None = None,
    level: float = 0.95,
    resampled: Resampled | None = None,
) -> pd.DataFrame:
    """Table of the groups of rows; by default at an early time and at one near the end of follow-up."""
    if horizons is None:
        horizons = np.unique(round_horizons(tree.event_times_, tree.time_unit_)[[0, -1]])
    group, predicted = tree._partition(data.frame).leaf, tree._predicted(data.frame, horizons)
    return group_estimates(group, predicted, data, horizons, level, resampled)


def group_estimates(
    group: IntArray,
    predicted: FloatArray,
    data: SurvivalData,
    horizons: FloatArray,
    level: float = 0.95,
    resampled: Resampled | None = None,
) -> pd.DataFrame:
    """Curves of groups (n,), observed and `predicted` (n, n_times) or (n, K, n_times)."""
    causes = () if data.causes is None else data.cause_names
    numbers, place = np.unique(group, return_inverse=True)
    inside = [place == number for number in range(len(numbers))]
    happened = [data.cause == k for k in range(1, len(causes) + 1)] or [data.event]
    events = np.stack([np.bincount(place, each, len(numbers)) for each in happened], axis=1)
    columns = {("rows", ""): np.repeat(np.bincount(place), events.shape[1]), ("events", ""): events.ravel()}
    bands, medians = dict[str, FloatArray](), dict[str, FloatArray]()
    if data.intervals is None:
        bands, medians = _bands(data, place, len(numbers), horizons, half_width(level), resampled)
    for kind, found in medians.items():
        columns |= {("median", part): values for part, values in zip(_parts(kind), found, strict=True)}
    known = np.stack([followed_to(horizons, data.nominal_time[rows], data.event[rows]) for rows in inside])
    values, weight = predicted.reshape(len(data), -1, len(horizons)), data.sample_weight
    weight = weight / weight.max()  # sums of the largest weights are not finite
    mean = np.stack([np.average(values[rows], axis=0, weights=weight[rows]) for rows in inside])
    for t, time in enumerate(horizons):
        quantity = f"{'F' if causes else 'S'}({time:g})"
        for kind, band in bands.items():
            for part, each in zip(_parts(kind), band[..., t], strict=True):
                columns[quantity, part] = np.where(known[:, t, None], each.T, np.nan).ravel()
        columns[quantity, "model"] = mean[..., t].ravel()
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
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Curves with limits at horizons, (3, K, L, T), by kind, and of one event medians, (3, L)."""
    if not data.event.any():
        raise DataError("no row has an event: survival of the groups cannot be estimated; give more rows")
    if data.causes is not None:
        parts = [data.subset(place == number).weighted_y for number in range(n_groups)]
        incidence, error = (
            np.stack([estimate(part, horizons) for part in parts], axis=1)
            for estimate in (metrics.aalen_johansen, aalen_johansen_error)
        )
        return {"": np.stack([incidence, *incidence_limits(incidence, half * error)])}, {}
    weighting, times = check_weighting(data.sample_weight, len(data)), np.unique(data.time[data.event])
    rows = Observed(data.time, data.event, data.entry, weighting.values, data.subject)
    values, error = survival_and_error(rows, place, n_groups, times, weighting.robust)
    falling = {"": np.stack([values, *log_log_limits(values, half * error)])}
    if resampled is not None:
        falling["corrected "] = _corrected(values, half * error, place, data, resampled, weighting, times)
    medians = {kind: first_below(times, band, 0.5) for kind, band in falling.items()}
    read = steps_up_to(times, horizons)
    for kind, band in falling.items():  # 1 before the first of the times, and no limits without events
        start = np.where(np.isnan(band[..., :1]), np.nan, 1.0)
        falling[kind] = np.concatenate([start, band], axis=-1)[:, None, :, read]
    return falling, medians


def _curves(
    data: SurvivalData, weight: FloatArray, group: IntArray, n_groups: int, times: FloatArray
) -> FloatArray:
    """Kaplan-Meier of each group with other weights, (L, n_times); nan of groups without rows."""
    rows = Observed(data.time, data.event, data.entry if data.entry.any() else None, weight)
    free = np.full((n_groups, len(times)), np.nan)
    for k in np.flatnonzero(np.bincount(group, weight, n_groups)):
        free[k] = 1.0 - metrics.aalen_johansen(rows.take(group == k), times)[0]
    return np.where(free < _NOTHING, 0.0, free)


def incidence_limits(incidence: FloatArray, half: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Limits of incidences F from half their width, on the scale of log(-log F); nan if F is 0 or 1."""
    inner = np.where((incidence > 0) & (incidence < 1 - _NOTHING), incidence, np.nan)
    step = half / (inner * -np.log(inner))
    return inner ** np.exp(step), inner ** np.exp(-step)


def _parts(kind: str) -> tuple[str, str, str]:
    return kind.strip() or "estimate", f"{kind}lower", f"{kind}upper"


def _corrected(
    values: FloatArray,
    half: FloatArray,
    group: IntArray,
    data: SurvivalData,
    resampled: Resampled,
    weighting: Weighting,
    times: FloatArray,
) -> FloatArray:
    """Curves minus their optimism, with limits, (3, L, n_times), from half the width on log(-log)."""
    n_groups = len(values)
    optimism, place = np.zeros((len(resampled[0]), *values.shape)), _places(values, group, data)
    for k, (leaf, drawn) in enumerate(zip(*resampled, strict=True)):
        n_leaves = max(n_groups, int(leaf.max()) + 1)  # trees of resamples may have other numbers
        own = np.nan_to_num(_curves(data, data.sample_weight * drawn, leaf, n_leaves, times), nan=1.0)
        other = _curves(data, data.sample_weight * (drawn == 0), leaf, n_leaves, times)
        optimism[k] = _over_places(np.nan_to_num(own - other), _places(own, leaf, data), place)
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
    n_groups = len(curves)
    share = np.bincount(group, data.sample_weight, n_groups) / data.sample_weight.sum()
    order = np.argsort(curves.mean(axis=1), kind="stable")
    ends = np.empty(n_groups)
    ends[order] = np.cumsum(share[order])
    return np.stack([ends - share, ends], axis=1)


def _over_places(values: FloatArray, place: FloatArray, wanted: FloatArray) -> FloatArray:
    """Means over the wanted places of values that are known for others, (n_groups, n_times)."""
    begin, end = wanted[:, None, :].transpose(2, 0, 1)
    shared = np.clip(np.minimum(end, place[:, 1]) - np.maximum(begin, place[:, 0]), 0.0, None)
    total = shared.sum(axis=1, keepdims=True)
    return np.asarray(shared @ values / np.where(total > 0, total, 1.0), dtype=np.float64)


def shown_table(table: pd.DataFrame) -> pd.DataFrame:
    """A table of groups as texts: a column per quantity, numbers with their (corrected) intervals."""
    corrected = "corrected " * ("corrected" in table.columns.unique("statistic"))
    estimate, *ends = _parts(corrected)
    shown = {}
    for quantity in table.columns.unique("quantity"):
        own: Any = table[quantity]
        if own.ndim == 1:  # counts, or parameters
            shown[quantity] = [str(v) if own.dtype.kind == "i" else f"{v:.3f}" for v in own]
            continue
        if estimate in own:
            parts = own[[estimate, *ends]].itertuples(index=False)
            shown[quantity] = [interval_text(*part) for part in parts]
        if "model" in own:
            shown[f"model {quantity}"] = [_short(value) for value in own["model"]]
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
    """``"median 2 years"`` of each row; of all ``", survival 0.93 at 5 years"`` where one has none."""
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
    limits = "" if np.isnan([lower, upper]).all() else f" ({_short(lower)} to {_short(upper)})"
    return f"{_short(value)}{limits}"


def _short(value: float) -> str:
    if not np.isfinite(value):
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def groups_without_events(group: IntArray, data: SurvivalData) -> list[str]:
    """Name groups, (n,), without events in which the hazard of all rows would give 20 or more."""
    entry = data.entry if data.entry.any() else None
    sets = risk_sets(Observed(data.nominal_time, data.event, entry))
    steps = np.divide(sets.n_events, sets.at_risk, where=sets.at_risk > 0, out=np.zeros(len(sets.times)))
    hazard = np.append(0.0, np.cumsum(steps))
    to_end, to_entry = (hazard[steps_up_to(sets.times, at)] for at in (data.nominal_time, data.entry))
    expected = np.bincount(group, to_end - to_entry)
    events, rows = np.bincount(group, data.event), np.bincount(group)
    return [
        f"group {k} has no event in {rows[k]} rows, where the hazard of all rows would give "
        f"{expected[k]:.0f}: make sure that the columns that divide the rows are known at time zero"
        for k in np.flatnonzero((events == 0) & (expected >= _EXPECTED))
    ]


_LIMITS = (
    "It describes these rows: for others, such as of another place or time, it has to be validated anew.",
    "Nothing in it is causal: a gate on a treatment shows who survives longer, not what the treatment does.",
    "Curves take censoring to be independent of what happens later, given the columns.",
)


def model_card(
    tree: SurvivalTree,
    format: Literal["markdown", "html"] = "markdown",
    validation: pd.DataFrame | None = None,
) -> str:
    """Write the model card of a tree: description, training rows, performance and limitations.

    Args:
        tree: fitted soft or exact tree, for one event or competing causes.
        format: ``"markdown"``, or ``"html"``, a page that needs no network.
        validation: scores on held-out rows: one row per score, with intervals in columns.

    Raises:
        ConfigError: unknown format.
    """
    check_tree(tree, "_deployed")
    check_choice(format, "format", ("markdown", "html"))
    scores: list[Block] = []
    if kept := vars(tree._chosen).get("metrics_"):
        texts = [[name, number(value)] for name, value in kept.items()]
        scores.append(as_table(["score", "value"], texts, "As they were kept with the tree."))
    if validation is not None:
        texts = [[str(name), *map(number, row)] for name, row in validation.astype(float).T.items()]
        header = ["score", *map(str, validation.columns)]
        scores.append(as_table(header, texts, "On rows it was not trained on."))
    if not scores:
        scores.append("Not known: no scores of rows that it was not trained on; see sstorch.validate.")
    facts, limits, use = card_sections(tree)
    middle = [Section("Groups", [Code(tree.summary())]), Section("How good it is", scores)]
    subtitle = tree._deployed(medians=False).subtitle(PAGE_TEXTS)
    card = Document("Model card", subtitle, [facts, *middle, limits, use])
    return to_markdown(card) if format == "markdown" else to_html(card)


def card_sections(
    tree: SurvivalTree, more: Sequence[tuple[str, str]] = (), limits: Sequence[str] = ()
) -> list[Section]:
    """Facts of the tree and its training rows, limitations, and code that predicts by the saved tree."""
    facts, unit = tree._deployed(medians=False), f" {tree.time_unit_}" if tree.time_unit_ else ""
    columns = [
        f"{field.name} ({', '.join(field.categories)})" if field.categories else field.name
        for field in facts.fields
    ]
    predicts, method = (
        "survival at any time, median and restricted mean time, risk, group",
        "survival_function",
    )
    if causes := " and ".join(tree.causes_):
        predicts = f"cumulative incidences of {causes}, survival without any event, group"
        method = "cumulative_incidence"
    rows = [
        ("model", facts.kind),
        ("predicts", predicts),
        (f"{'recalibrated' if facts.recalibrated else 'trained'} on", facts.counts.text(PAGE_TEXTS)),
        ("columns", "; ".join(columns)),
        ("times", f"up to {tree.event_times_[-1]:g}{unit}, the last event; {facts.beyond}"),
        ("missing values", facts.missing),
        *more,
        ("made with", f"sstorch {__version__}"),
    ]
    known = list(_LIMITS)
    if hasattr(tree, "covariance_") and tree.covariance_.hazards:
        known.append("Coefficients are shrunk; their confidence intervals take the gates as given.")
    known += [WEIGHTED] if tree.outcome_type_.weighted else []
    if tree.time_varying_:
        known.append(
            "Covariates are time-varying: one row does not determine survival from time zero. Survival is "
            f"predicted for a subject at risk at a given time, {CONSTANT_COVARIATES}."
        )
    horizons = ", ".join(f"{time:g}" for time in round_horizons(tree.event_times_, tree.time_unit_))
    lines = [
        f'tree = sstorch.{type(tree).__name__}.load("MODEL")',
        'rows = pandas.read_csv("rows.csv")',
        f"tree.predict_{method}(rows, [{horizons}]{', after=0' if tree.time_varying_ else ''})",
    ]
    table = as_table(["", "this model"], rows)
    return [
        Section("Facts", [table]),
        Section("Limits", [[*known, *limits]]),
        Section("Use", [Code("\n".join(lines))]),
    ]
