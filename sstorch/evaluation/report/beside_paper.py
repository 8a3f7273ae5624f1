"""Own results beside the published ones."""

from __future__ import annotations

import pandas as pd

from sstorch.evaluation.report.document import Block, Bullets, Cell, Paragraph, Section, Table
from sstorch.evaluation.report.measures import measure
from sstorch.evaluation.report.models import Model, by_family
from sstorch.evaluation.report.numbers import ABSENT, listed, number, signed
from sstorch.evaluation.report.published import (
    SOURCE,
    WHY_NOT_COMPARABLE,
    is_comparable,
    published_datasets,
    published_means,
)
from sstorch.evaluation.report.results import Results
from sstorch.evaluation.report.score_tables import heading

MARGIN = 0.02


def paper_section(results: Results) -> Section | None:
    """Differences to the published tables; None if nothing of them is among the results."""
    metrics = [name for name in results.metrics if measure(name).published is not None]
    blocks: list[Block] = [
        Paragraph(
            f"The published values are the means over 5 folds x 20 starts of {SOURCE}, sections 5.2, D.1 "
            "and D.2. Differences are ours minus theirs; they have other folds and starting points, and "
            "the standard deviations in the tables of scores say what that can do. “ibs” of the paper is "
            "compared with ibs_graf. " + WHY_NOT_COMPARABLE
        )
    ]
    averages = _average_table(results, metrics)
    if averages is None:
        return None
    blocks += [Section("Averages over the paper's data sets", [averages])]
    blocks += [
        Section(f"Worse than the paper by more than {number(MARGIN, 2)}", [_shortfalls(results, metrics)])
    ]
    for name in metrics:
        for part in ("test", "train"):
            tables = _difference_tables(results, name, part)
            if tables:
                blocks.append(Section(f"{measure(name).title}, {part}", list(tables), folded=True))
    return Section("Beside the paper", blocks)


def beside(results: Results, metric: str, part: str, model: Model) -> pd.DataFrame:
    """Own and published means of a model on the data sets that both have: columns ours, paper, difference.

    The difference is NaN where the two do not measure the same thing.
    """
    published = published_means(metric, part)
    counterpart = model.counterpart.key
    if counterpart not in published:
        return pd.DataFrame(columns=["ours", "paper", "difference"], dtype=float)
    ours = results.cells(metric, part).mean[model.key]
    table = pd.DataFrame({"ours": ours, "paper": published[counterpart]}).dropna()
    difference = table["ours"] - table["paper"]
    return table.assign(difference=difference if is_comparable(metric, model) else float("nan"))


def shortfalls(results: Results, metric: str, model: Model) -> dict[str, float]:
    """Data sets on which a model is worse than published by more than `MARGIN`, with the difference."""
    table = beside(results, metric, "test", model)
    sign = 1.0 if measure(metric).higher_is_better else -1.0
    # Published means have three decimals, so a difference is read with three.
    worse = table[(sign * table["difference"]).round(3) < -MARGIN]
    return {str(dataset): float(value) for dataset, value in worse["difference"].items()}


def _average_table(results: Results, metrics: list[str]) -> Table | None:
    n = len(set(results.datasets) & set(published_datasets()))
    rows = []
    for model in results.models:
        cells = []
        for name in metrics:
            table = beside(results, name, "test", model)
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
            rows.append([Cell(model.label), *cells])
    if not rows:
        return None
    groups = [("", 1), *((measure(name).short, 3) for name in metrics)]
    header = ["model", *["ours", "paper", "difference"] * len(metrics)]
    caption = (
        f"Test means averaged over {n} of the {len(published_datasets())} data sets of the paper; where a "
        "model has fewer of them, both averages are over those (their number in small print)."
    )
    return Table(caption, header, rows, groups=groups)


def _shortfalls(results: Results, metrics: list[str]) -> Bullets:
    items = []
    for model in results.models:
        if not model.is_soft_tree:
            continue
        compared = [
            name for name in metrics if not beside(results, name, "test", model)["difference"].dropna().empty
        ]
        texts = []
        for name in compared:
            found = shortfalls(results, name, model)
            if found:
                where = ", ".join(f"{dataset} ({signed(value)})" for dataset, value in found.items())
                texts.append(f"{measure(name).short}: {where}")
        if compared:
            names = listed([measure(name).short for name in compared])
            items.append(f"{model.label}: " + ("; ".join(texts) if texts else f"none, in {names}") + ".")
    return Bullets(items or ["No soft tree of the paper is among these results."])


def _difference_tables(results: Results, metric: str, part: str) -> list[Table]:
    own = measure(metric)
    found = {model.key: beside(results, metric, part, model) for model in results.models}
    shown = [model for model in results.models if not found[model.key].empty]
    sign = 1.0 if own.higher_is_better else -1.0
    tables = []
    for family, members in by_family(shown).items():
        rows = []
        for dataset in results.datasets:
            cells = []
            for model in members:
                table = found[model.key]
                if dataset not in table.index:
                    cells.append(Cell(ABSENT))
                    continue
                ours, paper, difference = (float(value) for value in table.loc[[dataset]].to_numpy()[0])
                worse = round(sign * difference, 3) < -MARGIN
                cells.append(Cell("▼ " * worse + signed(difference), f"{number(ours)} / {number(paper)}"))
            if any(cell.text != ABSENT or cell.note for cell in cells):
                rows.append([Cell(dataset), *cells])
        footer = [Cell("average"), *(_average(found[model.key], len(rows)) for model in members)]
        groups, header = heading(members)
        caption = (
            f"{family.capitalize()}: difference (ours / paper); ▼ worse by more than {number(MARGIN, 2)}."
        )
        tables.append(Table(caption, header, rows, [footer], groups, stacked=True))
    return tables


def _average(table: pd.DataFrame, n: int) -> Cell:
    values = f"{number(table['ours'].mean())} / {number(table['paper'].mean())}"
    return Cell(signed(table["difference"].mean()), ", ".join(filter(None, [values, _few(table, n)])))


def _few(table: pd.DataFrame, n: int) -> str:
    """The number of data sets, where it is not n."""
    return f"{len(table)} set{'s' * (len(table) > 1)}" if len(table) < n else ""
