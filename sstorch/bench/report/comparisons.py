"""Comparisons of models: ranks over data sets, tests over folds, and box plots of the runs.

The ranks and their tests follow Demšar (2006), Journal of Machine Learning Research 7, 1-30.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from sstorch.bench.report.plots import plot_critical_difference, plot_scores_by_dataset
from sstorch.bench.report.results import LEVEL, Model, Results, common_block, deepest, measure_of
from sstorch.bench.report.tables import heading
from sstorch.document import ABSENT, Block, Cell, Picture, Section, as_table, listed, number, p_value, signed
from sstorch.exceptions import DataError
from sstorch.metrics.comparison import ResampledTTest, corrected_resampled_t_test

REFERENCES = ("cox", "rsf")
# Boxes of a panel.
_MOST_BOXES = 24


class FriedmanTest(NamedTuple):
    """Result of `friedman_test`: Friedman's statistic, corrected for ties, and that of Iman and Davenport."""

    chi_squared: float  # with n_models - 1 degrees of freedom
    p_value: float  # of no difference between the models
    f_statistic: float  # which is less conservative
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
        raise DataError("scores must have a value for every model on every data set; some are NaN")
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
        raise DataError(f"table must have at least 3 models on 2 data sets, got {k} on {n}")
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
    values = pd.Series(list(p_values.values()), dtype=float).sort_values()
    factors = np.arange(len(values), 0, -1)
    adjusted = (values * factors).clip(upper=1.0).cummax().sort_index()
    return dict(zip(p_values, adjusted.tolist(), strict=True))


