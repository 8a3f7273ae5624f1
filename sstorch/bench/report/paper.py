"""Results compared with the published tables."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sstorch.bench.report.results import (
    Model,
    Results,
    by_family,
    measure_of,
    published_means,
    published_tables,
)
from sstorch.bench.report.tables import heading
from sstorch.document import ABSENT, Block, Cell, Section, as_table, number, signed

MARGIN = 0.02
# Their published integrated Brier scores lie below what any calibrated model can reach.
NOT_COMPARABLE = frozenset({"sst_po", "sst_ph"})
_TEXT = (
    "The published values are the means over 5 folds x 20 starts of Consolo, Amaldi and Carrizosa, “Soft "
    "decision trees for survival analysis”, sections 5.2, D.1 and D.2. Differences are ours minus theirs; "
    "they have other folds and starting points, and the standard deviations in the tables of scores show its "
    "size. “ibs” of the paper is compared with ibs_graf. The published IBS of PO and PH are not comparable: "
    "they lie below what any calibrated model can reach, for instance .033 on Aids2, where Kaplan-Meier "
    "scores .138 to .147 by convention and no model discriminates."
)


def paper_section(results: Results) -> Section | None:
    """Differences to the published tables; None if nothing of them is among the results."""
    metrics = [name for name in results.metrics if measure_of(name).published is not None]
    averages = _average_table(results, metrics)
    if averages is None:
        return None
    blocks: list[Block] = [_TEXT, Section("Averages over the paper's data sets", [averages])]
    for name in metrics:
        for part in ("test", "train"):
            tables = _difference_tables(results, name, part)
            if tables:
                blocks.append(Section(f"{measure_of(name).title}, {part}", tables, folded=True))
    return Section("Compared with the paper", blocks)


def against_paper(results: Results, metric: str, part: str, model: Model) -> pd.DataFrame:
    """Our and the published means of a model on the data sets that both have.

    Columns ours, paper, difference. The difference is NaN if the two do not measure the same thing.
    """
    published, counterpart = published_means(metric, part), f"{model.plain}_d{model.depth}"
    if counterpart not in published:
        return pd.DataFrame(columns=["ours", "paper", "difference"], dtype=float)
    ours = results.cells(metric, part).mean[model.key]
    table = pd.DataFrame({"ours": ours, "paper": published[counterpart]}).dropna()
    comparable = measure_of(metric).published != "ibs" or model.plain not in NOT_COMPARABLE
    return table.assign(difference=(table["ours"] - table["paper"]) * (1.0 if comparable else np.nan))


def _average_table(results: Results, metrics: list[str]) -> pd.DataFrame | None:
    theirs = set(published_tables()["dataset"])
    n, rows = len(set(results.datasets) & theirs), list[list[object]]()
    for model in results.models:
        tables = [against_paper(results, name, "test", model) for name in metrics]
        if not all(table.empty for table in tables):
            rows.append([model.label, *(cell for table in tables for cell in _averages(table, n))])
    if not rows:
        return None
    groups = [("", 1), *((measure_of(name).short, 3) for name in metrics)]
    header = ["model", *["ours", "paper", "difference"] * len(metrics)]
    caption = (
        f"Test means averaged over {n} of the {len(theirs)} data sets of the paper; where a model has fewer "
        "of them, both averages are over those (their number in small print)."
    )
    return as_table(header, rows, caption, groups=groups)


def _averages(table: pd.DataFrame, n: int) -> list[Cell]:
    """Averages of ours, with the number of data sets where it is not n, of theirs, and of the difference."""
    ours, paper, difference = table[["ours", "paper", "difference"]].mean()
    few = f"{len(table)} set{'s' * (len(table) > 1)}" if 0 < len(table) < n else ""
    return [Cell(number(ours), few), Cell(number(paper)), Cell(signed(difference))]


def _difference_tables(results: Results, metric: str, part: str) -> list[pd.DataFrame]:
    compared = {model.key: against_paper(results, metric, part, model) for model in results.models}
    shown = [model for model in results.models if not compared[model.key].empty]
    sign, tables = 1.0 if measure_of(metric).higher_is_better else -1.0, []
    for family, members in by_family(shown).items():
        of_family = [compared[model.key] for model in members]
        datasets = [name for name in results.datasets if any(name in table.index for table in of_family)]
        rows: list[list[object]] = []
        for dataset in datasets:
            rows.append([dataset, *(_difference(table, dataset, sign) for table in of_family)])
        cells = []
        for ours, paper, difference in (_averages(table, len(datasets)) for table in of_family):
            note = ", ".join(filter(None, [f"{ours.text} / {paper.text}", ours.note]))
            cells.append(Cell(difference.text, note))
        groups, header = heading(members)
        caption = (
            f"{family.capitalize()}: difference (ours / paper); ▼ worse by more than {number(MARGIN, 2)}."
        )
        rows.append(["average", *cells])
        tables.append(as_table(header, rows, caption, groups=groups, n_averages=1, stacked=True))
    return tables


def _difference(table: pd.DataFrame, dataset: str, sign: float) -> Cell:
    if dataset not in table.index:
        return Cell(ABSENT)
    ours, paper, difference = (float(table[name][dataset]) for name in ("ours", "paper", "difference"))
    worse = round(sign * difference, 3) < -MARGIN
    return Cell("▼ " * worse + signed(difference), f"{number(ours)} / {number(paper)}")
