"""The averages at a glance."""

from __future__ import annotations

from sstorch.evaluation.report.document import Block, Cell, Paragraph, Section, Table
from sstorch.evaluation.report.measures import measure
from sstorch.evaluation.report.numbers import listed, number
from sstorch.evaluation.report.results import Results, common_block
from sstorch.evaluation.report.score_tables import best_of_rows


def average_table(results: Results, *, chosen: bool = False) -> Table:
    """Test means over the data sets in common, a row a model; a metric has its own number of data sets."""
    shown = [name for name in results.metrics if measure(name).averaged]
    columns, best, heads = {}, {}, []
    for name in shown:
        own = measure(name)
        mean = results.cells(name, chosen=chosen).mean
        block = common_block(mean)
        column = mean.loc[list(block.datasets), list(block.models)].mean().reindex(mean.columns)
        columns[name] = column
        best[name] = best_of_rows(column.to_frame().T, own.higher_is_better).iloc[0]
        arrow = {True: " ↑", False: " ↓", None: ""}[own.higher_is_better]
        heads.append(f"{own.short}{arrow} ({len(block.datasets)})")
    rows = [
        [
            Cell(model.label),
            *(Cell(number(columns[name][model.key]), "", bool(best[name][model.key])) for name in shown),
        ]
        for model in results.models
    ]
    over = "the chosen start of each fold" if chosen else "all folds and starts"
    caption = (
        f"Test means over {over}, averaged over the data sets that the models have in common "
        "(their number in brackets). ↑ higher is better, ↓ lower is better; the best in bold."
    )
    return Table(caption, ["model", *heads], rows)


def average_section(results: Results) -> Section:
    """The averages at a glance, and which models they leave out."""
    left_out = {
        results.model(key).label
        for name in results.metrics
        for key in common_block(results.cells(name).mean).left_out
        if results.cells(name).mean[key].notna().any()
    }
    blocks: list[Block] = [average_table(results)]
    if left_out:
        blocks.append(
            Paragraph(
                "Left out of the averages, with values on fewer than half of the data sets: "
                f"{listed(sorted(left_out))}."
            )
        )
    if not results.rows["chosen"].all():
        table = average_table(results, chosen=True)
        blocks.append(Section("Averages over the chosen start of each fold", [table], folded=True))
    return Section("Averages", blocks)
