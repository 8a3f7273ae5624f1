"""The report of one run: rows, tree, groups, scores of it and of other models, calibration, a model card."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sstorch import metrics
from sstorch._types import IntArray
from sstorch.bench.report.results import arrow_of, measure_of
from sstorch.bench.report.study import best_of
from sstorch.bench.run import AALEN_JOHANSEN, KAPLAN_MEIER, TREE, peer_table
from sstorch.data import SurvivalData
from sstorch.data.time_unit import duration, round_horizons
from sstorch.document import ABSENT, Block, Cell, Code, Document, Picture, Section, as_table, number
from sstorch.exceptions import DataError
from sstorch.groups.table import card_sections, interval_text, shown_table, table_of
from sstorch.inference.covariance import no_covariance
from sstorch.metrics import KaplanMeier
from sstorch.metrics.groups import median_follow_up
from sstorch.plots import plot_calibration, plot_effects, plot_groups, plot_tree
from sstorch.plots.figures import detached
from sstorch.reading import export_text
from sstorch.soft.estimator import SoftEstimator

# Columns of the table of rows, and categories of a column, that are shown.
_MOST_COLUMNS, _MOST_CATEGORIES = 40, 8


@dataclass(frozen=True)
class Run:
    """Inputs of the report of a run."""

    name: str  # of the data
    data: SurvivalData  # all rows of positive weight
    model: SoftEstimator  # the tree trained on all of them
    held_out: pd.DataFrame  # predictions for held-out rows, of `held_out.csv`
    peers: pd.DataFrame | None  # scores, :func:`~sstorch.bench.run.score_run`, if the run has some
    config: Mapping[str, Any]  # its settings, by group
    status: Mapping[str, Any]  # facts of ``status.json``

    @cached_property
    def group(self) -> IntArray:
        """Group of each row, (n,)."""
        return self.model.apply(self.data.frame)

    def unit_of(self, time: float) -> str:
        """A time with its unit; "not reached" if it is not finite."""
        return duration(time, self.model.time_unit_) if math.isfinite(time) else "not reached"


def run_report(run: Run) -> Document:
    """The whole report; the same run gives the same report."""
    data, depth = run.data, run.model.module_.topology.depth
    families = dict.fromkeys(module.family.name for module in run.model.tree_.hazards.values())
    share = 100 * data.n_events / len(data)
    counts = f"{len(data)} rows, {data.n_events} events ({share:.0f} %), {len(data.feature_names)} columns"
    sections = [
        Section("In short", [run.model._sentences(), [_verdict_of_groups(run, depth)]]),
        _rows(run),
        _tree(run),
        _groups(run),
        _effects(run),
        *([] if run.peers is None else [_scores(run, run.peers)]),
        Section("Calibration on held-out rows", calibration(run)),
        _card(run),
    ]
    subtitle = f"{counts}; depth {depth}, {' and '.join(families)} leaves"
    return Document(f"Survival tree of {run.name}", subtitle, sections)


def _verdict_of_groups(run: Run, depth: int) -> str:
    """Whether the groups differ on held-out rows, in a sentence."""
    found = vars(run.model).get("group_validation_")
    if not depth:
        return "The tree is one leaf, a regression: it makes no groups."
    if found is None:
        return "Whether the groups differ on held-out rows is not tested: a fold is too small."
    if run.data.causes is not None:
        return ". ".join(str(found).splitlines()) + "."
    where, event = f"On held-out rows of {found.n_folds} folds", found.first
    if event.differ:
        return f"{where} the groups differ: {event.evidence}."
    return f"{where}: {event.evidence}. {event.doubt}. Do not rely on the groups."


# ---------------------------------------------------------------------- the rows


def _rows(run: Run) -> Section:
    data, what, of_causes = run.data, "survival", list[tuple[str, str]]()
    if data.causes is not None:
        what, counts = "time to any event", np.bincount(data.cause, minlength=len(data.cause_names) + 1)[1:]
        of_causes = [(f"events of {k}", str(n)) for k, n in zip(data.cause_names, counts, strict=True)]
    followed = median_follow_up(data.weighted_y.any_cause()).value
    middle, *limits = (float(part) for part in KaplanMeier.fit(data.weighted_y.any_cause()).quantile())
    unit = f" {run.model.time_unit_}" if run.model.time_unit_ else ""
    median = f"{interval_text(middle, *limits)}{unit}" if math.isfinite(middle) else "not reached"
    late = int(np.count_nonzero(data.entry))
    unseen = len(data) - len(data.followed())
    facts = [
        ("rows", str(len(data))),
        ("events", f"{data.n_events} ({100 * data.n_events / len(data):.1f} %)"),
        *of_causes,
        ("times", f"{data.time.min():.4g} to {run.unit_of(float(data.time.max()))}"),
        ("median follow-up (reverse Kaplan-Meier)", run.unit_of(followed)),
        (f"median {what} (Kaplan-Meier, 95 %)", median),
        *([("left-truncated rows", str(late))] if late else []),
        *([("rows censored at time zero, not used by the fit", str(unseen))] if unseen else []),
    ]
    text = (
        "Numbers are medians with quartiles, categories counts with shares; both of known values, of the "
        f"first {_MOST_COLUMNS} columns and {_MOST_CATEGORIES} categories."
    )
    return Section("The rows", [as_table(["", "all rows"], facts), _characteristics(run), text])


def _characteristics(run: Run) -> pd.DataFrame:
    """The columns in all rows and by group; of start-stop data in the first row of each subject."""
    data, whose, first = run.data, "All rows", np.arange(len(run.data))
    if data.time_varying and data.subject is not None:
        whose, first = "First rows of subjects", np.sort(np.unique(data.subject, return_index=True)[1])
    frame, group = data.frame.iloc[first].reset_index(drop=True), run.group[first]
    parts = {f"all ({len(frame)})": np.ones(len(frame), dtype=bool)}
    if len(order := np.unique(group)) > 1:
        parts |= {f"group {one} ({(group == one).sum()})": group == one for one in order}
    rows = list[list[object]]()
    for name, column in frame.iloc[:, :_MOST_COLUMNS].items():
        label = Cell(str(name), f"{column.isna().sum()} missing" if column.isna().any() else "")
        own = [column[part].dropna() for part in parts.values()]
        coded = isinstance(column.dtype, pd.CategoricalDtype)
        if not coded and column.nunique() != 2:
            rows.append([label, *(interval_text(*values.quantile([0.5, 0.25, 0.75])) for values in own)])
            continue
        words = [*column.dropna().cat.remove_unused_categories().cat.categories] if coded else [column.max()]
        for word in words[:_MOST_CATEGORIES]:
            equal = [values == word for values in own]
            texts = [f"{one.sum()} ({100 * one.mean():.0f} %)" if len(one) else ABSENT for one in equal]
            rows.append([Cell(f"{name} = {word if coded else f'{word:g}'}", label.note), *texts])
    return as_table(["", *parts], rows, f"{whose}, and those of each group." if len(order) > 1 else whose)


# ---------------------------------------------------------------------- the tree and its groups


def _tree(run: Run) -> Section:
    """The tree as a figure and as text."""
    model, rules = run.model, export_text(run.model)
    figure = detached(plot_tree(model, run.data.frame, run.data.weighted_y))
    alternative, whole = "The tree: " + rules.replace("\n", " "), Code(model.summary())
    if len(np.unique(run.group)) == 1:
        picture = Picture("tree", figure, "One leaf for all rows: a regression.", alternative)
        return Section("The model", [picture, whole])
    caption = "At each split, yes is the side on which the rule is true."
    picture = Picture("tree", figure, caption, alternative)
    return Section("The tree", [picture, Code(rules), Section("In full", [whole], folded=True)])


def _groups(run: Run) -> Section:
    """The groups as a figure and as a table."""
    model, data = run.model, run.data
    axes = plot_groups(model, data.frame, data.y, sample_weight=data.sample_weight)
    shown = shown_table(table_of(model, data, round_horizons(model.event_times_, model.time_unit_)))
    names = shown.index.map(lambda key: ", ".join(map(str, key if isinstance(key, tuple) else (key,))))
    rows = [[f"group {name}", *texts] for name, texts in zip(names, shown.to_numpy(), strict=True)]
    unit, n_groups = f" ({model.time_unit_})" if model.time_unit_ else "", shown.index.unique("group").size
    what, text = "Survival", "Kaplan-Meier of the rows of each group with pointwise 95 % confidence limits"
    caption = f"Median{unit} and survival S(t), Kaplan-Meier"
    if data.causes is not None:
        what, text = (
            "Incidence",
            "Cumulative incidences of the causes, stacked, with those of Aalen and Johansen",
        )
        caption = "F(t) is the cumulative incidence, Aalen-Johansen"
    caption += ", with 95 % confidence limits; below “model” the mean prediction over the rows."
    text += ". The rules were chosen on these rows: differences between groups are too large."
    picture = Picture("groups", detached(axes), text, f"{what} curves of {n_groups} groups")
    blocks: list[Block] = [picture, as_table(["", *shown], rows, caption)]
    return Section("The groups" if n_groups > 1 else what, blocks)


def _effects(run: Run) -> Section:
    """A figure of the effects of the columns on each hazard, with limits where the model has them."""
    model, frame, why = run.model, run.data.frame, no_covariance(run.model)
    if model._tree.prediction != "hbp":
        why = "intervals need predictions by one group: use prediction='hbp'"
    limits = f"No confidence limits: {why}." if why else "Bands are pointwise 95 % confidence limits."
    text = "Each column against its median or most frequent category, the others unchanged. Ticks are rows."
    blocks: list[Block] = []
    for number_, cause in enumerate(model.causes_ or ("",), 1):
        axes = plot_effects(model, frame, intervals=not why, level=0.95, cause=number_)
        title = f"Effects of the columns on the hazard{f' of {cause}' * bool(cause)}"
        name = f"effects_{number_}" if cause else "effects"
        blocks.append(Picture(name, detached(axes), f"{text} {limits}", title))
    return Section("The effects", blocks)


# ---------------------------------------------------------------------- scores and calibration


def _scores(run: Run, peers: pd.DataFrame) -> Section:
    table = peer_table(peers)
    n_folds = int(table.pop("folds").max())
    shown = {TREE: "this model", "regression": "regression without groups"}
    columns: dict[str, list[Any]] = {}
    columns["model"] = [shown.get(str(model), str(model).replace("_", " ")) for model in table.index]
    measures = [measure_of(str(name)) for name in table]
    for measure in measures:
        values = table[measure.name].drop(index=[KAPLAN_MEIER, AALEN_JOHANSEN], errors="ignore")
        best = best_of(values.to_frame(), measure.higher_is_better)[measure.name].reindex(table.index)
        cells = zip(table[measure.name], best.eq(True), strict=True)
        columns[f"{measure.short}{arrow_of(measure)}"] = [Cell(number(v), best=bold) for v, bold in cells]
    caption = f"Scores of held-out rows, mean of {n_folds} folds; the best in bold."
    legend = [f"{measure.short}: {measure.title}, {measure.direction}." for measure in measures]
    if run.data.entry.any():
        legend.append("Left-truncated rows are compared where both were at risk, and have no Brier scores.")
    frame = as_table(list(columns), list(zip(*columns.values(), strict=True)), caption)
    return Section("Scores of the tree and reference models", [frame, legend])


def calibration(run: Run) -> list[Block]:
    """Observed against predicted survival of held-out rows, at each time that they were predicted for."""
    # With competing causes mean predictions and the estimates of Aalen and Johansen.
    data, y = run.data, run.data.weighted_y
    if data.causes is None and data.entry.any():
        return ["Calibration curves do not support entry times (left truncation)."]
    panels, rows, undefined = list[tuple[str, Any, Any]](), list[list[str]](), ""
    for name in (str(name) for name in run.held_out if str(name).startswith(("S(", "F("))):
        curve, _, cause = name.partition(":")
        time, predicted, distance = float(curve[2:-1]), run.held_out[name].to_numpy(np.float64), np.nan
        when, mean = run.unit_of(time), float(np.average(predicted, weights=data.sample_weight))
        if data.causes is not None:
            when, place = f"{when}, {cause}", data.causes.index(cause)
            observed = float(metrics.aalen_johansen(y, np.array([time]))[place, 0])
        else:
            observed = float(KaplanMeier.fit(y).at(time))
            try:
                at_time = metrics.HorizonRows.of(y, predicted, time)
                panels.append((when, metrics.calibration_curve(at_time), predicted))
                distance = float(metrics.calibration_errors(at_time).ici)
            except DataError as error:  # such as too few events
                undefined += f" {when}: no curve, {error}."
        rows.append([when, *map(number, (mean, observed, distance))])
    caption = (
        "Mean prediction by the models of the other folds, estimate of Kaplan-Meier (of Aalen and Johansen), "
        "and mean distance of the calibration curve from the diagonal."
    )
    table = as_table(["time", "mean predicted", "observed", "mean distance"], rows, caption + undefined)
    if not panels:
        return [table]
    figure = Figure(figsize=(3.3 * len(panels), 3.5), layout="constrained")
    places = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (when, curve_, predicted) in zip(places, panels, strict=True):
        plot_calibration(curve_, predicted, ax, horizon=when)
        ax.legend(frameon=False, loc="upper left", fontsize=8)
    text = "Observed against predicted survival, a pointwise band of 95 %, and a histogram of predictions."
    return [Picture("calibration", figure, text, "Calibration curves, summarised in the table"), table]


def _card(run: Run) -> Section:
    more = [
        ("made by", str(run.config["model"]["_target_"])),
        ("validated by", f"{int(run.held_out['fold'].max()) + 1} folds, seed {run.config['cv']['seed']}"),
        ("checksum of the data", str(run.status.get("data", ABSENT))[:16]),
    ]
    share = run.data.frame.isna().to_numpy().mean()
    limits = [f"{100 * share:.1f} % of the cells are missing and were filled in."] if share else []
    facts, *others = card_sections(run.model, more, limits)
    return Section("Model card", [*facts.blocks, *others])
