"""On how many data sets a soft tree is ahead of a greedy one, here and in the paper."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from sstorch.evaluation.report.document import Block, Cell, Paragraph, Section, Table
from sstorch.evaluation.report.measures import measure
from sstorch.evaluation.report.models import Model
from sstorch.evaluation.report.numbers import ABSENT, listed
from sstorch.evaluation.report.published import is_comparable, published_datasets, published_means
from sstorch.evaluation.report.results import Results

# In this order: the first that is there is the one compared with.
RIVALS = ("ctree", "sksurv")


@dataclass(frozen=True)
class Wins:
    """Data sets on which a model is ahead, level and behind, at three decimals.

    Attributes:
        ahead: number of data sets.
        level: number of data sets.
        behind: number of data sets.
    """

    ahead: int
    level: int
    behind: int

    @property
    def text(self) -> str:
        """Ahead out of all."""
        total = self.ahead + self.level + self.behind
        level = f", {self.level} level" if self.level else ""
        return f"{self.ahead} of {total}{level}" if total else ABSENT


def count_wins(means: pd.DataFrame, model: str, rivals: list[str], *, higher_is_better: bool) -> Wins:
    """Count the data sets on which a model is ahead of the best of its rivals, by means of three decimals.

    Args:
        means: a row a data set, a column a model.
        model: its column.
        rivals: columns; of each data set the best of them counts. Data sets where one is NaN do not.
        higher_is_better: direction of the score.
    """
    table = means[[model, *rivals]].dropna()
    if higher_is_better:
        gain = table[model].round(3) - table[rivals].max(axis=1).round(3)
    else:
        gain = table[rivals].min(axis=1).round(3) - table[model].round(3)
    gain = gain.round(3)
    return Wins(int((gain > 0).sum()), int((gain == 0).sum()), int((gain < 0).sum()))


def wins_section(results: Results) -> Section | None:
    """Wins of the soft trees against CTree, or against SkSurv where CTree is absent; None without either."""
    names = [name for name in RIVALS if any(model.name == name for model in results.models)]
    soft = [model for model in results.models if model.is_soft_tree]
    metrics = [name for name in results.metrics if measure(name).published is not None]
    if not set(results.datasets) & set(published_datasets()):
        return None
    if not names or not soft or not metrics:
        return None
    rivals = [model for model in results.models if model.name == names[0]]
    depths = listed([str(model.depth) for model in rivals])
    title = rivals[0].title
    text = (
        f"Data sets of the paper on which the test mean of a soft tree is ahead of {title}'s, at three "
        f"decimals: of {title} at its best depth for the data set (of the depths {depths} here, 2 to 5 in "
        f"the paper; chosen on the test folds, which favours {title}), and of {title} at the same depth. In "
        "the paper's tables, Llog of depth 2 is ahead of CTree at its best depth in C_H on 14 of 15 data "
        "sets, PO and PH on 13."
    )
    if names[0] != RIVALS[0]:
        text = f"CTree is not among these results; {title} takes its place. " + text
    tables = [_table(results, name, soft, rivals) for name in metrics]
    blocks: list[Block] = [Paragraph(text), tables[0]]
    if len(tables) > 1:
        blocks.append(Section("By the other metrics", [*tables[1:]], folded=True))
    return Section(f"Wins against {title}", blocks)


def _table(results: Results, metric: str, soft: list[Model], rivals: list[Model]) -> Table:
    own = measure(metric)
    ours, paper = results.cells(metric).mean, published_means(metric)
    ours = ours.loc[[name for name in results.datasets if name in paper.index]]
    published = [key for key in paper.columns if key.rpartition("_d")[0] == rivals[0].name]

    def text(means: pd.DataFrame, model: Model, keys: list[str]) -> str:
        if model.key not in means or not keys or any(key not in means for key in keys):
            return ABSENT
        return count_wins(means, model.key, keys, higher_is_better=bool(own.higher_is_better)).text

    rows = []
    for model in soft:
        same = [rival.key for rival in rivals if rival.depth == model.depth]
        all_depths = [rival.key for rival in rivals]
        texts = [text(ours, model, all_depths), ABSENT, text(ours, model, same), ABSENT]
        if is_comparable(metric, model):
            level = [key for key in published if key == f"{rivals[0].name}_d{model.depth}"]
            texts[1], texts[3] = text(paper, model, published), text(paper, model, level)
        rows.append([Cell(model.label), *map(Cell, texts)])
    groups = [("", 1), ("against its best depth", 2), ("against the same depth", 2)]
    return Table(
        f"{own.title} ({metric}).",
        ["model", "here", "in the paper", "here", "in the paper"],
        rows,
        groups=groups,
    )
