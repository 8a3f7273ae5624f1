"""Comparisons of models: with the paper, by ranks over data sets, and by tests over folds.

The ranks and their tests follow Demšar (2006), Journal of Machine Learning Research 7, 1-30.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from sstorch.bench.report.results import LEVEL, Results, common, measure_of, published_tables
from sstorch.document import ABSENT, Block, Cell, Picture, Section, as_table, listed, number, p_value, signed
from sstorch.exceptions import DataError
from sstorch.metrics.comparison import ResampledTTest, corrected_resampled_t_test
from sstorch.plots.figures import ShownFigure

REFERENCES = ("cox", "rsf")
# Differences to the paper from which on a model is marked as worse.
_MARGIN = 0.02
# Their published integrated Brier scores lie below what any calibrated model can reach.
_NOT_COMPARABLE = ("sst_po", "sst_ph")

# ---------------------------------------------------------------------- the paper

_PAPER = (
    "The published values are the means over 5 folds x 20 starts of Consolo, Amaldi and Carrizosa, “Soft "
    "decision trees for survival analysis”, sections 5.2, D.1 and D.2. Differences are ours minus theirs; "
    "they have other folds and starting points, and the standard deviations in the tables of scores show its "
    "size. “ibs” of the paper is compared with ibs_graf. The published IBS of PO and PH are not comparable: "
    "they lie below what any calibrated model can reach, for instance .033 on Aids2, where Kaplan-Meier "
    "scores .138 to .147 by convention and no model discriminates."
)


def paper_section(results: Results) -> Section | None:
    """Differences to the published tables; None if nothing of them is among the results."""
    averages, tables = {}, list[Block]()
    for measure in (measure_of(name) for name in results.metrics):
        for part in ("test", "train") if measure.published else ():
            both = against_paper(results, measure.name, part)
            if both.empty:
                continue
            if part == "test":
                columns = both.groupby("key")[["ours", "paper", "difference"]].mean()
                averages[measure.short] = columns.assign(sets=both.groupby("key").size())
            sign = 1.0 if measure.higher_is_better else -1.0
            table = _differences(results, both, sign)
            tables.append(Section(f"{measure.title}, {part}", [table], folded=True))
    if not averages:
        return None
    whole = pd.concat(averages, axis=1).reindex(results.models.index).dropna(how="all")
    rows = []
    for key, values in zip(whole.index, whole.to_numpy().reshape(len(whole), -1, 4), strict=True):
        cells = []
        for ours, paper, difference, sets in values:
            few = f"{sets:g} set{'s' * bool(sets > 1)}" if sets == sets else ""
            cells += [Cell(number(ours), few), Cell(number(paper)), Cell(signed(difference))]
        rows.append([results.labels[key], *cells])
    header = [text for short in averages for text in (f"{short}, ours", "paper", "difference")]
    caption = "Test means, averaged over the data sets that both have (their number in small print)."
    glance = Section("Averages over the paper's data sets", [as_table(["model", *header], rows, caption)])
    return Section("Compared with the paper", [_PAPER, glance, *tables])


def against_paper(results: Results, metric: str, part: str) -> pd.DataFrame:
    """Our and the published means, a row for each model and data set that both have.

    Columns key, dataset, ours, paper, difference; NaN if the two do not measure the same thing.
    """
    published, theirs = measure_of(metric).published, published_tables()
    theirs = theirs[(theirs["metric"] == published) & (theirs["split"] == part)]
    theirs = theirs.rename(columns={"model": "plain", "mean": "paper"})
    ours = results.summary(metric, part)["mean"].rename("ours").dropna().reset_index()
    both = ours.join(results.models[["plain", "depth"]], on="key").astype({"depth": float})
    both = both.merge(theirs.astype({"depth": float}), on=["plain", "depth", "dataset"])
    comparable = ~both["plain"].isin(_NOT_COMPARABLE if published == "ibs" else ())
    difference = (both["ours"] - both["paper"]).where(comparable)
    return both.assign(difference=difference)[["key", "dataset", "ours", "paper", "difference"]]


def _differences(results: Results, both: pd.DataFrame, sign: float) -> pd.DataFrame:
    """Differences to the paper, a row per model, a column per data set; the last is their average."""
    datasets = [name for name in results.datasets if name in set(both["dataset"])]
    cells = {}
    for key, dataset, ours, paper, difference in both.itertuples(index=False):
        worse = "▼ " * (round(sign * difference, 3) < -_MARGIN)
        cells[key, dataset] = Cell(worse + signed(difference), f"{number(ours)} / {number(paper)}")
    average = dict(both.groupby("key")["difference"].mean())
    rows = [
        [label, *(cells.get((key, name), Cell(ABSENT)) for name in datasets), signed(average[key])]
        for key, label in results.labels.items()
        if key in average
    ]
    caption = f"Difference (ours / paper); ▼ worse by more than {number(_MARGIN, 2)}."
    return as_table(["model", *datasets, "average"], rows, caption)


# ---------------------------------------------------------------------- ranks


class FriedmanTest(NamedTuple):
    """Result of `friedman_test`: Friedman's statistic, corrected for ties, and that of Iman and Davenport."""

    chi_squared: float  # with n_models - 1 degrees of freedom
    p_value: float  # of no difference between the models
    f_statistic: float  # which is less conservative
    f_p_value: float


