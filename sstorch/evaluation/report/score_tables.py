"""Tables of scores: rows data sets, columns models, as in the paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import pandas as pd

from sstorch.evaluation.report.document import Block, Cell, Paragraph, Section, Table
from sstorch.evaluation.report.measures import Measure, measure
from sstorch.evaluation.report.models import Model, by_family
from sstorch.evaluation.report.numbers import ABSENT, DIGITS, digits_of, number
from sstorch.evaluation.report.results import PARTS, Cells, Results, common_block

# More columns than this are broken into a table a family.
_WIDE = 12
UNDEFINED = "n. d."


def score_section(results: Results, metric: str) -> Section:
    """All tables of a metric: over all runs and over the chosen starts, test and train."""
    own = measure(metric)
    blocks: list[Block] = []
    for part in PARTS:
        for chosen in (False, True):
            cells = results.cells(metric, part, chosen=chosen)
            if not cells.runs.to_numpy().any():
                continue
            over = "chosen start of each fold" if chosen else "all folds and starts"
            blocks.append(
                Section(
                    f"{part.capitalize()}, {over}",
                    list(score_tables(results, own, cells)),
                    folded=part == "train" or chosen,
                )
            )
    if own.rejection:
        blocks.insert(
            0,
            Paragraph(
                "A model that is calibrated is rejected in 5 % of the fits; no value is marked as best."
            ),
        )
    return Section(f"{own.title} ({metric}; {own.direction})", blocks)


def score_tables(results: Results, own: Measure, cells: Cells) -> list[Table]:
    """Means and standard deviations, the best of a row marked, with rows of averages below."""
    if not cells.runs.to_numpy().any():
        return []
    shown = [model for model in results.models if cells.runs[model.key].any()]
    families = by_family(shown) if len(shown) > _WIDE else {"": shown}
    values = cells.mean[[model.key for model in shown]]
    digits = digits_of(values.to_numpy(dtype=float))
    best = best_of_rows(values, own.higher_is_better, digits)
    averages = averages_of(values) if own.averaged else []
    tables = []
    for family, members in families.items():
        keys = [model.key for model in members]
        in_family = best_of_rows(values[keys], own.higher_is_better, digits)

        def cell(dataset: str, key: str, in_family: pd.DataFrame = in_family) -> Cell:
            text, note = _texts(cells, dataset, key, digits, own)
            return Cell(text, note, bool(best.at[dataset, key]), bool(in_family.at[dataset, key]))

        groups, header = heading(members)
        rows = [[Cell(name), *(cell(name, key) for key in keys)] for name in results.datasets]
        footer = [
            _footer(
                row,
                keys,
                own,
                digits,
                best_of_rows(row.values.to_frame().T, own.higher_is_better, digits).iloc[0],
            )
            for row in averages
        ]
        tables.append(Table(family.capitalize(), header, rows, footer, groups))
    return tables


def heading(models: Sequence[Model], first: str = "data set") -> tuple[list[tuple[str, int]], list[str]]:
    """Two rows of headings, names and depths; a single row where no model has a depth."""
    if all(model.depth is None for model in models):
        return [], [first, *(model.title for model in models)]
    groups = [(title, len(list(own))) for title, own in groupby(models, key=lambda model: model.title)]
    return [("", 1), *groups], [first, *("" if m.depth is None else f"D{m.depth}" for m in models)]


def best_of_rows(values: pd.DataFrame, higher_is_better: bool | None, digits: int = DIGITS) -> pd.DataFrame:
    """Which values are the best of their row, those that print alike together.

    None are where there is no direction, or only one value to choose from.
    """
    if higher_is_better is None:
        return pd.DataFrame(False, index=values.index, columns=values.columns)
    printed = values.map(lambda value: float(f"{value:.{digits}f}"))
    best = printed.max(axis=1) if higher_is_better else printed.min(axis=1)
    return printed.eq(best, axis=0) & (values.notna().sum(axis=1) > 1).to_numpy()[:, None]


@dataclass(frozen=True)
class Average:
    """A row of averages over data sets.

    Attributes:
        name: of the row, with the number of data sets where it is one for all models.
        values: by key of the model.
        counts: number of data sets by key, where the models differ in it; such values are not compared.
    """

    name: str
    values: pd.Series
    counts: pd.Series | None = None


def averages_of(values: pd.DataFrame) -> list[Average]:
    """Averages over data sets.

    One row where all models with values have them on every data set. Otherwise one over the data sets that
    each model has, which is not comparable between models, and one over the data sets in common (`Block`).
    """
    block = common_block(values)
    n = len(block.datasets)
    common = values.loc[list(block.datasets), list(block.models)].mean().reindex(values.columns)
    name = f"average of {n} data set{'s' * (n != 1)}"
    counts = values.notna().sum()
    if counts[counts > 0].eq(len(values)).all():
        return [Average(name, common)]
    return [
        Average("average, own data sets", values.mean(), counts),
        Average(f"average, {n} in common", common),
    ]


def _footer(row: Average, keys: Sequence[str], own: Measure, digits: int, all_best: pd.Series) -> list[Cell]:
    if row.counts is not None:
        notes = [f"of {row.counts[key]}" if row.counts[key] else "" for key in keys]
        texts = [number(row.values[key], digits) for key in keys]
        return [Cell(row.name), *map(Cell, texts, notes)]
    here = best_of_rows(row.values[list(keys)].to_frame().T, own.higher_is_better, digits).iloc[0]
    return [
        Cell(row.name),
        *(Cell(number(row.values[key], digits), "", bool(all_best[key]), bool(here[key])) for key in keys),
    ]


def _texts(cells: Cells, dataset: str, key: str, digits: int, own: Measure) -> tuple[str, str]:
    mean, std, defined, runs = cells.at(dataset, key)
    if not runs:
        return ABSENT, ""
    if not defined:
        return UNDEFINED, ""
    notes = [] if own.rejection or math.isnan(std) else [number(std, digits)]
    if defined < runs:
        notes.append(f"{defined} of {runs} runs")
    return number(mean, digits), ", ".join(notes)
