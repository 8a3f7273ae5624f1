"""Results compared with the published tables."""

from __future__ import annotations

import pandas as pd

from sstorch.bench.report.results import (
    SOURCE,
    WHY_NOT_COMPARABLE,
    Model,
    Results,
    by_family,
    is_comparable,
    measure_of,
    published_datasets,
    published_means,
)
from sstorch.bench.report.tables import heading
from sstorch.document import ABSENT, Block, Cell, Section, as_table, number, signed

MARGIN = 0.02


def paper_section(results: Results) -> Section | None:
    """Differences to the published tables; None if nothing of them is among the results."""
    metrics = [name for name in results.metrics if measure_of(name).published is not None]
    blocks: list[Block] = [
        (
            f"The published values are the means over 5 folds x 20 starts of {SOURCE}, sections 5.2, D.1 "
            "and D.2. Differences are ours minus theirs; they have other folds and starting points, and "
            "the standard deviations in the tables of scores show its size. “ibs” of the paper is "
            "compared with ibs_graf. " + WHY_NOT_COMPARABLE
        )
    ]
    averages = _average_table(results, metrics)
    if averages is None:
        return None
    blocks.append(Section("Averages over the paper's data sets", [averages]))
    for name in metrics:
        for part in ("test", "train"):
            tables = _difference_tables(results, name, part)
            if tables:
                blocks.append(Section(f"{measure_of(name).title}, {part}", list(tables), folded=True))
    return Section("Compared with the paper", blocks)


def against_paper(results: Results, metric: str, part: str, model: Model) -> pd.DataFrame:
    """Our and the published means of a model on the data sets that both have.

    Columns ours, paper, difference. The difference is NaN if the two do not measure the same thing.
    """
    published = published_means(metric, part)
    counterpart = model.counterpart.key
    if counterpart not in published:
        return pd.DataFrame(columns=["ours", "paper", "difference"], dtype=float)
    ours = results.cells(metric, part).mean[model.key]
    table = pd.DataFrame({"ours": ours, "paper": published[counterpart]}).dropna()
    difference = table["ours"] - table["paper"]
    return table.assign(difference=difference if is_comparable(metric, model) else float("nan"))


def _average_table(results: Results, metrics: list[str]) -> pd.DataFrame | None:
    n = len(set(results.datasets) & set(published_datasets()))
    rows = []
    for model in results.models:
        cells = []
        for name in metrics:
            table = against_paper(results, name, "test", model)
            if table.empty:
                cells += [Cell(ABSENT)] * 3
                continue
            few = _few(table, n)
            cells += [
                Cell(number(table["ours"].mean()), few),
                Cell(number(table["paper"].mean())),
                Cell(signed(table["difference"].mean())),
            ]
        if any(cell.text != ABSENT for cell in cells):
            rows.append([model.label, *cells])
    if not rows:
        return None
    groups = [("", 1), *((measure_of(name).short, 3) for name in metrics)]
    header = ["model", *["ours", "paper", "difference"] * len(metrics)]
    caption = (
        f"Test means averaged over {n} of the {len(published_datasets())} data sets of the paper; where a "
        "model has fewer of them, both averages are over those (their number in small print)."
    )
    return as_table(header, rows, caption, groups=groups)


def _difference_tables(results: Results, metric: str, part: str) -> list[pd.DataFrame]:
    compared = {model.key: against_paper(results, metric, part, model) for model in results.models}
    shown = [model for model in results.models if not compared[model.key].empty]
    sign = 1.0 if measure_of(metric).higher_is_better else -1.0
    tables = []
    for family, members in by_family(shown).items():
        rows = []
        for dataset in results.datasets:
            cells = []
            for model in members:
                table = compared[model.key]
                if dataset not in table.index:
                    cells.append(Cell(ABSENT))
                    continue
                ours, paper, difference = (float(value) for value in table.loc[[dataset]].to_numpy()[0])
                worse = round(sign * difference, 3) < -MARGIN
                cells.append(Cell("▼ " * worse + signed(difference), f"{number(ours)} / {number(paper)}"))
            if any(cell.text != ABSENT or cell.note for cell in cells):
                rows.append([dataset, *cells])
        footer = ["average", *(_average_cell(compared[model.key], len(rows)) for model in members)]
        groups, header = heading(members)
        caption = (
            f"{family.capitalize()}: difference (ours / paper); ▼ worse by more than {number(MARGIN, 2)}."
        )
        tables.append(as_table(header, [*rows, footer], caption, groups=groups, n_averages=1, stacked=True))
    return tables


def _average_cell(table: pd.DataFrame, n: int) -> Cell:
    values = f"{number(table['ours'].mean())} / {number(table['paper'].mean())}"
    return Cell(signed(table["difference"].mean()), ", ".join(filter(None, [values, _few(table, n)])))


def _few(table: pd.DataFrame, n: int) -> str:
    """The number of data sets, where it is not n."""
    return f"{len(table)} set{'s' * (len(table) > 1)}" if len(table) < n else ""