def friedman_test(ranks: pd.DataFrame) -> FriedmanTest:
    """Friedman's test that all models have the same average rank, p = 1 where all tie everywhere.

    Args:
        ranks: a row per data set, at least 2, a column per model, at least 3; ties share their mean rank.

    References:
        Friedman (1937); Iman and Davenport (1980), Communications in Statistics 9, 571-595.
    """
    n, k = ranks.shape
    if k < 3 or n < 2:
        raise DataError(f"`ranks` must have at least 3 models on 2 data sets, got {k} on {n}")
    values = ranks.to_numpy(dtype=float)
    if (values == values[:, :1]).all():
        return FriedmanTest(0.0, 1.0, 0.0, 1.0)
    chi_squared, p = map(float, stats.friedmanchisquare(*values.T))
    rest = n * (k - 1) - chi_squared
    f = np.inf if rest <= 1e-12 * n * k else (n - 1) * chi_squared / rest
    return FriedmanTest(chi_squared, p, float(f), float(stats.f.sf(f, k - 1, (k - 1) * (n - 1))))


def nemenyi_critical_difference(n_models: int, n_datasets: int, level: float = 0.05) -> float:
    """The difference of average ranks that is significant at a family-wise level, all pairs considered.

    References:
        Nemenyi (1963); Demšar (2006), section 3.2.2.
    """
    q = float(stats.studentized_range.ppf(1.0 - level, n_models, np.inf)) / np.sqrt(2.0)
    return float(q * np.sqrt(n_models * (n_models + 1) / (6.0 * n_datasets)))


