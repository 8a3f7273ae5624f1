"""The report of one run: rows, tree, groups, scores beside plain models, calibration, and a model card."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from matplotlib.figure import Figure

from sstorch import metrics
from sstorch._types import IntArray
from sstorch._version import __version__
from sstorch.bench.peers import FOREST, MOST_FOREST_ROWS, ONE_LEAF, SCORES, TREE, peer_table
from sstorch.bench.report.results import measure_of
from sstorch.data import Surv, SurvivalData
from sstorch.data.time_unit import round_horizons
from sstorch.document import (
    ABSENT,
    Block,
    Bullets,
    Cell,
    Code,
    Document,
    Paragraph,
    Picture,
    Section,
    Table,
    number,
)
from sstorch.exceptions import DataError
from sstorch.metrics import KaplanMeierBand
from sstorch.plots import plot_calibration, plot_groups, plot_soft_tree
from sstorch.plots.figures import detached
from sstorch.soft import SoftSurvivalTree
from sstorch.soft.groups import interval_text
from sstorch.soft.model_card import LIMITS

# Categories of a column, and columns of the table of rows, that are written out; the others are counted.
_MOST_CATEGORIES, _MOST_COLUMNS = 6, 40
# Rows from which a smooth curve of calibration says something.
_LEAST_ROWS = 50


@dataclass(frozen=True)
class Run:
    """What a report of a run is made of.

    Attributes:
        name: of the data.
        data: all rows.
        model: the tree trained on all of them.
        held_out: predictions for rows left out, :meth:`~sstorch.bench.CrossValidation.held_out`.
        peers: scores of the trees and of models beside them, :func:`~sstorch.bench.peers.score_run`;
            None if the run has none.
        config: its settings, by group.
        status: facts of ``status.json``.
    """

    name: str
    data: SurvivalData
    model: SoftSurvivalTree
    held_out: pd.DataFrame
    peers: pd.DataFrame | None
    config: Mapping[str, Any]
    status: Mapping[str, Any]

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
        return f"{time:.4g}{self.in_unit}"


def run_report(run: Run) -> Document:
    """The whole report; the same run gives the same report."""
    data, model = run.data, run.model
    share = 100 * data.n_events / len(data)
    subtitle = (
        f"{len(data)} rows, {data.n_events} events ({share:.0f} %), {len(data.feature_names)} columns; "
        f"depth {model.module_.topology.depth}, {model.module_.family.name} leaves"
    )
    sections = [
        _summary(run),
        _rows(run),
        _tree(run),
        _groups(run),
        _scores(run),
        _calibration(run),
        _card(run),
    ]
    return Document(f"Survival tree of {run.name}", subtitle, [part for part in sections if part])


# ---------------------------------------------------------------------- in short


def _summary(run: Run) -> Section:
    """What a reader must know, in a few sentences."""
    model, items = run.model, [_verdict_of_groups(run)]
    if run.peers is not None:
        items.append(_verdict_of_scores(run.peers))
    return Section(
        "In short", [Bullets(items), Paragraph("The groups:"), Bullets(model.describe().splitlines())]
    )


def _verdict_of_groups(run: Run) -> str:
    found = vars(run.model).get("group_validation_")
    if found is None:
        return "The tree is one leaf, a regression: it makes no groups."
    p = "p < .0001" if found.p_value < 1e-4 else f"p = {found.p_value:.4f}"
    told = (
        f"log-rank {p} over {found.n_folds} folds, concordance of the groups alone {number(found.c_groups)}"
    )
    if found.differ:
        return f"On rows that the gates were not placed on, the groups differ: {told}."
    return (
        f"On rows that the gates were not placed on, the groups do not differ: {told}. Do not rely on them."
    )


def _verdict_of_scores(peers: pd.DataFrame) -> str:
    table = peer_table(peers)
    own = float(table["c_harrell"][TREE])
    others = table["c_harrell"].drop(TREE).dropna()
    best = others.sort_values(ascending=False, kind="stable")
    beside = ", ".join(f"{name} {number(float(value))}" for name, value in best.items())
    return (
        f"Concordance on rows left out: {number(own)}; beside it {beside}."
        if beside
        else (f"Concordance on rows left out: {number(own)}.")
    )


# ---------------------------------------------------------------------- the rows


def _rows(run: Run) -> Section:
    data, blocks = run.data, list[Block]()
    reverse = None
    if not data.event.all():
        censored = Surv(data.time, ~data.event, entry=data.entry, weight=data.sample_weight)
        reverse = KaplanMeierBand.fit(censored)
    followed = math.inf if reverse is None else float(reverse.quantile().value)
    median, *limits = (float(part) for part in _kaplan_meier(data).quantile())
    survival = f"{interval_text(median, *limits)}{run.in_unit}" if math.isfinite(median) else "not reached"
    facts = [
        ("rows", str(len(data))),
        ("events", f"{data.n_events} ({100 * data.n_events / len(data):.1f} %)"),
        ("times", f"{data.time.min():.4g} to {run.unit_of(float(data.time.max()))}"),
        (
            "median follow-up (reverse Kaplan-Meier)",
            run.unit_of(followed) if math.isfinite(followed) else "not reached",
        ),
        ("median survival (Kaplan-Meier, 95 %)", survival),
    ]
    if late := int(np.count_nonzero(data.entry)):
        facts.append(("rows that entered late", str(late)))
    if data.n_moved:
        facts.append(("times of zero, moved", str(data.n_moved)))
    rows = [[Cell(name), Cell(text)] for name, text in facts]
    blocks.append(Table("", ["", "all rows"], rows, left=frozenset({1})))
    blocks.append(_columns_table(run))
    hidden = len(data.feature_names) - _MOST_COLUMNS
    text = "Numbers are medians with quartiles, categories counts with shares; “missing” is of all rows."
    if hidden > 0:
        text += f" {hidden} more columns are not shown."
    return Section("The rows", [*blocks, Paragraph(text)])


def _kaplan_meier(data: SurvivalData) -> KaplanMeierBand:
    """Kaplan-Meier of some rows, with their weights and entry times."""
    return KaplanMeierBand.fit(data.weighted_y)


def _columns_table(run: Run) -> Table:
    """Each column in all rows and in each group; what tells cohorts apart in a paper's first table."""
    frame, leaf = run.data.frame, run.model.apply(run.data.frame)
    order = _by_survival(run.model, leaf)
    parts = [np.ones(len(frame), dtype=bool)] + [leaf == number for number in order if len(order) > 1]
    rows = []
    for name in frame.columns[:_MOST_COLUMNS]:
        column = frame[name]
        missing = int(column.isna().sum())
        note = f"{missing} missing" if missing else ""
        if not isinstance(column.dtype, pd.CategoricalDtype) and column.nunique() == 2:
            high = column.max()
            cells = (Cell(_share(int((column[part] == high).sum()), int(part.sum()))) for part in parts)
            rows.append([Cell(f"{name} = {high:g}", note), *cells])
            continue
        if not isinstance(column.dtype, pd.CategoricalDtype):
            rows.append([Cell(str(name), note), *(Cell(_quartiles(column[part])) for part in parts)])
            continue
        counts = column.value_counts(sort=False)
        shown = list(counts.index[counts > 0])
        rows += [
            [
                Cell(f"{name} = {word}", note if word == shown[0] else ""),
                *(Cell(_share(int((column[part] == word).sum()), int(part.sum()))) for part in parts),
            ]
            for word in shown[:_MOST_CATEGORIES]
        ]
        if len(shown) > _MOST_CATEGORIES:
            others = column.isin(shown[_MOST_CATEGORIES:]).to_numpy()
            label = f"{name}: {len(shown) - _MOST_CATEGORIES} others"
            cells = (Cell(_share(int(others[part].sum()), int(part.sum()))) for part in parts)
            rows.append([Cell(label), *cells])
    header = ["column", f"all ({len(frame)})", *(f"group {k} ({(leaf == k).sum()})" for k in order)]
    caption = "All rows, and those of each group of the tree, from the longest survival to the shortest."
    return Table(caption if len(order) > 1 else "", header[: len(parts) + 1], rows)


