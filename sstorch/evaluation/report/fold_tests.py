"""Soft trees against Cox and the forest, data set by data set over the folds."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import pandas as pd

from sstorch.evaluation.report.document import Block, Cell, Paragraph, Section, Table
from sstorch.evaluation.report.measures import LEVEL, measure
from sstorch.evaluation.report.models import Model
from sstorch.evaluation.report.numbers import ABSENT, number, p_value, signed
from sstorch.evaluation.report.results import Results
from sstorch.evaluation.report.score_tables import heading
from sstorch.metrics.comparison import ResampledTTest, corrected_resampled_t_test

REFERENCES = ("cox", "rsf")

# By pair of models, then by data set.
Tests = dict[tuple[str, str], dict[str, ResampledTTest]]


def fold_section(results: Results) -> Section | None:
    """Corrected resampled t-tests of the soft trees; None where there is nothing to compare."""
    references = [model for model in results.models if model.name in REFERENCES]
    soft = [model for model in results.models if model.is_soft_tree]
    if not references or not soft:
        return None
    blocks: list[Block] = [
        Paragraph(
            "Differences of the test scores of the same folds, soft tree minus reference, with the "
            "corrected resampled t-test of Nadeau and Bengio (2003). A soft tree has the mean over the "
            f"starts of a fold, or the chosen start alone. Significant means p < {number(LEVEL, 2)} on that "
            "data set, not corrected for the number of data sets; the test has few degrees of freedom "
            "(folds less one)."
        )
    ]
    for name in results.metrics:
        if measure(name).higher_is_better is None:
            continue
        tests = {chosen: _all_tests(results, name, soft, references, chosen) for chosen in (False, True)}
        if not any(found for by_pair in tests.values() for found in by_pair.values()):
            continue
        inner: list[Block] = [_counts(name, soft, references, tests)]
        for reference in references:
            details = _details(results, soft, reference, tests[False])
            inner.append(Section(f"By data set, against {reference.label}", [details], folded=True))
        blocks.append(Section(measure(name).title, inner))
    if len(blocks) == 1:
        return None
    return Section("Soft trees against Cox and the random survival forest", blocks)


def compare_folds(one: Mapping[str, pd.Series], two: Mapping[str, pd.Series]) -> dict[str, ResampledTTest]:
    """Corrected resampled t-test of two models on each data set where both have the same folds.

    Args:
        one: scores of the first model by data set, each a series indexed by fold.
        two: of the second; differences are first minus second.

    Returns:
        A test a data set; data sets with fewer than two folds, with other folds, or with a fold where the
        metric is not a finite number have none.
    """
    tests = {}
    for dataset in one:
        if dataset not in two:
            continue
        first, second = one[dataset], two[dataset]
        k = len(first)
        if k < 2 or not first.index.equals(second.index) or not np.isfinite([first, second]).all():
            continue
        # Of k folds, one is the test set and k - 1 are the training set.
        tests[dataset] = corrected_resampled_t_test(
            first.to_numpy(), second.to_numpy(), n_train=k - 1, n_test=1
        )
    return tests


def _all_tests(
    results: Results, metric: str, soft: list[Model], references: list[Model], chosen: bool
) -> Tests:
    by_model: dict[str, dict[str, pd.Series]] = {}
    for (dataset, key), scores in results.by_fold(metric, chosen=chosen).items():
        by_model.setdefault(key, {})[dataset] = scores
    tests = {}
    for model, reference in product(soft, references):
        others = {
            dataset: scores
            for dataset, scores in by_model.get(reference.key, {}).items()
            if results.have_same_folds(dataset, model.key, reference.key)
        }
        tests[model.key, reference.key] = compare_folds(by_model.get(model.key, {}), others)
    return tests


def _counts(metric: str, soft: list[Model], references: list[Model], tests: dict[bool, Tests]) -> Table:
    sign = 1.0 if measure(metric).higher_is_better else -1.0

    def texts(found: dict[str, ResampledTTest]) -> list[str]:
        if not found:
            return [ABSENT, ABSENT]
        differences = [sign * round(test.difference, 3) for test in found.values()]
        significant = [sign * test.difference for test in found.values() if test.p_value < LEVEL]
        wins, ties = sum(d > 0 for d in differences), sum(d == 0 for d in differences)
        sure = sum(d > 0 for d in significant), sum(d < 0 for d in significant)
        rest = len(found) - sum(sure)
        return [f"{wins} / {ties} / {len(found) - wins - ties}", f"{sure[0]} / {rest} / {sure[1]}"]

    rows = []
    for model in soft:
        cells = [
            Cell(text)
            for reference in references
            for chosen in (False, True)
            for text in texts(tests[chosen][model.key, reference.key])
        ]
        rows.append([Cell(model.label), *cells])
    groups = [("", 1)]
    for reference in references:
        groups += [(f"{reference.label}: mean over starts", 2), (f"{reference.label}: chosen start", 2)]
    header = ["model", *["all", "significant"] * (2 * len(references))]
    caption = (
        "Data sets where the soft tree is ahead / level / behind: by the sign of the difference at three "
        "decimals, and counting significant differences only (all others are level)."
    )
    return Table(caption, header, rows, groups=groups)


def _details(results: Results, soft: list[Model], reference: Model, tests: Tests) -> Table:
    rows = []
    for dataset in results.datasets:
        cells = []
        for model in soft:
            test = tests[model.key, reference.key].get(dataset)
            if test is None:
                cells.append(Cell(ABSENT))
            else:
                note = f"p {p_value(test.p_value)}"
                cells.append(Cell(signed(test.difference), note, best=test.p_value < LEVEL))
        rows.append([Cell(dataset), *cells])
    groups, header = heading(soft)
    caption = f"Mean over starts: soft tree minus {reference.label}, in bold where p < {number(LEVEL, 2)}."
    return Table(caption, header, rows, groups=groups)