def wilcoxon_pairs(scores: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Holm-adjusted p-values of Wilcoxon's signed-rank test between all pairs of models.

    Differences of 0 are split between both signs.

    Args:
        scores: a row per data set, a column per model, no NaN.
    """
    p_values = {}
    for one, two in combinations(scores.columns, 2):
        difference = (scores[one] - scores[two]).to_numpy(dtype=float)
        some = difference.any()
        p_values[one, two] = float(stats.wilcoxon(difference, zero_method="zsplit").pvalue) if some else 1.0
    return holm(p_values)


def rank_section(results: Results) -> Section | None:
    """Average ranks over data sets, Friedman's test, Nemenyi's critical difference and Wilcoxon pairs.

    None if no metric has two models on two data sets in common.
    """
    ranked, sections, tests = dict[str, pd.DataFrame](), list[Block](), list[list[str]]()
    for name in results.metrics:
        measure, mean = measure_of(name), results.cells(name).mean
        block = common_block(mean[[model.key for model in deepest(results.models)]])
        if measure.higher_is_better is None or min(len(block.models), len(block.datasets)) < 2:
            continue
        scores = mean.loc[block.datasets, block.models]
        ranked[name] = ranks(scores, higher_is_better=measure.higher_is_better)
        tests.append(_rank_test(name, ranked[name]))
        sections.append(_metric_section(results, name, scores, ranked[name]))
    if not ranked:
        return None
    text = (
        "Every model enters once, at its largest depth, so that no result influences the choice. "
        "Ranks are of test means over all folds and starts, 1 the best, ties shared, over the data "
        "sets that all have in common. The null hypothesis of Friedman's test is that no models differ; "
        "two models differ by Nemenyi's test if their average ranks are further apart than the critical "
        f"difference (both at the level {number(LEVEL, 2)}; Demšar 2006). Wilcoxon's signed-rank test, "
        "with Holm's correction over all pairs of a metric, also uses the size of the differences."
    )
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
    friedman = as_table(header, tests, "Friedman's test and Nemenyi's critical difference.")
    return Section("Ranks", [text, _average_ranks(results, ranked), friedman, *sections])


def _average_ranks(results: Results, ranked: dict[str, pd.DataFrame]) -> pd.DataFrame:
    average = pd.DataFrame({name: table.mean() for name, table in ranked.items()})
    models = [model for model in deepest(results.models) if model.key in average.index]
    models.sort(key=lambda model: (average.loc[model.key].fillna(1e9).iloc[0], model.order))
    best = average.round(2).eq(average.round(2).min())
    rows = [
        [m.label, *(Cell(number(average[k][m.key], 2), best=bool(best.at[m.key, k])) for k in average)]
        for m in models
    ]
    header = ["model", *(measure_of(name).short for name in average.columns)]
    return as_table(header, rows, "Average rank over data sets, 1 the best.")


def _rank_test(metric: str, table: pd.DataFrame) -> list[str]:
    (n, k), texts = table.shape, [ABSENT] * 4
    if k >= 3:
        test = friedman_test(table)
        texts = [number(test.chi_squared, 2), p_value(test.p_value)]
        texts += [number(test.f_statistic, 2), p_value(test.f_p_value)]
    difference = number(nemenyi_critical_difference(k, n, LEVEL), 2)
    return [measure_of(metric).short, str(n), str(k), *texts, difference]


def _metric_section(results: Results, metric: str, scores: pd.DataFrame, ranked: pd.DataFrame) -> Section:
    title, (n, k), mean = measure_of(metric).title, ranked.shape, ranked.mean()
    keys = sorted(scores.columns, key=lambda key: (mean[key], key))
    average = {results.model(key).label: float(mean[key]) for key in keys}
    without = [model.label for model in deepest(results.models) if model.key not in ranked.columns]
    missing = [name for name in results.datasets if name not in ranked.index]
    caption = (
        f"Average ranks of {k} models on {n} data sets, {title}; a bar joins models that "
        "Nemenyi's test does not separate."
    )
    caption += f" Not ranked, for want of values: {listed(without)}." if without else ""
    caption += f" Data sets excluded, not common to all models: {listed(missing)}." if missing else ""
    figure = plot_critical_difference(average, nemenyi_critical_difference(k, n, LEVEL))
    texts = ", ".join(f"{label} {value:.2f}" for label, value in average.items())
    alternative = f"Critical-difference diagram; average ranks: {texts}"
    p_values = {frozenset(pair): value for pair, value in wilcoxon_pairs(scores).items()}

    def cell(one: str, two: str) -> Cell:
        value = p_values.get(frozenset((one, two)))
        return Cell("") if value is None else Cell(p_value(value), best=value < LEVEL)

    rows = [[results.model(one).label, *(cell(one, two) for two in keys)] for one in keys]
    text = f"Holm-adjusted p-values, in bold below {number(LEVEL, 2)}; models ordered by average rank."
    pairs = as_table(["", *average], rows, text)
    tests = Section("Wilcoxon's signed-rank test, all pairs", [pairs], folded=True)
    return Section(title, [Picture(f"ranks_{metric}", figure, caption, alternative), tests])


def fold_section(results: Results) -> Section | None:
    """Corrected resampled t-tests of the soft trees; None if there is nothing to compare."""
    references = [model for model in results.models if model.name in REFERENCES]
    soft = [model for model in results.models if model.family == "soft trees"]
    blocks: list[Block] = []
    for measure in (measure_of(name) for name in results.metrics):
        tests = _fold_tests(results, measure.name, soft, references)
        if measure.higher_is_better is None or tests.empty:
            continue
        sign = 1.0 if measure.higher_is_better else -1.0
        inner: list[Block] = [_fold_counts(soft, references, tests, sign)]
        for reference in references:
            details = _fold_details(results, soft, reference, tests)
            inner.append(Section(f"By data set, against {reference.label}", [details], folded=True))
        blocks.append(Section(measure.title, inner))
    if not blocks:
        return None
    text = (
        "Differences of the test scores of the same folds, soft tree minus reference, with the "
        "corrected resampled t-test of Nadeau and Bengio (2003). A soft tree has the mean over the "
        f"starts of a fold, or the chosen start alone. Significant means p < {number(LEVEL, 2)} on that "
        "data set, not corrected for the number of data sets; the test has few degrees of freedom "
        "(folds minus one)."
    )
    return Section("Soft trees against Cox and the random survival forest", [text, *blocks])


def compare_folds(first: pd.Series, second: pd.Series) -> ResampledTTest | None:
    """Corrected resampled t-test of two models by their scores on the same folds, first minus second.

    None for fewer than two folds, others of one than of the other, or where a score is not finite.
    """
    k = len(first)
    if k < 2 or not first.index.equals(second.index) or not np.isfinite([first, second]).all():
        return None
    # Of k folds, one is the test set and k - 1 are the training set.
    return corrected_resampled_t_test(first.to_numpy(), second.to_numpy(), n_train=k - 1, n_test=1)


def _fold_tests(results: Results, metric: str, soft: list[Model], references: list[Model]) -> pd.DataFrame:
    """Difference and p-value of every soft tree, reference and data set, of means and of chosen starts."""
    rows = []
    for chosen in (False, True):
        scores = results.by_fold(metric, chosen=chosen)
        known = {index[:2] for index in scores.index}
        for dataset, model, reference in product(results.datasets, soft, references):
            pair = (dataset, model.key), (dataset, reference.key)
            if known.issuperset(pair) and results.have_same_folds(dataset, model.key, reference.key):
                test = compare_folds(*(scores.loc[each] for each in pair))
                if test is not None:
                    rows.append(
                        (model.label, reference.label, chosen, dataset, test.difference, test.p_value)
                    )
    return pd.DataFrame(rows, columns=["model", "reference", "chosen", "dataset", "difference", "p"])


def _fold_counts(
    soft: list[Model], references: list[Model], tests: pd.DataFrame, sign: float
) -> pd.DataFrame:
    texts = {}
    for key, found in tests.groupby(["model", "reference", "chosen"]):
        ahead = np.sign(sign * found["difference"].round(3))
        sure = np.sign(sign * found["difference"]).where(found["p"] < LEVEL, 0.0)
        texts[key] = [" / ".join(str(int((each == k).sum())) for k in (1, 0, -1)) for each in (ahead, sure)]
    pairs, rows = list(product([reference.label for reference in references], (False, True))), []
    for model in soft:
        cells = [texts.get((model.label, *pair), [ABSENT, ABSENT]) for pair in pairs]
        rows.append([model.label, *(text for each in cells for text in each)])
    how = {False: "mean over starts", True: "chosen start"}
    groups = [("", 1), *((f"{label}: {how[chosen]}", 2) for label, chosen in pairs)]
    header = ["model", *["all", "significant"] * len(pairs)]
    caption = (
        "Data sets where the soft tree is ahead / level / behind: by the sign of the difference at three "
        "decimals, and counting significant differences only (all others are level)."
    )
    return as_table(header, rows, caption, groups=groups)


def _fold_details(results: Results, soft: list[Model], reference: Model, tests: pd.DataFrame) -> pd.DataFrame:
    own = tests[(tests["reference"] == reference.label) & ~tests["chosen"]]
    cells = {
        (dataset, model): Cell(signed(difference), f"p {p_value(p)}", best=p < LEVEL)
        for model, _, _, dataset, difference, p in own.itertuples(index=False)
    }
    rows = [
        [dataset, *(cells.get((dataset, model.label), Cell(ABSENT)) for model in soft)]
        for dataset in results.datasets
    ]
    groups, header = heading(soft)
    caption = f"Mean over starts: soft tree minus {reference.label}, in bold where p < {number(LEVEL, 2)}."
    return as_table(header, rows, caption, groups=groups)


def box_section(results: Results) -> Section | None:
    """Box plots by metric; None if nothing can be drawn.

    Models are there at every depth; where that makes more boxes than fit, at their largest.
    """
    models = list(results.models) if len(results.models) <= _MOST_BOXES else deepest(results.models)
    families, blocks = {model.label: model.family for model in models}, list[Block]()
    labels = {model.key: model.label for model in models}
    for measure in (measure_of(name) for name in results.metrics):
        rows = results.values(measure.name)
        rows = rows[np.isfinite(rows["value"]) & rows["key"].isin(labels)]
        if measure.published is None or rows.empty:
            continue
        rows = rows.assign(label=rows["key"].map(labels))
        figure = plot_scores_by_dataset(rows, families, f"{measure.title} ({measure.direction})")
        caption = f"{measure.title} on the test folds, all folds and starts; {measure.direction}."
        alternative = f"Box plots of {measure.title} by data set and model"
        picture = Picture(f"boxes_{measure.name}", figure, caption, alternative)
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
