"""The report of one run: rows, tree, groups, scores of it and of other models, calibration, a model card."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sstorch import metrics
from sstorch._types import BoolArray, IntArray
from sstorch.bench.run import AALEN_JOHANSEN, KAPLAN_MEIER, TREE, peer_table
from sstorch.data import SurvivalData
from sstorch.data.time_unit import duration, round_horizons
from sstorch.document import ABSENT, DIGITS, Block, Cell, Code, Document, Picture, Section, as_table, number
from sstorch.exceptions import DataError
from sstorch.groups.functions import facts_table, limits_of, use_of
from sstorch.groups.table import interval_text, shown_table, table_of
from sstorch.inference.covariance import no_covariance
from sstorch.metrics import KaplanMeierBand
from sstorch.metrics.groups import median_follow_up
from sstorch.metrics.registry import METRICS
from sstorch.plots import plot_calibration, plot_effects, plot_groups, plot_tree
from sstorch.plots.figures import detached
from sstorch.reading import export_text
from sstorch.soft.estimator import SoftEstimator

# Columns of the table of rows, and categories of a column, that are written out; the others are counted.
_MOST_COLUMNS, _MOST_CATEGORIES = 40, 6
# Rows from which a smooth calibration curve is drawn.
_LEAST_ROWS = 50


@dataclass(frozen=True)
class Run:
    """Inputs of the report of a run."""

    name: str  # of the data
    data: SurvivalData  # all rows of positive weight
    model: SoftEstimator  # the tree trained on all of them
    held_out: pd.DataFrame  # predictions for held-out rows, :meth:`~sstorch.bench.CrossValidation.held_out`
    # scores of the trees and of reference models, :func:`~sstorch.bench.run.score_run`; None if the run
    # has none
    peers: pd.DataFrame | None
    config: Mapping[str, Any]  # its settings, by group
    status: Mapping[str, Any]  # facts of ``status.json``

    @property
    def depth(self) -> int:
        """Gates on every path of the tree."""
        return self.model.module_.topology.depth

    @cached_property
    def group(self) -> IntArray:
        """Group of each row, (n,)."""
        return self.model.apply(self.data.frame)

    def unit_of(self, time: float) -> str:
        """A time with its unit."""
        return duration(time, self.model.time_unit_)


def run_report(run: Run) -> Document:
    """The whole report; the same run gives the same report."""
    data, families = run.data, [module.family.name for module in run.model.tree_.hazards.values()]
    kind = f"depth {run.depth}, {' and '.join(families if len(set(families)) > 1 else families[:1])} leaves"
    share = 100 * data.n_events / len(data)
    counts = f"{len(data)} rows, {data.n_events} events ({share:.0f} %), {len(data.feature_names)} columns"
    sections = [
        Section("In short", [run.model._sentences(), [_verdict_of_groups(run)]]),
        _rows(run),
        _tree(run),
        _groups(run),
        _effects(run),
        *([] if run.peers is None else [_scores(run, run.peers)]),
        Section("Calibration on held-out rows", calibration(run)),
        _card(run),
    ]
    return Document(f"Survival tree of {run.name}", f"{counts}; {kind}", sections)


def _verdict_of_groups(run: Run) -> str:
    """Whether the groups differ on held-out rows, in a sentence."""
    found = vars(run.model).get("group_validation_")
    if not run.depth:
        return "The tree is one leaf, a regression: it makes no groups."
    if found is None:
        return (
            "Whether the groups differ on held-out rows is not tested by a log-rank test: "
            "a fold is too small."
        )
    if run.data.causes is not None:
        return ". ".join(str(found).splitlines()) + "."
    where, event = f"On held-out rows of {found.n_folds} folds", found.first
    if event.differ:
        return f"{where} the groups differ: {event.evidence}."
    return f"{where}: {event.evidence}. {event.doubt}. Do not rely on the groups."


# ---------------------------------------------------------------------- the rows


def _rows(run: Run) -> Section:
    data, what = run.data, "survival"
    facts = [
        ("rows", str(len(data))),
        ("events", f"{data.n_events} ({100 * data.n_events / len(data):.1f} %)"),
    ]
    if data.causes is not None:
        what, counts = "time to any event", np.bincount(data.cause, minlength=len(data.cause_names) + 1)[1:]
        facts += [(f"events of {k}", str(n)) for k, n in zip(data.cause_names, counts, strict=True)]
    followed = median_follow_up(data.weighted_y.any_cause()).value
    middle, *limits = (float(part) for part in _kaplan_meier(data).quantile())
    unit = f" {run.model.time_unit_}" if run.model.time_unit_ else ""
    median = f"{interval_text(middle, *limits)}{unit}" if math.isfinite(middle) else "not reached"
    known = run.unit_of(followed) if math.isfinite(followed) else "not reached"
    facts += [
        ("times", f"{data.time.min():.4g} to {run.unit_of(float(data.time.max()))}"),
        ("median follow-up (reverse Kaplan-Meier)", known),
        (f"median {what} (Kaplan-Meier, 95 %)", median),
    ]
    if late := int(np.count_nonzero(data.entry)):
        facts.append(("left-truncated rows", str(late)))
    if data.n_moved:
        facts.append(("times of zero, moved", str(data.n_moved)))
    text = "Numbers are medians with quartiles, categories counts with shares; both of known values."
    hidden = len(data.feature_names) - _MOST_COLUMNS
    text += f" {hidden} more columns are not shown." if hidden > 0 else ""
    return Section("The rows", [as_table(["", "all rows"], facts), _characteristics(run), text])


def _characteristics(run: Run) -> pd.DataFrame:
    """The columns in all rows and by group; of start-stop data in the first row of each subject."""
    data, frame, group, whose = run.data, run.data.frame, run.group, "All rows"
    if data.time_varying and data.subject is not None:
        first = np.sort(np.unique(data.subject, return_index=True)[1])
        frame, group, whose = frame.iloc[first].reset_index(drop=True), group[first], "First rows of subjects"
    caption = f"{whose}, and those of each group of the model, from the longest survival to the shortest."
    order = np.unique(group).tolist()
    parts, header = [np.ones(len(frame), dtype=bool)], ["", f"all ({len(frame)})"]
    if len(order) > 1:
        parts += [group == one for one in order]
        header += [f"group {one} ({(group == one).sum()})" for one in order]
    columns = (frame[name] for name in frame.columns[:_MOST_COLUMNS])
    rows = [line for column in columns for line in _lines(column, parts)]
    return as_table(header, rows, caption if len(order) > 1 else f"{whose}.")


def _lines(column: pd.Series, parts: Sequence[BoolArray]) -> list[list[object]]:
    """Label and texts of each line of a column, a text for each part of the rows."""

    def shares(which: pd.Series) -> list[str]:
        known = [which[part][column[part].notna()] for part in parts]
        return [f"{each.sum()} ({100 * each.mean():.0f} %)" if len(each) else ABSENT for each in known]

    name, missing = str(column.name), int(column.isna().sum())
    if isinstance(column.dtype, pd.CategoricalDtype):
        words = [word for word, count in column.value_counts(sort=False).items() if count]
        end = len(words) if len(words) == _MOST_CATEGORIES + 1 else _MOST_CATEGORIES
        lines: list[list[object]] = [[f"{name} = {word}", *shares(column == word)] for word in words[:end]]
        if others := words[end:]:
            lines.append([f"{name}: {len(others)} others", *shares(column.isin(others))])
    elif column.nunique() == 2:
        lines = [[f"{name} = {column.max():g}", *shares(column == column.max())]]
    else:
        quartiles = [column[part].quantile([0.5, 0.25, 0.75]) for part in parts]
        lines = [[name, *(ABSENT if each.isna().all() else interval_text(*each) for each in quartiles)]]
    if missing and lines:
        lines[0][0] = Cell(str(lines[0][0]), f"{missing} missing")
    return lines


def _kaplan_meier(data: SurvivalData) -> KaplanMeierBand:
    """Kaplan-Meier of some rows, with their weights and entry times, to an event of any cause."""
    return KaplanMeierBand.fit(data.weighted_y.any_cause())


# ---------------------------------------------------------------------- the tree and its groups


def _tree(run: Run) -> Section:
    """The tree as a figure and as text."""
    model, data, rules = run.model, run.data, export_text(run.model)
    gates = len(np.unique(run.group)) > 1
    caption = "At each split, yes is the side on which the rule is true."
    figure = detached(plot_tree(model, data.frame, data.weighted_y))
    alternative = "The tree: " + rules.replace("\n", " ")
    whole = Code(model.summary())
    if not gates:
        picture = Picture("tree", figure, "One leaf for all rows: a regression.", alternative)
        return Section("The model", [picture, whole])
    picture = Picture("tree", figure, caption, alternative)
    return Section("The tree", [picture, Code(rules), Section("In full", [whole], folded=True)])


def _groups(run: Run) -> Section:
    """The groups as a figure and as a table."""
    model, data = run.model, run.data
    competing = data.causes is not None
    axes = plot_groups(model, data.frame, data.y, sample_weight=data.sample_weight)
    shown = shown_table(table_of(model, data, round_horizons(model.event_times_, model.time_unit_)))
    names = shown.index.map(lambda key: ", ".join(map(str, key if isinstance(key, tuple) else (key,))))
    rows = [[f"group {name}", *texts] for name, texts in zip(names, shown.to_numpy(), strict=True)]
    unit, n_groups = f" ({model.time_unit_})" if model.time_unit_ else "", shown.index.unique("group").size
    if competing:
        text = (
            "Predicted cumulative incidences of the causes, stacked, mean over the rows of each group; lines "
            "are those of Aalen and Johansen."
        )
        caption = "F(t) is the cumulative incidence, Aalen-Johansen"
    else:
        text = (
            "Kaplan-Meier of the rows of each group with pointwise 95 % confidence limits, the mean of the "
            "predicted curves over it, and how many rows are still observed."
        )
        caption = f"Median{unit} and survival S(t), Kaplan-Meier"
    caption += ", with 95 % confidence limits; below “model” the mean prediction over the rows."
    text += " The rules were chosen on these rows: differences between groups are too large."
    alternative = f"{'Incidences' if competing else 'Survival curves'} of {n_groups} groups"
    title = "The groups" if n_groups > 1 else "Incidence" if competing else "Survival"
    picture = Picture("groups", detached(axes), text, alternative)
    return Section(title, [picture, as_table(["", *shown], rows, caption)])


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
    compared = table.drop(index=[KAPLAN_MEIER, AALEN_JOHANSEN], errors="ignore").round(DIGITS)
    columns, legend, header = [], list[str](), ["model"]
    for name, column in table.items():
        of, _, cause = str(name).partition(":")
        metric = METRICS[of]
        arrow = {True: " \N{UPWARDS ARROW}", False: " \N{DOWNWARDS ARROW}", None: ""}[metric.higher_is_better]
        header.append(f"{metric.short}{f' of {cause}' if cause else ''}{arrow}")
        legend.append(f"{metric.short}: {metric.title}, {metric.direction}.")
        best = compared[name].max() if metric.higher_is_better else compared[name].min()
        marks = column.round(DIGITS).eq(best) & column.index.isin(compared.index)
        columns.append([Cell(number(v), best=bool(m)) for v, m in zip(column, marks, strict=True)])
    shown = {
        TREE: "this model",
        "regression": "regression without groups",
        "prognostic_tree": "prognostic tree",
    }
    labels = [shown.get(str(model), str(model)) for model in table.index]
    caption = f"Scores of held-out rows, mean of {n_folds} folds; the best in bold."
    if "regression" in table.index:
        legend.append("The regression without groups is that of the leaves for all rows.")
    legend.append(f"{ABSENT}: step functions have no likelihood.")
    if run.data.entry.any():
        legend.append(
            "Left-truncated rows are compared where both were at risk; Brier scores take every row as "
            "observed from time zero and are left out."
        )
    frame = as_table(header, list(zip(labels, *columns, strict=True)), caption)
    return Section("Scores of the tree and reference models", [frame, list(dict.fromkeys(legend))])


def calibration(run: Run) -> list[Block]:
    """Observed against predicted survival of held-out rows, at each time that they were predicted for.

    With competing causes mean predictions and the estimates of Aalen and Johansen.
    """
    data, weight = run.data, run.data.sample_weight
    said, undefined, panels = list[str](), list[str](), list[tuple[str, Any, Any]]()
    if data.entry.any() and data.causes is None:
        return ["Calibration curves do not support entry times (left truncation)."]
    if len(data) < _LEAST_ROWS and data.causes is None:
        return [f"{len(data)} rows are too few for calibration curves; at least {_LEAST_ROWS}."]
    for name in (str(name) for name in run.held_out if str(name).startswith(("S(", "F("))):
        curve, _, cause = name.partition(":")
        time, predicted = float(curve[2:-1]), run.held_out[name].to_numpy(np.float64)
        when, mean = run.unit_of(time), number(float(np.average(predicted, weights=weight)))
        if data.causes is not None:
            incidences = metrics.aalen_johansen(data.weighted_y, np.array([time]))
            estimate = number(float(incidences[data.causes.index(cause), 0]))
            said.append(f"{when}: incidence of {cause}, Aalen-Johansen {estimate}, mean predicted {mean}.")
            continue
        try:
            rows = metrics.HorizonRows.of(data.weighted_y, predicted, time)
            panels.append((when, metrics.calibration_curve(rows), predicted))
            index = number(metrics.calibration_errors(rows).ici)
        except DataError as error:
            undefined.append(f"{when}: not defined, {error}")
            continue
        observed = number(float(_kaplan_meier(data).at(np.array([time])).value[0]))
        said.append(
            f"{when}: mean predicted {mean}, Kaplan-Meier {observed}, mean distance of the curve from the "
            f"diagonal {index}."
        )
    if not panels:
        return [said or undefined]
    figure = Figure(figsize=(3.3 * len(panels), 3.5), layout="constrained")
    for ax, (when, curve, predicted) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        plot_calibration(curve, predicted, ax, horizon=when)
        ax.legend(frameon=False, loc="upper left", fontsize=8)
    caption = (
        "Observed survival, smoothed, against what the tree of the other folds predicts, with a pointwise "
        "band of 95 %; on the diagonal both agree. Ticks are rows."
    )
    picture = Picture("calibration", figure, caption, "Calibration curves: " + " ".join(said))
    return [picture, [*said, *undefined]]


def _card(run: Run) -> Section:
    model, data = run.model, run.data
    more = [
        ("made by", str(run.config["model"]["_target_"])),
        ("validated by", f"{int(run.held_out['fold'].max()) + 1} folds, seed {run.config['cv']['seed']}"),
        ("checksum of the data", str(run.status.get("data", ABSENT))[:16]),
    ]
    limits = limits_of(model)
    if share := data.frame.isna().to_numpy().mean():
        limits.append(f"{100 * share:.1f} % of the cells are missing and were filled in.")
    limited, used = Section("Limits", [limits]), Section("Use", [use_of(model)])
    return Section("Model card", [facts_table(model, more), limited, used])
