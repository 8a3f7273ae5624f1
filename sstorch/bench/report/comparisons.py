"""Comparisons of models: ranks over data sets, tests over folds, and box plots of the runs.

The ranks and their tests follow Demšar (2006), Journal of Machine Learning Research 7, 1-30.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import pandas as pd
from scipy import stats

from sstorch.bench.report.plots import plot_critical_difference, plot_scores_by_dataset
from sstorch.bench.report.results import LEVEL, Model, Results, common_block, deepest, measure_of
from sstorch.bench.report.tables import heading
from sstorch.document import ABSENT, Block, Cell, Picture, Section, as_table, listed, number, p_value, signed
from sstorch.exceptions import DataError
from sstorch.metrics.comparison import ResampledTTest, corrected_resampled_t_test
from sstorch.metrics.registry import Metric

REFERENCES = ("cox", "rsf")
# Boxes of a panel.
_MOST_BOXES = 24

# By pair of models, then by data set.
Tests = dict[tuple[str, str], dict[str, ResampledTTest]]


@dataclass(frozen=True)
class FriedmanTest:
    """Result of `friedman_test`.

    Attributes:
        chi_squared: Friedman's statistic, corrected for ties, with n_models - 1 degrees of freedom.
        p_value: of no difference between the models.
        f_statistic: the form of Iman and Davenport, which is less conservative.
        f_p_value: of that form.
    """

    chi_squared: float
    p_value: float
    f_statistic: float
    f_p_value: float


def ranks(scores: pd.DataFrame, *, higher_is_better: bool) -> pd.DataFrame:
    """Ranks of the models on each data set, 1 the best, ties sharing the mean of their ranks.

    Args:
        scores: a row per data set, a column per model, no NaN.
        higher_is_better: direction of the score.

    Raises:
        DataError: a score is NaN.
    """
    if scores.isna().to_numpy().any():
        raise DataError("scores must have a value for every model on every data set; some are NaN.")
    return scores.rank(axis=1, method="average", ascending=not higher_is_better)


def friedman_test(table: pd.DataFrame) -> FriedmanTest:
    """Friedman's test that all models have the same average rank.

    Args:
        table: ranks, a row per data set, a column per model, as in `ranks`.

    Returns:
        Both forms of the statistic with their p-values. Where all models tie everywhere the p-values are 1.

    Raises:
        DataError: fewer than three models or fewer than two data sets.

    References:
        Friedman (1937); Iman and Davenport (1980), Communications in Statistics 9, 571-595.
    """
    n, k = table.shape
    if k < 3 or n < 2:
        raise DataError(f"table must have at least 3 models on 2 data sets, got {k} on {n}.")
    values = table.to_numpy(dtype=float)
    if (values == values[:, :1]).all():
        return FriedmanTest(0.0, 1.0, 0.0, 1.0)
    chi_squared, p = map(float, stats.friedmanchisquare(*values.T))
    rest = n * (k - 1) - chi_squared
    f = np.inf if rest <= 1e-12 * n * k else (n - 1) * chi_squared / rest
    return FriedmanTest(chi_squared, p, float(f), float(stats.f.sf(f, k - 1, (k - 1) * (n - 1))))


def nemenyi_critical_difference(n_models: int, n_datasets: int, level: float = 0.05) -> float:
    """The difference of two average ranks beyond which it is significant, all pairs considered.

    Args:
        n_models: number of models, at least 2.
        n_datasets: number of data sets, at least 1.
        level: family-wise error.

    References:
        Nemenyi (1963); Demšar (2006), section 3.2.2.

    Examples:
        >>> round(nemenyi_critical_difference(4, 14), 2)
        1.25
    """
    q = float(stats.studentized_range.ppf(1.0 - level, n_models, np.inf)) / np.sqrt(2.0)
    return float(q * np.sqrt(n_models * (n_models + 1) / (6.0 * n_datasets)))


def holm(p_values: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Holm's adjusted p-values, in the order given.

    References:
        Holm (1979), Scandinavian Journal of Statistics 6, 65-70.

    Examples:
        >>> holm({("a", "b"): 0.01, ("a", "c"): 0.04, ("b", "c"): 0.03})
        {('a', 'b'): 0.03, ('a', 'c'): 0.06, ('b', 'c'): 0.06}
    """
    largest = 0.0
    adjusted = {}
    for position, pair in enumerate(sorted(p_values, key=lambda pair: p_values[pair])):
        largest = max(largest, min(1.0, (len(p_values) - position) * p_values[pair]))
        adjusted[pair] = largest
    return {pair: adjusted[pair] for pair in p_values}


