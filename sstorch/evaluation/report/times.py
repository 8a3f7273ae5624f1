"""What the models cost, from the records of the tasks."""

from __future__ import annotations

import math
from typing import Any

from sstorch.evaluation.report.document import Block, Cell, Paragraph, Section, Table
from sstorch.evaluation.report.numbers import ABSENT, seconds
from sstorch.evaluation.report.results import Facts, Results
from sstorch.evaluation.report.score_tables import heading


def time_section(results: Results) -> Section:
    """Seconds of fitting and scoring by model."""
    rows = []
    for model in results.models:
        own = [
            facts
            for (_, key), facts in sorted(results.facts.items())
            if key == model.key and _is_timed(facts)
        ]
        if not own:
            continue
        fit = [_seconds(facts, "fit") for facts in own]
        score = [_seconds(facts, "score") for facts in own]
        fits = [int(facts["n_folds"]) * int(facts["n_starts"]) for facts in own]
        per_task = sum(fit) / len(own)
        texts = [
            str(len(own)),
            str(sum(fits)),
            *map(
                seconds,
                (sum(fit), per_task, max(fit), sum(fit) / sum(fits), sum(score), sum(score) / len(own)),
            ),
        ]
        rows.append([Cell(model.label), *map(Cell, texts)])
    if not rows:
        return Section("Time", [Paragraph("The tasks have no record of their times.")])
    groups = [("", 1), ("number of", 2), ("seconds of fitting", 4), ("seconds of scoring", 2)]
    header = ["model", "tasks", "fits", "all", "per task", "longest task", "per fit", "all", "per task"]
    caption = (
        "A task is a model on a data set, with all its folds and starts; a fit is one tree or model. The "
        "fits of a task may have run side by side, so that seconds per fit are a share of the task."
    )
    blocks: list[Block] = [Table(caption, header, rows, groups=groups)]
    blocks.append(Section("Seconds of fitting by data set", [_by_dataset(results)], folded=True))
    return Section("Time", blocks)


def _by_dataset(results: Results) -> Table:
    groups, header = heading(results.models)

    def text(dataset: str, key: str) -> str:
        facts = results.facts.get((dataset, key))
        return seconds(_seconds(facts, "fit")) if facts is not None and _is_timed(facts) else ABSENT

    rows = [
        [Cell(dataset), *(Cell(text(dataset, model.key)) for model in results.models)]
        for dataset in results.datasets
    ]
    return Table("", header, rows, groups=groups)


def _is_timed(facts: Facts) -> bool:
    return "seconds" in facts and "n_folds" in facts and "n_starts" in facts


def _seconds(facts: Facts, name: str) -> float:
    taken: dict[str, Any] = facts["seconds"]
    return float(taken.get(name, math.nan))