def holm(p_values: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Holm's adjusted p-values, in the order given: Holm (1979), Scandinavian Journal of Statistics 6."""
    values = pd.Series(list(p_values.values()), dtype=float).sort_values()
    factors = np.arange(len(values), 0, -1)
    adjusted = (values * factors).clip(upper=1.0).cummax().sort_index()
    return dict(zip(p_values, adjusted.tolist(), strict=True))


def wilcoxon_pairs(scores: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Holm-adjusted p-values of Wilcoxon's signed-rank test between all pairs of columns, the models.

    Differences of 0 are split between both signs.
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
    average, sections, tests = {}, list[Block](), list[list[str]]()
    for measure in (measure_of(name) for name in results.metrics):
        scores = common(results.means(measure.name).loc[results.deepest()]).T
        (n, k), texts = scores.shape, [ABSENT] * 4
        if measure.higher_is_better is None or min(n, k) < 2:
            continue
        ranks = scores.rank(axis=1, ascending=not measure.higher_is_better)
        if k >= 3:
            test = friedman_test(ranks)
            texts = [number(test.chi_squared, 2), p_value(test.p_value)]
            texts += [number(test.f_statistic, 2), p_value(test.f_p_value)]
        difference = nemenyi_critical_difference(k, n, LEVEL)
        tests.append([measure.short, str(n), str(k), *texts, number(difference, 2)])
        average[measure.short] = ranks.mean()
        sections.append(_ranks_of(results, measure.name, scores, ranks.mean(), difference))
    if not average:
        return None
    text = (
        "Every model enters once, at its largest depth, so that no result influences the choice. "
        "Ranks are of test means over all folds and starts, 1 the best, ties shared, over the data "
        "sets that all have in common. The null hypothesis of Friedman's test is that no models differ; "
        "two models differ by Nemenyi's test if their average ranks are further apart than the critical "
        f"difference (both at the level {number(LEVEL, 2)}; Demšar 2006). Wilcoxon's signed-rank test, "
        "with Holm's correction over all pairs of a metric, also uses the size of the differences."
    )
    table = pd.DataFrame(average)
    table = table.reindex(results.models.index.intersection(table.index)).sort_values(table.columns[0])
    best = table.round(2).eq(table.round(2).min())
    rows = [
        [results.labels[key], *(Cell(number(v, 2), best=bool(b)) for v, b in zip(own, marks, strict=True))]
        for key, own, marks in zip(table.index, table.to_numpy(), best.to_numpy(), strict=True)
    ]
    glance = as_table(["model", *table], rows, "Average rank over data sets, 1 the best.")
    header = ["metric", "data sets", "models", "Friedman χ²", "p", "Iman-Davenport F", "p"]
    caption = "Friedman's test and Nemenyi's critical difference."
    friedman = as_table([*header, "critical difference"], tests, caption)
    return Section("Ranks", [text, glance, friedman, *sections])


def _ranks_of(
    results: Results, metric: str, scores: pd.DataFrame, mean: pd.Series, difference: float
) -> Section:
    """Critical-difference diagram and Wilcoxon's tests of a metric, from scores (data sets x models)."""
    title, (n, k) = measure_of(metric).title, scores.shape
    keys = sorted(scores.columns, key=lambda key: (mean[key], key))
    average = {results.labels[key]: float(mean[key]) for key in keys}
    without = [results.labels[key] for key in results.deepest() if key not in scores]
    missing = [name for name in results.datasets if name not in scores.index]
    caption = (
        f"Average ranks of {k} models on {n} data sets, {title}; models differ by Nemenyi's test where their "
        "bars, of the length of the critical difference, do not overlap."
    )
    caption += f" Not ranked, for want of values: {listed(without)}." if without else ""
    caption += f" Data sets excluded, not common to all models: {listed(missing)}." if missing else ""
    texts = ", ".join(f"{label} {value:.2f}" for label, value in average.items())
    alternative = f"Average ranks: {texts}"
    figure = plot_critical_difference(average, difference)
    p_values = {frozenset(pair): value for pair, value in wilcoxon_pairs(scores).items()}

    def cell(one: str, two: str) -> Cell:
        value = p_values.get(frozenset((one, two)))
        return Cell("") if value is None else Cell(p_value(value), best=value < LEVEL)

    rows = [[label, *(cell(one, two) for two in keys)] for one, label in zip(keys, average, strict=True)]
    text = f"Holm-adjusted p-values, in bold below {number(LEVEL, 2)}; models ordered by average rank."
    pairs = as_table(["", *average], rows, text)
    tests = Section("Wilcoxon's signed-rank test, all pairs", [pairs], folded=True)
    return Section(title, [Picture(f"ranks_{metric}", figure, caption, alternative), tests])


def plot_critical_difference(ranks: Mapping[str, float], critical_difference: float) -> Figure:
    """Average ranks with bars of the length of the critical difference: models differ if theirs are apart."""
    names = sorted(ranks, key=lambda name: (ranks[name], name))
    values, places = [ranks[name] for name in names], range(len(names))
    figure = ShownFigure(figsize=(9, 0.8 + 0.26 * len(names)), layout="constrained")
    ax = figure.subplots()
    half = 0.5 * critical_difference
    ax.errorbar(values, places, xerr=half, fmt="o", color="#22303c", ecolor="#b5495b", elinewidth=3)
    ax.set_yticks(places, [f"{name}  {value:.2f}" for name, value in zip(names, values, strict=True)])
    ax.invert_yaxis()
    ax.set_xlabel("average rank")
    return figure


# ---------------------------------------------------------------------- folds


def fold_section(results: Results) -> Section | None:
    """Corrected resampled t-tests of the soft trees; None if there is nothing to compare."""
    models, blocks = results.models, list[Block]()
    references = models.index[models["name"].isin(REFERENCES)]
    for measure in (measure_of(name) for name in results.metrics):
        sign = {True: 1.0, False: -1.0, None: 0.0}[measure.higher_is_better]
        tables = [
            Section(f"{how} against {results.labels[reference]}", [table], folded=chosen)
            for reference in references
            for chosen, how in ((False, "Mean over starts"), (True, "Chosen start"))
            if sign and not (table := _fold_table(results, measure.name, reference, chosen, sign)).empty
        ]
        blocks += [Section(measure.title, tables)] * bool(tables)
    if not blocks:
        return None
    text = (
        "Differences of the test scores of the same folds, soft tree minus reference, with the "
        "corrected resampled t-test of Nadeau and Bengio (2003): its p-value in small print, in bold below "
        f"{number(LEVEL, 2)}, not corrected for the number of data sets; the test has few degrees of freedom "
        "(folds minus one). First, the data sets where the soft tree is ahead / level / behind: by the sign "
        "of the difference at three decimals, and counting significant differences only."
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


def _fold_table(results: Results, metric: str, reference: str, chosen: bool, sign: float) -> pd.DataFrame:
    """Tests of the soft trees against a reference, a row per tree, a column per data set."""
    scores, folds = results.by_fold(metric, chosen=chosen), results.tasks.set_index(["dataset", "key"])
    same, rows = folds[["seed", "n_folds", "data"]], list[list[object]]()
    soft = results.models.index[results.models["family"] == "soft trees"].intersection(scores.columns)
    for key in soft if reference in scores else ():
        tests = {}
        for dataset in scores.index.unique("dataset"):
            pair = (dataset, key), (dataset, reference)
            if all(each in same.index for each in pair) and same.loc[pair[0]].equals(same.loc[pair[1]]):
                of_pair = scores.loc[dataset, [key, reference]].dropna(how="all")
                tests[dataset] = compare_folds(of_pair[key], of_pair[reference])
        known = {dataset: test for dataset, test in tests.items() if test is not None}
        if known:
            signs = [np.sign(sign * round(test.difference, 3)) for test in known.values()]
            sure = [np.sign(sign * test.difference) * (test.p_value < LEVEL) for test in known.values()]
            counts = [" / ".join(str(each.count(k)) for k in (1, 0, -1)) for each in (signs, sure)]
            cells = [
                Cell(signed(test.difference), f"p {p_value(test.p_value)}", test.p_value < LEVEL)
                if (test := known.get(dataset))
                else Cell(ABSENT)
                for dataset in results.datasets
            ]
            rows.append([results.labels[key], *counts, *cells])
    return as_table(["model", "all", "significant", *results.datasets], rows)