def _quartiles(values: pd.Series) -> str:
    known = values.dropna().to_numpy(np.float64)
    if not len(known):
        return ABSENT
    low, middle, high = np.quantile(known, [0.25, 0.5, 0.75])
    return interval_text(middle, low, high)


def _share(count: int, total: int) -> str:
    return f"{count} ({100 * count / total:.0f} %)" if total else ABSENT


def _by_survival(model: SoftSurvivalTree, leaf: IntArray) -> list[int]:
    """The groups that have rows, as the tree's texts have them: those that live longest first."""
    present = set(np.unique(leaf).tolist())
    order = [int(line.split(":")[0].split()[1]) for line in model.describe().splitlines()]
    return [number for number in order if number in present]


# ---------------------------------------------------------------------- the tree and its groups


def _tree(run: Run) -> Section:
    model, data = run.model, run.data
    leaf = model.apply(data.frame)
    gates = len(np.unique(leaf)) > 1
    picture = Picture(
        "tree",
        detached(plot_soft_tree(model, data.frame)),
        "A gate sends a row left where its rule holds." if gates else "One leaf for all rows: a regression.",
        "The tree: " + model.export_text().replace("\n", " "),
    )
    whole = Code(model.summary())
    if not gates:
        return Section("The model", [picture, whole])
    return Section("The tree", [picture, Code(model.export_text()), Section("In full", [whole], folded=True)])


