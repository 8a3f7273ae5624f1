"""Comparisons of the models of a study: with the published tables, and by tests over folds."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sstorch.bench.report.results import LEVEL, Results, measure_of, published_tables
from sstorch.document import ABSENT, Block, Cell, Section, as_table, number, p_value, signed
from sstorch.metrics.comparison import ResampledTTest, corrected_resampled_t_test

REFERENCES = ("cox", "rsf")
# Their published integrated Brier scores lie below what any calibrated model can reach.
_NOT_COMPARABLE = ("sst_po", "sst_ph")
_PAPER = (
    "The published values are means over 5 folds x 20 starts of Consolo, Amaldi and Carrizosa, “Soft "
    "decision trees for survival analysis”, with other folds and starting points; differences are ours minus "
    "theirs. “ibs” of the paper is compared with ibs_graf; the published IBS of PO and PH lie below what any "
    "calibrated model can reach, and are not compared."
)


def paper_section(results: Results) -> Section | None:
    """Differences to the published tables; None if nothing of them is among the results."""
    averages, tables = {}, list[Block]()
    for measure in filter(lambda measure: measure.published, map(measure_of, results.metrics)):
        both = against_paper(results, measure.name)
        if both.empty:
            continue
        grouped = both.groupby("key")
        averages[measure.short] = grouped[["ours", "paper", "difference"]].mean()
        averages[measure.short]["sets"] = grouped.size().map(str)
        values = both[["ours", "paper", "difference"]].to_numpy()
        cells = [Cell(signed(each), f"{number(ours)} / {number(paper)}") for ours, paper, each in values]
        both = both.assign(cell=pd.Series(cells, both.index))
        table = both.pivot(index="key", columns="dataset", values="cell").fillna(ABSENT)
        table = table.reindex([key for key in results.labels if key in table.index]).rename(results.labels)
        table.attrs = {"caption": "Difference (ours / paper)."}
        tables.append(Section(f"{measure.title}, test", [table], folded=True))
    if not averages:
        return None
    whole = pd.concat(averages, axis=1).reindex(results.models.index).dropna(how="all")
    whole = whole.rename(results.labels).rename_axis(columns=["", "model"])
    whole.attrs = {"caption": "Test means, averaged over the data sets that both have (sets: their number)."}
    glance = Section("Averages over the paper's data sets", [whole])
    return Section("Compared with the paper", [_PAPER, glance, *tables])


def against_paper(results: Results, metric: str) -> pd.DataFrame:
    """Our and published means, NaN if the measures differ: key, dataset, ours, paper, difference."""
    published, theirs = measure_of(metric).published, published_tables()
    theirs = theirs[(theirs["metric"] == published) & (theirs["split"] == "test")]
    theirs = theirs.rename(columns={"model": "plain", "mean": "paper"})
    ours = results.summary(metric)["mean"].rename("ours").dropna().reset_index()
    both = ours.join(results.models[["plain", "depth"]], on="key").astype({"depth": float})
    both = both.merge(theirs.astype({"depth": float}), on=["plain", "depth", "dataset"])
    comparable = ~both["plain"].isin(_NOT_COMPARABLE if published == "ibs" else ())
    difference = (both["ours"] - both["paper"]).where(comparable)
    return both.assign(difference=difference)[["key", "dataset", "ours", "paper", "difference"]]


def fold_section(results: Results) -> Section | None:
    """Corrected resampled t-tests of the soft trees; None if there is nothing to compare."""
    references = results.models.index[results.models["name"].isin(REFERENCES)]
    blocks = [
        Section(f"{measure.title} against {results.labels[reference]}", [table])
        for measure in map(measure_of, results.metrics)
        for reference in references
        if measure.higher_is_better is not None
        and not (table := _fold_table(results, measure.name, reference)).empty
    ]
    if not blocks:
        return None
    text = (
        "Differences of the test scores of the same folds, means over starts, soft tree minus reference, by "
        "the corrected resampled t-test of Nadeau and Bengio (2003): its p-value in small print, in bold "
        f"below {number(LEVEL, 2)}, not corrected for the number of data sets; the test has few degrees of "
        "freedom (folds minus one). First, the number of data sets where the soft tree is better / worse, "
        "counting significant differences only."
    )
    return Section("Soft trees against Cox and the random survival forest", [text, *blocks])


def compare_folds(first: pd.Series, second: pd.Series) -> ResampledTTest | None:
    """Corrected resampled t-test of two models by their scores on the same folds, first minus second."""
    # None for fewer than two folds, for different folds, or where a score is not finite.
    k = len(first)
    if k < 2 or not first.index.equals(second.index) or not np.isfinite([first, second]).all():
        return None
    # Of k folds, one is the test set and k - 1 are the training set.
    return corrected_resampled_t_test(first.to_numpy(), second.to_numpy(), n_train=k - 1, n_test=1)


def _fold_table(results: Results, metric: str, reference: str) -> pd.DataFrame:
    """Tests of the soft trees against a reference, a row per tree, a column per data set."""
    scores, folds = results.by_fold(metric), results.tasks.set_index(["dataset", "key"])
    same, rows = folds[["seed", "n_folds", "data"]], list[list[object]]()
    is_soft = [any(name.startswith("tree.") for name in own) for own in folds["settings"]]
    soft = set(folds.index[is_soft].get_level_values("key"))
    better = 1.0 if measure_of(metric).higher_is_better else -1.0
    for key in [key for key in results.labels if key in soft and {key, reference} <= set(scores)]:
        cells, signs = list[Cell](), list[float]()
        for dataset in results.datasets:
            pair, test = ((dataset, key), (dataset, reference)), None
            if all(each in same.index for each in pair) and same.loc[pair[0]].equals(same.loc[pair[1]]):
                of_pair = scores.loc[dataset, [key, reference]].dropna(how="all")
                test = compare_folds(of_pair[key], of_pair[reference])
            if test is None:
                cells.append(Cell(ABSENT))
                continue
            sure = test.p_value < LEVEL
            signs.append(better * np.sign(test.difference) * sure)
            cells.append(Cell(signed(test.difference), f"p {p_value(test.p_value)}", sure))
        if signs:
            rows.append([results.labels[key], f"{signs.count(1)} / {signs.count(-1)}", *cells])
    return as_table(["model", "better / worse", *results.datasets], rows)
