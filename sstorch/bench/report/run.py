"""The report of one run: rows, tree, groups, scores of it and of other models, calibration, a model card."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure

from sstorch import metrics
from sstorch._types import IntArray
from sstorch.bench.peers import AALEN_JOHANSEN, KAPLAN_MEIER, TREE, peer_table
from sstorch.bench.report.characteristics import columns_table
from sstorch.bench.scores import depth_of
from sstorch.data import SurvivalData
from sstorch.data.time_unit import duration, round_horizons
from sstorch.document import ABSENT, DIGITS, Block, Cell, Code, Document, Picture, Section, as_table, number
from sstorch.exceptions import DataError
from sstorch.groups.functions import facts_table, limits_of, use_of
from sstorch.groups.table import interval_text, table_of
from sstorch.inference.covariance import no_covariance
from sstorch.metrics import KaplanMeierBand
from sstorch.metrics.censoring import followed_to
from sstorch.metrics.groups import median_follow_up
from sstorch.metrics.registry import METRICS
from sstorch.plots import (
    plot_calibration,
    plot_effects,
    plot_groups,
    plot_incidence,
    plot_soft_tree,
)
from sstorch.plots.figures import detached
from sstorch.reading import export_text
from sstorch.soft.estimator import SoftEstimator

# Columns of the table of rows that are written out; the others are counted.
_MOST_COLUMNS = 40
_NOTE_ON_COLUMNS = (
    "Numbers are medians with quartiles, categories counts with shares of known values; “missing” is of all "
    "rows. SMD: absolute standardised difference, the largest between any two groups."
)
# Rows from which a smooth calibration curve is drawn.
_LEAST_ROWS = 50


@dataclass(frozen=True)
class Run:
    """Inputs of the report of a run."""

    name: str  # of the data
    data: SurvivalData  # all rows of positive weight
    model: SoftEstimator  # the tree trained on all of them
    held_out: pd.DataFrame  # predictions for held-out rows, :meth:`~sstorch.bench.CrossValidation.held_out`
    # scores of the trees and of reference models, :func:`~sstorch.bench.peers.score_run`; None if the run
    # has none
    peers: pd.DataFrame | None
    config: Mapping[str, Any]  # its settings, by group
    status: Mapping[str, Any]  # facts of ``status.json``

    @property
    def folds(self) -> IntArray:
        """Fold of each row, (n,)."""
        return self.held_out["fold"].to_numpy(np.int64)

    @property
    def in_unit(self) -> str:
        """The unit of time with a blank before it, if it is known."""
        return f" {self.model.time_unit_}" if self.model.time_unit_ else ""

    def unit_of(self, time: float) -> str:
        """A time with its unit."""
        return duration(time, self.model.time_unit_)


def _kind_text(model: SoftEstimator) -> str:
    """Depth and leaves of a tree, in words; of competing causes the leaves of each."""
    families = [module.family.name for module in model.tree_.hazards.values()]
    named = families[0] if len(set(families)) == 1 else " and ".join(families)
    return f"depth {depth_of(model)}, {named} leaves"


def run_report(run: Run) -> Document:
    """The whole report; the same run gives the same report."""
    data, model = run.data, run.model
    share = 100 * data.n_events / len(data)
    subtitle = (
        f"{len(data)} rows, {data.n_events} events ({share:.0f} %), {len(data.feature_names)} columns; "
        f"{_kind_text(model)}"
    )
    sections = [
        _summary(run),
        _rows(run),
        _tree_section(run),
        _groups_section(run),
        _effects(run),
        _scores(run),
        calibration_section(run),
        _card(run),
    ]
    parts = [part for part in sections if part]
    return Document(f"Survival tree of {run.name}", subtitle, parts)


# ---------------------------------------------------------------------- in short


def _summary(run: Run) -> Section:
    """Summary in a few sentences."""
    items = [_verdict_of_groups(run)]
    groups = run.model._sentences()
    return Section("In short", [groups, items])


def _verdict_of_groups(run: Run) -> str:
    """Whether the groups differ on held-out rows, in a sentence."""
    found = vars(run.model).get("group_validation_")
    if not depth_of(run.model):
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
    data, blocks = run.data, list[Block]()
    survival, what = median_text(data, run.in_unit), "survival"
    facts = [
        ("rows", str(len(data))),
        ("events", f"{data.n_events} ({100 * data.n_events / len(data):.1f} %)"),
    ]
    if data.causes is not None:
        what, counts = "time to any event", np.bincount(data.cause, minlength=len(data.cause_names) + 1)[1:]
        facts += [
            (f"events of {name}", str(count)) for name, count in zip(data.cause_names, counts, strict=True)
        ]
    followed = median_follow_up(data.weighted_y.any_cause()).value
    facts += [
        ("times", f"{data.time.min():.4g} to {run.unit_of(float(data.time.max()))}"),
        (
            "median follow-up (reverse Kaplan-Meier)",
            run.unit_of(followed) if math.isfinite(followed) else "not reached",
        ),
        (f"median {what} (Kaplan-Meier, 95 %)", survival),
    ]
    if late := int(np.count_nonzero(data.entry)):
        facts.append(("left-truncated rows", str(late)))
    if data.n_moved:
        facts.append(("times of zero, moved", str(data.n_moved)))
    rows = facts
    blocks.append(as_table(["", "all rows"], rows))
    blocks.append(_characteristics(run))
    hidden = len(data.feature_names) - _MOST_COLUMNS
    text = _NOTE_ON_COLUMNS
    if hidden > 0:
        text += f" {hidden} more columns are not shown."
    return Section("The rows", [*blocks, text])


def _characteristics(run: Run) -> pd.DataFrame:
    """The columns in all rows and by group; of start-stop data in the first row of each subject."""
    data, frame, group = run.data, run.data.frame, run.model.apply(run.data.frame)
    whose = "All rows"
    if data.time_varying and data.subject is not None:
        first = np.sort(np.unique(data.subject, return_index=True)[1])
        frame, group, whose = frame.iloc[first].reset_index(drop=True), group[first], "First rows of subjects"
    caption = f"{whose}, and those of each group of the model, from the longest survival to the shortest."
    several = len(np.unique(group)) > 1
    return columns_table(
        frame, group, list(frame.columns[:_MOST_COLUMNS]), caption if several else f"{whose}."
    )


def _kaplan_meier(data: SurvivalData) -> KaplanMeierBand:
    """Kaplan-Meier of some rows, with their weights and entry times, to an event of any cause."""
    return KaplanMeierBand.fit(data.weighted_y.any_cause())


def median_text(data: SurvivalData, in_unit: str = "") -> str:
    """Median by Kaplan-Meier with 95 % confidence limits; with the unit, if given."""
    middle, *limits = (float(part) for part in _kaplan_meier(data).quantile())
    return f"{interval_text(middle, *limits)}{in_unit}" if math.isfinite(middle) else "not reached"


# ---------------------------------------------------------------------- the tree and its groups


def _tree_section(run: Run) -> Section:
    """The tree as a figure and as text."""
    model, data = run.model, run.data
    gates = len(np.unique(model.apply(data.frame))) > 1
    picture = Picture(
        "tree",
        detached(plot_soft_tree(model, data.frame, data.weighted_y)),
        "At each split, yes is the side on which the rule is true."
        if gates
        else "One leaf for all rows: a regression.",
        "The tree: " + export_text(model).replace("\n", " "),
    )
    whole = Code(model.summary())
    if not gates:
        return Section("The model", [picture, whole])
    return Section("The tree", [picture, Code(export_text(model)), Section("In full", [whole], folded=True)])


# By what the outcome is observed: name of the estimate, in small print, and what the figure shows.
_SHOWN = "The rules were chosen on these rows: differences between groups are too large."
_BY_OUTCOME = {
    "competing": (
        "AJ",
        "Aalen-Johansen",
        "Predicted cumulative incidences of the causes, stacked, mean over the rows of each group; lines are "
        "those of Aalen and Johansen.",
    ),
    "event": (
        "KM",
        "Kaplan-Meier",
        "Kaplan-Meier of the rows of each group with pointwise 95 % confidence limits, the mean of the "
        "predicted curves over it, and how many rows are still observed.",
    ),
}


def _groups_section(run: Run) -> Section:
    """The groups as a figure and as a table."""
    model, data = run.model, run.data
    if data.causes is not None:
        kind, title = "competing", "Incidence"
        axes = plot_incidence(model, data.frame, data.y, sample_weight=data.sample_weight)
    else:
        kind, title = "event", "Survival"
        axes = plot_groups(model, data.frame, data.y, sample_weight=data.sample_weight)
    mark, estimate, text = _BY_OUTCOME[kind]
    times = round_horizons(model.event_times_, model.time_unit_)
    table = table_of(model, data, times)
    names = list(dict.fromkeys(str(name) for name in table.columns.get_level_values(0)))
    rows = [
        [_group_label(group), *(_group_cell(row[name], mark) for name in names)]
        for group, row in table.iterrows()
    ]
    in_unit = f",{run.in_unit}" if run.in_unit else ""
    header = ["", *(f"median{in_unit}" if name == "median" else name for name in names)]
    curve = "F(t) is predicted cumulative incidence" if kind == "competing" else "S(t) is predicted survival"
    caption = f"{curve}, mean over the rows, with {estimate} in small print."
    if kind != "competing":
        caption = f"Median by {estimate} with 95 % confidence limits; {caption}"
    n_groups = table.index.unique("group").size
    alternative = f"{'Incidences' if kind == 'competing' else 'Survival curves'} of {n_groups} groups"
    picture = Picture("groups", detached(axes), f"{text} {_SHOWN}", alternative)
    return Section("The groups" if len(rows) > 1 else title, [picture, as_table(header, rows, caption)])


def _group_label(group: object) -> str:
    """``"group 1"``, with competing causes ``"group 1, relapse"``."""
    return f"group {group[0]}, {group[1]}" if isinstance(group, tuple) else f"group {group}"


def _group_cell(values: pd.Series, mark: str) -> Cell:
    """A quantity of a group: a count, a median with its limits, or a mean prediction and its estimate."""
    if "" in values:
        return Cell(f"{values['']:.0f}")
    if "model" in values:
        return Cell(number(float(values["model"])), f"{mark} {number(float(values['estimate']))}")
    if not math.isfinite(values["estimate"]):
        return Cell("not reached")
    return Cell(interval_text(*(float(values[part]) for part in ("estimate", "lower", "upper"))))


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


# ---------------------------------------------------------------------- how good it is


def _scores(run: Run) -> Section | None:
    if run.peers is None:
        return None
    table = peer_table(run.peers)
    n_folds, legend, header = int(table.pop("folds").max()), list[str](), ["model"]
    compared = table.drop(index=[KAPLAN_MEIER, AALEN_JOHANSEN], errors="ignore").round(DIGITS)
    best, scores = {}, [str(name) for name in table]
    for score in scores:
        name, _, cause = score.partition(":")
        metric = METRICS[name]
        arrow = {True: " \N{UPWARDS ARROW}", False: " \N{DOWNWARDS ARROW}", None: ""}[metric.higher_is_better]
        header.append(f"{metric.short}{f' of {cause}' if cause else ''}{arrow}")
        legend.append(f"{metric.short}: {metric.title}, {metric.direction}.")
        best[score] = compared[score].max() if metric.higher_is_better else compared[score].min()
    shown = {
        TREE: "this model",
        "regression": "regression without groups",
        "prognostic_tree": "prognostic tree",
    }
    rows = [
        [shown.get(str(model), str(model))]
        + [
            Cell(
                number(row[score]), best=model in compared.index and round(row[score], DIGITS) == best[score]
            )
            for score in scores
        ]
        for model, row in table.iterrows()
    ]
    caption = f"Scores of held-out rows, mean of {n_folds} folds; the best in bold."
    if "regression" in table.index:
        legend.append("The regression without groups is that of the leaves for all rows.")
    legend.append(f"{ABSENT}: step functions have no likelihood.")
    if run.data.entry.any():
        legend.append(
            "Left-truncated rows are compared where both were at risk; Brier scores take every row as "
            "observed from time zero and are left out."
        )
    notes = list(dict.fromkeys(legend))
    return Section("Scores of the tree and reference models", [as_table(header, rows, caption), notes])


def calibration_section(run: Run) -> Section:
    """Observed against predicted survival of held-out rows, at each time that they were predicted for."""
    data = run.data
    if data.causes is not None:
        return Section("Calibration on held-out rows", [_calibration_in_the_large(run)])
    if data.entry.any():
        text = "Calibration curves do not support entry times (left truncation)."
        return Section("Calibration on held-out rows", [text])
    times = [str(name) for name in run.held_out if str(name).startswith("S(")]
    panels, undefined = list[tuple[float, pd.DataFrame, npt.NDArray[Any], float]](), list[str]()
    for name in times:
        time, predicted = float(name[2:-1]), run.held_out[name].to_numpy(np.float64)
        try:
            rows = metrics.HorizonRows.of(data.weighted_y, predicted, time)
            curve, index = metrics.calibration_curve(rows), metrics.calibration_errors(rows).ici
            panels.append((time, curve, predicted, index))
        except DataError as error:
            undefined.append(f"{run.unit_of(time)}: not defined, {error}")
    if len(data) < _LEAST_ROWS:
        text = f"{len(data)} rows are too few for calibration curves; at least {_LEAST_ROWS}."
        return Section("Calibration on held-out rows", [text])
    if not panels:
        return Section("Calibration on held-out rows", [undefined])
    figure = Figure(figsize=(3.3 * len(panels), 3.5), layout="constrained")
    for ax, (time, curve, predicted, _) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        plot_calibration(curve, predicted, ax, horizon=run.unit_of(time))
        ax.legend(frameon=False, loc="upper left", fontsize=8)
    observed = _kaplan_meier(data).at(np.array([panel[0] for panel in panels])).value
    said = [
        f"{run.unit_of(time)}: mean predicted "
        f"{number(float(np.average(predicted, weights=data.sample_weight)))}, Kaplan-Meier "
        f"{number(float(survival))}, mean distance of the curve from the diagonal "
        f"{number(index)}."
        for (time, _, predicted, index), survival in zip(panels, observed, strict=True)
    ]
    caption = (
        "Observed survival, smoothed, against what the tree of the other folds predicts, with a pointwise "
        "band of 95 %; on the diagonal both agree. Ticks are rows."
    )
    picture = Picture("calibration", figure, caption, "Calibration curves: " + " ".join(said))
    return Section("Calibration on held-out rows", [picture, [*said, *undefined]])


def _calibration_in_the_large(run: Run) -> list[str]:
    """Mean predictions for held-out rows and nonparametric estimates of the same rows."""
    data, lines, predicted = run.data, list[str](), run.held_out
    names = [str(name) for name in predicted if str(name).startswith(("S(", "F("))]
    for name in names:
        curve, _, cause = name.partition(":")
        time = np.array([float(curve[2:-1])])
        if data.causes is None:
            known = followed_to(time, data.time, data.event)[0]
            estimate = float(_kaplan_meier(data).at(time).value[0]) if known else math.nan
            what = "survival, Kaplan-Meier"
        else:
            place = data.causes.index(cause)
            found = metrics.aalen_johansen(data.weighted_y, time)
            estimate, what = float(found[place, 0]), f"incidence of {cause}, Aalen-Johansen"
        mean = number(float(np.average(predicted[name], weights=data.sample_weight)))
        lines.append(f"{run.unit_of(float(time[0]))}: {what} {number(estimate)}, mean predicted {mean}.")
    return lines


# ---------------------------------------------------------------------- model card


def _card(run: Run) -> Section:
    model, data = run.model, run.data
    more = [
        ("made by", str(run.config["model"]["_target_"])),
        ("validated by", f"{int(run.folds.max()) + 1} folds, seed {run.config['cv']['seed']}"),
        ("checksum of the data", str(run.status.get("data", ABSENT))[:16]),
    ]
    limits = limits_of(model)
    if share := data.frame.isna().to_numpy().mean():
        limits.append(f"{100 * share:.1f} % of the cells are missing and were filled in.")
    limited, used = Section("Limits", [limits]), Section("Use", [use_of(model)])
    return Section("Model card", [facts_table(model, more), limited, used])