def _groups(run: Run) -> Section | None:
    model, data = run.model, run.data
    leaf = model.apply(data.frame)
    picture = Picture(
        "groups",
        detached(plot_groups(model, data.frame, data.y, sample_weight=data.sample_weight)),
        "Kaplan-Meier of the rows of each group with pointwise limits of 95 %, the mean of the predicted "
        "curves over it, and how many rows are still observed. The gates were placed on these rows, which "
        "makes groups look further apart than they are.",
        f"Survival curves of {len(np.unique(leaf))} groups",
    )
    times = round_horizons(model.event_times_, model.time_unit_)
    predicted = model.falling_curves(data.frame, times)
    rows = []
    for number_ in _by_survival(model, leaf):
        inside = leaf == number_
        band = _kaplan_meier(data.subset(inside))
        observed = np.where(times <= data.time[inside].max(), band.at(times).value, np.nan)
        means = np.average(predicted[inside], axis=0, weights=data.sample_weight[inside])
        cells = [
            Cell(number(float(mean)), f"KM {number(float(value))}")
            for mean, value in zip(means, observed, strict=True)
        ]
        median = interval_text(*(float(part) for part in band.quantile()))
        counts = str(inside.sum()), str(data.event[inside].sum())
        rows.append([Cell(f"group {number_}"), *map(Cell, (*counts, median)), *cells])
    median_name = f"median,{run.in_unit}" if run.in_unit else "median"
    header = ["", "rows", "events", median_name, *(f"S({time:g})" for time in times)]
    caption = (
        "Median by Kaplan-Meier with limits of 95 %; S(t) is predicted survival, mean over the rows, with "
        "Kaplan-Meier in small print."
    )
    return Section("The groups" if len(rows) > 1 else "Survival", [picture, Table(caption, header, rows)])


# ---------------------------------------------------------------------- how good it is


def _scores(run: Run) -> Section | None:
    if run.peers is None:
        return None
    table = peer_table(run.peers)
    names = {name: measure_of(name) for name in SCORES}
    best = {
        name: (table[name].max() if measure.higher_is_better else table[name].min())
        for name, measure in names.items()
    }
    rows = [
        [
            Cell("this tree" if model == TREE else str(model), _folds_note(int(row["folds"]), run)),
            *(_score_cell(name, float(row[name]), best[name]) for name in SCORES),
        ]
        for model, row in table.iterrows()
    ]
    arrows = {True: " ↑", False: " ↓", None: ""}
    header = ["model", *(f"{m.short}{arrows[m.higher_is_better]}" for m in names.values())]
    n_folds = int(run.folds.max()) + 1
    caption = f"Means over the {n_folds} folds, of rows that a model was not trained on; the best in bold."
    legend = [f"{m.short}: {m.title}, {m.direction}." for m in names.values()]
    known = {
        ONE_LEAF: "“one leaf” is the regression of the leaves for all rows, the same tree without gates.",
        FOREST: "The random forest is that of scikit-survival, 100 trees.",
    }
    legend += [text for name, text in known.items() if name in table.index]
    if FOREST not in table.index:
        legend.append(
            f"A random forest needs scikit-survival, and here at most {MOST_FOREST_ROWS:,} rows, all "
            "observed from time zero."
        )
    legend.append(f"{ABSENT}: step functions have no likelihood.")
    if run.data.entry.any():
        legend.append(
            "Rows that entered late are compared where both were at risk; Brier scores take every row as "
            "observed from time zero and are left out."
        )
    return Section("Scores beside plain models", [Table(caption, header, rows), Bullets(legend)])


def _folds_note(folds: int, run: Run) -> str:
    return "" if folds == int(run.folds.max()) + 1 else f"{folds} folds"


