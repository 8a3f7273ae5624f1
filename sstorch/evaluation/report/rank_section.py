"""Average ranks of the models and their tests, as a section of the report."""

from __future__ import annotations

import pandas as pd

from sstorch.evaluation.report.document import Block, Cell, Paragraph, Picture, Section, Table
from sstorch.evaluation.report.measures import LEVEL, Measure, measure
from sstorch.evaluation.report.models import deepest
from sstorch.evaluation.report.numbers import ABSENT, listed, number, p_value
from sstorch.evaluation.report.ranks import friedman_test, nemenyi_critical_difference, ranks, wilcoxon_pairs
from sstorch.evaluation.report.results import Results, common_block
from sstorch.plots.critical_difference import plot_critical_difference


def rank_section(results: Results) -> Section | None:
    """Average ranks over data sets, Friedman's test, Nemenyi's critical difference and Wilcoxon pairs.

    None where no metric has two models on two data sets in common.
    """
    tables = {name: scores for name in results.metrics if (scores := _scores(results, name)) is not None}
    if not tables:
        return None
    ranked = {
        name: ranks(scores, higher_is_better=bool(measure(name).higher_is_better))
        for name, scores in tables.items()
    }
    blocks: list[Block] = [
        Paragraph(
            "Every model enters once, at its largest depth, so that no result has a say in the choice. "
            "Ranks are of test means over all folds and starts, 1 the best, ties shared, over the data "
            "sets that all have in common. Friedman's test asks whether any models differ at all; two "
            "models differ by Nemenyi's test if their average ranks are further apart than the critical "
            f"difference (both at the level {number(LEVEL, 2)}; Demšar 2006). Wilcoxon's signed-rank test, "
            "with Holm's correction over all pairs of a metric, also uses the size of the differences."
        ),
        _average_ranks(results, ranked),
        _tests(ranked),
    ]
    for name, table in ranked.items():
        blocks.append(_metric(results, measure(name), tables[name], table))
    return Section("Ranks", blocks)


def _scores(results: Results, metric: str) -> pd.DataFrame | None:
    """Test means of the deepest models on their common data sets; None if there is nothing to rank."""
    if measure(metric).higher_is_better is None:
        return None
    mean = results.cells(metric).mean[[model.key for model in deepest(results.models)]]
    block = common_block(mean)
    if len(block.models) < 2 or len(block.datasets) < 2:
        return None
    return mean.loc[list(block.datasets), list(block.models)]


def _average_ranks(results: Results, ranked: dict[str, pd.DataFrame]) -> Table:
    average = pd.DataFrame({name: table.mean() for name, table in ranked.items()})
    models = [model for model in deepest(results.models) if model.key in average.index]
    models.sort(key=lambda model: (average.loc[model.key].fillna(1e9).iloc[0], model.order))
    best = average.round(2).eq(average.round(2).min())
    rows = [
        [
            Cell(model.label),
            *(
                Cell(number(float(average[name][model.key]), 2), "", bool(best[name][model.key]))
                for name in average.columns
            ),
        ]
        for model in models
    ]
    header = ["model", *(measure(name).short for name in average.columns)]
    return Table("Average rank over data sets, 1 the best.", header, rows)


def _tests(ranked: dict[str, pd.DataFrame]) -> Table:
    rows = []
    for name, table in ranked.items():
        n, k = table.shape
        texts = [ABSENT] * 4
        if k >= 3:
            test = friedman_test(table)
            f = "∞" if test.f_statistic == float("inf") else number(test.f_statistic, 2)
            texts = [number(test.chi_squared, 2), p_value(test.p_value), f, p_value(test.f_p_value)]
        difference = number(nemenyi_critical_difference(k, n, LEVEL), 2)
        rows.append([Cell(measure(name).short), *map(Cell, [str(n), str(k), *texts, difference])])
    header = [
        "metric",
        "data sets",
        "models",
        "Friedman χ²",
        "p",
        "Iman-Davenport F",
        "p",
        "critical difference",
    ]
    return Table("Friedman's test and Nemenyi's critical difference.", header, rows)


def _metric(results: Results, own: Measure, scores: pd.DataFrame, ranked: pd.DataFrame) -> Section:
    average = {results.model(str(key)).label: float(value) for key, value in ranked.mean().items()}
    n, k = ranked.shape
    difference = nemenyi_critical_difference(k, n, LEVEL)
    all_models = deepest(results.models)
    without = [model.label for model in all_models if model.key not in ranked.columns]
    missing = [name for name in results.datasets if name not in ranked.index]
    caption = (
        f"Average ranks of {k} models on {n} data sets, {own.title}; a bar joins models that Nemenyi's test "
        "does not tell apart."
    )
    caption += f" Not ranked, for want of values: {listed(without)}." if without else ""
    caption += f" Data sets left out, not common to all: {listed(missing)}." if missing else ""
    order = sorted(average, key=lambda label: (average[label], label))
    alternative = "Critical-difference diagram; average ranks: " + ", ".join(
        f"{label} {average[label]:.2f}" for label in order
    )
    picture = Picture(
        f"ranks_{own.name}", plot_critical_difference(average, difference), caption, alternative
    )
    pairs = Section("Wilcoxon's signed-rank test, all pairs", [_pairs(results, scores, ranked)], folded=True)
    return Section(own.title, [picture, pairs])


def _pairs(results: Results, scores: pd.DataFrame, ranked: pd.DataFrame) -> Table:
    p_values = wilcoxon_pairs(scores)
    average = ranked.mean()
    keys = sorted(scores.columns, key=lambda key: (average[key], key))

    def cell(one: str, two: str) -> Cell:
        if one == two:
            return Cell("")
        value = p_values[one, two] if (one, two) in p_values else p_values[two, one]
        return Cell(p_value(value), "", best=value < LEVEL)

    rows = [[Cell(results.model(one).label), *(cell(one, two) for two in keys)] for one in keys]
    caption = f"Holm-adjusted p-values, in bold below {number(LEVEL, 2)}; models ordered by average rank."
    return Table(caption, ["", *(results.model(key).label for key in keys)], rows)
