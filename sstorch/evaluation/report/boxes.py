"""Distributions of scores over folds and starts, as figures of the report."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sstorch.evaluation.report.document import Block, Paragraph, Picture, Section
from sstorch.evaluation.report.measures import measure
from sstorch.evaluation.report.models import Model, deepest
from sstorch.evaluation.report.numbers import listed
from sstorch.evaluation.report.results import Results
from sstorch.evaluation.report.wins import RIVALS
from sstorch.plots.score_boxes import plot_runs, plot_scores_by_dataset

# The models of the paper's own box plots; SkSurv takes the place of CTree.
_SOFT = ("sst_llog", "sst_po")


def box_section(results: Results) -> Section | None:
    """Box plots by metric, and of Llog, CTree and PO in all metrics; None where nothing can be drawn."""
    metrics = [name for name in results.metrics if measure(name).published is not None]
    models = deepest(results.models)
    blocks: list[Block] = []
    runs = _runs(results, metrics, models)
    if runs is not None:
        blocks.append(runs)
    for name in metrics:
        own = measure(name)
        values = _values(results, name, models)
        datasets = [dataset for dataset in results.datasets if any(key[0] == dataset for key in values)]
        shown = [model for model in models if any(key[1] == model.label for key in values)]
        if not datasets:
            continue
        figure = plot_scores_by_dataset(
            values,
            datasets,
            [model.label for model in shown],
            {model.label: model.family for model in shown},
            f"{own.title} ({own.direction})",
        )
        caption = f"{own.title} on the test folds, all folds and starts; {own.direction}."
        picture = Picture(f"boxes_{name}", figure, caption, f"Box plots of {own.title} by data set and model")
        blocks.append(Section(f"{own.title} by data set", [picture], folded=True))
    if not blocks:
        return None
    text = (
        "Box: quartiles and median; whiskers: to the last run within 1.5 times the box; points: runs "
        "beyond. Models with one fit have a run a fold. Every model at its largest depth."
    )
    return Section("Distributions over folds and starts", [Paragraph(text), *blocks])


def _runs(results: Results, metrics: Sequence[str], models: Sequence[Model]) -> Picture | None:
    rival = next((name for name in RIVALS if any(model.name == name for model in models)), None)
    wanted = [_SOFT[0], *([rival] if rival else []), *_SOFT[1:]]
    shown = [model for name in wanted for model in models if model.name == name]
    if not shown or not metrics:
        return None
    values = {measure(name).title: _values(results, name, shown) for name in metrics}
    datasets = [
        dataset
        for dataset in results.datasets
        if any(key[0] == dataset for own in values.values() for key in own)
    ]
    if not datasets:
        return None
    names = listed([model.label for model in shown])
    figure = plot_runs(values, datasets, [model.label for model in shown])
    counts = sorted({len(own) for by_cell in values.values() for own in by_cell.values()})
    spread = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    caption = f"{names}: test scores of all folds and starts ({spread} runs a box)."
    if rival != RIVALS[0]:
        caption += " CTree is not among these results."
    return Picture("runs", figure, caption, f"Box plots of the runs of {names} by data set")


def _values(results: Results, metric: str, models: Sequence[Model]) -> dict[tuple[str, str], list[float]]:
    """Finite test scores by data set and label; the others are counted in a section of their own."""
    labels = {model.key: model.label for model in models}
    rows = results.values(metric)
    rows = rows[np.isfinite(rows["value"]) & rows["key"].isin(labels)]
    return {
        (str(dataset), labels[str(key)]): own.tolist()
        for (dataset, key), own in rows.groupby(["dataset", "key"])["value"]
    }