def _score_cell(name: str, value: float, best: float) -> Cell:
    return Cell(number(value), best=bool(np.isfinite(value) and round(value, 3) == round(best, 3)))


def _calibration(run: Run) -> Section:
    """Observed against predicted survival of rows left out, at each time that they were predicted for."""
    data = run.data
    if data.entry.any():
        text = "Curves of calibration take every row as observed from time zero, and some entered later."
        return Section("Calibration on rows left out", [Paragraph(text)])
    times = [str(name) for name in run.held_out if str(name).startswith("S(")]
    panels, undefined = list[tuple[float, pd.DataFrame, npt.NDArray[Any]]](), list[str]()
    for name in times:
        time, predicted = float(name[2:-1]), run.held_out[name].to_numpy(np.float64)
        try:
            panels.append(
                (time, metrics.calibration_curve((data.time, data.event), predicted, t=time), predicted)
            )
        except DataError as error:
            undefined.append(f"{run.unit_of(time)}: not defined, {error}")
    if len(data) < _LEAST_ROWS:
        text = f"{len(data)} rows are too few for curves of calibration, which need {_LEAST_ROWS}."
        return Section("Calibration on rows left out", [Paragraph(text)])
    if not panels:
        return Section("Calibration on rows left out", [Bullets(undefined)])
    figure = Figure(figsize=(3.3 * len(panels), 3.5), layout="constrained")
    for ax, (time, curve, predicted) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        plot_calibration(curve, predicted, ax)
        ax.set_title(run.unit_of(time), fontsize=10)
        ax.legend(frameon=False, loc="upper left", fontsize=8)
    observed = _kaplan_meier(data).at(np.array([time for time, _, _ in panels])).value
    said = [
        f"{run.unit_of(time)}: mean predicted "
        f"{number(float(np.average(predicted, weights=data.sample_weight)))}, Kaplan-Meier "
        f"{number(float(survival))}, mean distance of the curve from the diagonal "
        f"{number(metrics.integrated_calibration_index((data.time, data.event), predicted, t=time))}."
        for (time, _, predicted), survival in zip(panels, observed, strict=True)
    ]
    caption = (
        "Observed survival, smoothed, against what the tree of the other folds predicts, with a pointwise "
        "band of 95 %; on the diagonal both agree. Ticks are rows."
    )
    picture = Picture("calibration", figure, caption, "Calibration curves: " + " ".join(said))
    return Section("Calibration on rows left out", [picture, Bullets([*said, *undefined])])


# ---------------------------------------------------------------------- model card


def _card(run: Run) -> Section:
    """What the model is, how it was made, and what it is not for."""
    model, data = run.model, run.data
    times = round_horizons(model.event_times_, model.time_unit_)
    last = run.unit_of(float(model.event_times_[-1]))
    kind = f"depth {model.module_.topology.depth}, {model.module_.family.name} leaves"
    how = f"init {run.config['init']['name']}, trainer {run.config['trainer']['name']}"
    facts = [
        ("model", f"soft survival tree, {kind}"),
        ("predicts", "survival at any time, median and restricted mean time, risk, group"),
        ("trained on", f"{len(data)} rows of {run.name}, {data.n_events} events; {how}"),
        ("columns", ", ".join(data.feature_names)),
        ("times", f"up to {last}, the last event; beyond it curves are extrapolated"),
        ("missing values", f"numbers: {model.missing_numbers}; categories: {model.missing_categories}"),
        ("validated by", f"{int(run.folds.max()) + 1} folds, seed {run.config['cv']['seed']}"),
        ("versions", f"sstorch {__version__}, torch {torch.__version__}, Python {platform.python_version()}"),
        ("checksum of the data", str(run.status.get("data", ABSENT))[:16]),
    ]
    table = Table("", ["", "this model"], [[Cell(a), Cell(b)] for a, b in facts], left=frozenset({1}))
    limits = [*LIMITS]
    share = data.frame.isna().to_numpy().mean()
    if share:
        limits.append(f"{100 * share:.1f} % of the cells are missing and were filled in.")
    use = Code(
        "from sstorch import SoftSurvivalTree\n"
        'tree = SoftSurvivalTree.load("model")\n'
        f"tree.predict_survival_function(rows, times={[float(f'{t:g}') for t in times]})\n\n"
        "sstorch-predict RUN rows.csv --times " + " ".join(f"{t:g}" for t in times)
    )
    return Section("Model card", [table, Section("Limits", [Bullets(limits)]), Section("Use", [use])])