def wilcoxon_pairs(scores: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Holm-adjusted p-values of Wilcoxon's signed-rank test between all pairs of models.

    Differences of 0 are split between both signs.

    Args:
        scores: a row per data set, a column per model, no NaN.
    """
    p_values = {}
    for one, two in combinations(scores.columns, 2):
        difference = (scores[one] - scores[two]).to_numpy(dtype=float)
        if not difference.any():
            p_values[one, two] = 1.0
            continue
        p_values[one, two] = float(stats.wilcoxon(difference, zero_method="zsplit").pvalue)
    return holm(p_values)


def rank_section(results: Results) -> Section | None:
    """Average ranks over data sets, Friedman's test, Nemenyi's critical difference and Wilcoxon pairs.

    None if no metric has two models on two data sets in common.
    """
    tables = {name: scores for name in results.metrics if (scores := _scores(results, name)) is not None}
    if not tables:
        return None
    ranked = {
        name: ranks(scores, higher_is_better=bool(measure_of(name).higher_is_better))
        for name, scores in tables.items()
    }
    blocks: list[Block] = [
        (
            "Every model enters once, at its largest depth, so that no result influences the choice. "
            "Ranks are of test means over all folds and starts, 1 the best, ties shared, over the data "
            "sets that all have in common. The null hypothesis of Friedman's test is that no models differ; "
            "two models differ by Nemenyi's test if their average ranks are further apart than the critical "
            f"difference (both at the level {number(LEVEL, 2)}; Demšar 2006). Wilcoxon's signed-rank test, "
            "with Holm's correction over all pairs of a metric, also uses the size of the differences."
        ),
        _average_ranks(results, ranked),
        _rank_tests(ranked),
    ]
    for name, table in ranked.items():
        blocks.append(_metric_section(results, measure_of(name), tables[name], table))
    return Section("Ranks", blocks)


def _scores(results: Results, metric: str) -> pd.DataFrame | None:
    """Test means of the deepest models on their common data sets; None if there is nothing to rank."""
    if measure_of(metric).higher_is_better is None:
        return None
    mean = results.cells(metric).mean[[model.key for model in deepest(results.models)]]
    block = common_block(mean)
    if len(block.models) < 2 or len(block.datasets) < 2:
        return None
    return mean.loc[list(block.datasets), list(block.models)]


def _average_ranks(results: Results, ranked: dict[str, pd.DataFrame]) -> pd.DataFrame:
    average = pd.DataFrame({name: table.mean() for name, table in ranked.items()})
    models = [model for model in deepest(results.models) if model.key in average.index]
    models.sort(key=lambda model: (average.loc[model.key].fillna(1e9).iloc[0], model.order))
    best = average.round(2).eq(average.round(2).min())
    rows = [
        [
            model.label,
            *(
                Cell(number(float(average[name][model.key]), 2), "", bool(best[name][model.key]))
                for name in average.columns
            ),
        ]
        for model in models
    ]
    header = ["model", *(measure_of(name).short for name in average.columns)]
    return as_table(header, rows, "Average rank over data sets, 1 the best.")


def _rank_tests(ranked: dict[str, pd.DataFrame]) -> pd.DataFrame:
    rows = []
    for name, table in ranked.items():
        n, k = table.shape
        texts = [ABSENT] * 4
        if k >= 3:
            test = friedman_test(table)
            f = "∞" if test.f_statistic == float("inf") else number(test.f_statistic, 2)
            texts = [number(test.chi_squared, 2), p_value(test.p_value), f, p_value(test.f_p_value)]
        difference = number(nemenyi_critical_difference(k, n, LEVEL), 2)
        rows.append([measure_of(name).short, str(n), str(k), *texts, difference])
    tests = ["Friedman χ²", "p", "Iman-Davenport F", "p", "critical difference"]
    header = ["metric", "data sets", "models", *tests]
    return as_table(header, rows, "Friedman's test and Nemenyi's critical difference.")


def _metric_section(results: Results, measure: Metric, scores: pd.DataFrame, ranked: pd.DataFrame) -> Section:
    average = {results.model(str(key)).label: float(value) for key, value in ranked.mean().items()}
    n, k = ranked.shape
    difference = nemenyi_critical_difference(k, n, LEVEL)
    all_models = deepest(results.models)
    without = [model.label for model in all_models if model.key not in ranked.columns]
    missing = [name for name in results.datasets if name not in ranked.index]
    caption = (
        f"Average ranks of {k} models on {n} data sets, {measure.title}; a bar joins models that "
        "Nemenyi's test does not separate."
    )
    caption += f" Not ranked, for want of values: {listed(without)}." if without else ""
    caption += f" Data sets excluded, not common to all models: {listed(missing)}." if missing else ""
    order = sorted(average, key=lambda label: (average[label], label))
    alternative = "Critical-difference diagram; average ranks: " + ", ".join(
        f"{label} {average[label]:.2f}" for label in order
    )
    picture = Picture(
        f"ranks_{measure.name}", plot_critical_difference(average, difference), caption, alternative
    )
    pairs = Section("Wilcoxon's signed-rank test, all pairs", [_pairs(results, scores, ranked)], folded=True)
    return Section(measure.title, [picture, pairs])


def _pairs(results: Results, scores: pd.DataFrame, ranked: pd.DataFrame) -> pd.DataFrame:
    p_values = wilcoxon_pairs(scores)
    average = ranked.mean()
    keys = sorted(scores.columns, key=lambda key: (average[key], key))

    def cell(one: str, two: str) -> Cell:
        if one == two:
            return Cell("")
        value = p_values[one, two] if (one, two) in p_values else p_values[two, one]
        return Cell(p_value(value), "", best=value < LEVEL)

    rows = [[results.model(one).label, *(cell(one, two) for two in keys)] for one in keys]
    caption = f"Holm-adjusted p-values, in bold below {number(LEVEL, 2)}; models ordered by average rank."
    return as_table(["", *(results.model(key).label for key in keys)], rows, caption)


def fold_section(results: Results) -> Section | None:
    """Corrected resampled t-tests of the soft trees; None if there is nothing to compare."""
    references = [model for model in results.models if model.name in REFERENCES]
    soft = [model for model in results.models if model.is_soft_tree]
    if not references or not soft:
        return None
    blocks: list[Block] = [
        (
            "Differences of the test scores of the same folds, soft tree minus reference, with the "
            "corrected resampled t-test of Nadeau and Bengio (2003). A soft tree has the mean over the "
            f"starts of a fold, or the chosen start alone. Significant means p < {number(LEVEL, 2)} on that "
            "data set, not corrected for the number of data sets; the test has few degrees of freedom "
            "(folds minus one)."
        )
    ]
    for name in results.metrics:
        if measure_of(name).higher_is_better is None:
            continue
        tests = {chosen: _fold_tests(results, name, soft, references, chosen) for chosen in (False, True)}
        if not any(by_dataset for by_pair in tests.values() for by_dataset in by_pair.values()):
            continue
        inner: list[Block] = [_fold_counts(name, soft, references, tests)]
        for reference in references:
            details = _fold_details(results, soft, reference, tests[False])
            inner.append(Section(f"By data set, against {reference.label}", [details], folded=True))
        blocks.append(Section(measure_of(name).title, inner))
    if len(blocks) == 1:
        return None
    return Section("Soft trees against Cox and the random survival forest", blocks)


def compare_folds(one: Mapping[str, pd.Series], two: Mapping[str, pd.Series]) -> dict[str, ResampledTTest]:
    """Corrected resampled t-test of two models, first minus second, on each data set with the same folds.

    Scores are series indexed by fold, by data set. Data sets with fewer than two folds, or with a fold where
    the metric is not a finite number, have no test.
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


def _fold_tests(
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


def _fold_counts(
    metric: str, soft: list[Model], references: list[Model], tests: dict[bool, Tests]
) -> pd.DataFrame:
    sign = 1.0 if measure_of(metric).higher_is_better else -1.0

    def texts(by_dataset: dict[str, ResampledTTest]) -> list[str]:
        if not by_dataset:
            return [ABSENT, ABSENT]
        differences = [sign * round(test.difference, 3) for test in by_dataset.values()]
        significant = [sign * test.difference for test in by_dataset.values() if test.p_value < LEVEL]
        wins, ties = sum(d > 0 for d in differences), sum(d == 0 for d in differences)
        sure = sum(d > 0 for d in significant), sum(d < 0 for d in significant)
        rest = len(by_dataset) - sum(sure)
        return [f"{wins} / {ties} / {len(by_dataset) - wins - ties}", f"{sure[0]} / {rest} / {sure[1]}"]

    rows = []
    for model in soft:
        cells = [
            text
            for reference in references
            for chosen in (False, True)
            for text in texts(tests[chosen][model.key, reference.key])
        ]
        rows.append([model.label, *cells])
    groups = [("", 1)]
    for reference in references:
        groups += [(f"{reference.label}: mean over starts", 2), (f"{reference.label}: chosen start", 2)]
    header = ["model", *["all", "significant"] * (2 * len(references))]
    caption = (
        "Data sets where the soft tree is ahead / level / behind: by the sign of the difference at three "
        "decimals, and counting significant differences only (all others are level)."
    )
    return as_table(header, rows, caption, groups=groups)


def _fold_details(results: Results, soft: list[Model], reference: Model, tests: Tests) -> pd.DataFrame:
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
        rows.append([dataset, *cells])
    groups, header = heading(soft)
    caption = f"Mean over starts: soft tree minus {reference.label}, in bold where p < {number(LEVEL, 2)}."
    return as_table(header, rows, caption, groups=groups)


def box_section(results: Results) -> Section | None:
    """Box plots by metric; None if nothing can be drawn.

    Models are there at every depth; where that makes more boxes than fit, at their largest.
    """
    metrics = [name for name in results.metrics if measure_of(name).published is not None]
    models = list(results.models) if len(results.models) <= _MOST_BOXES else deepest(results.models)
    blocks: list[Block] = []
    for name in metrics:
        measure = measure_of(name)
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
            f"{measure.title} ({measure.direction})",
        )
        caption = f"{measure.title} on the test folds, all folds and starts; {measure.direction}."
        picture = Picture(
            f"boxes_{name}", figure, caption, f"Box plots of {measure.title} by data set and model"
        )
        blocks.append(Section(f"{measure.title} by data set", [picture], folded=True))
    if not blocks:
        return None
    text = (
        "Box: quartiles and median; whiskers: to the last run within 1.5 times the box; points: runs "
        "beyond. Models with one fit have a run a fold."
    )
    if len(models) < len(results.models):
        text += " Every model at its largest depth; with --models those of another."
    return Section("Distributions over folds and starts", [text, *blocks])


def _values(results: Results, metric: str, models: Sequence[Model]) -> dict[tuple[str, str], list[float]]:
    """Finite test scores by data set and label; the others are counted in a section of their own."""
    labels = {model.key: model.label for model in models}
    rows = results.values(metric)
    rows = rows[np.isfinite(rows["value"]) & rows["key"].isin(labels)]
    return {
        (str(dataset), labels[str(key)]): scores.tolist()
        for (dataset, key), scores in rows.groupby(["dataset", "key"])["value"]
    }
