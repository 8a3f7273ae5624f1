"""Scores of held-out rows with confidence intervals: those of a run, and of its reference models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from sstorch.bench.peers import NULL_MODELS, ONE_LEAF, TREE
from sstorch.document import Cell, Table, number, signed
from sstorch.metrics.comparison import corrected_resampled_t_test, possible
from sstorch.metrics.registry import METRICS, Metric

# Names of models in texts.
SHOWN = {TREE: "this model", ONE_LEAF: "regression without groups"}
# Scores that differ by less in every fold are those of the same curves.
_EQUAL = 1e-12


def metric_of(score: str) -> tuple[Metric, str]:
    """The metric of a column of scores such as ``"ibs:relapse"``, and the name of its cause, or ""."""
    name, _, cause = score.partition(":")
    return METRICS[name], cause


def title_of(score: str) -> str:
    """Title of a column of scores, with its cause."""
    metric, cause = metric_of(score)
    return metric.title + f" of {cause}" * bool(cause)


def headlines(scores: list[str]) -> list[str]:
    """The main scores: concordance, of each cause, or if there is none the Brier score."""
    main = [name for name in scores if "headline" in metric_of(name)[0].tags]
    return [name for name in main if metric_of(name)[0].higher_is_better] or main[:1]


def performance(peers: pd.DataFrame) -> pd.DataFrame:
    """Mean scores of the test folds with 95 % confidence intervals, and their differences to the model's.

    Intervals are those of the corrected resampled t-test: scores of folds depend on each other by their
    training rows. Differences are paired by fold, over the folds that both models have.

    Args:
        peers: scores by fold, :func:`sstorch.bench.peers.score_run`.

    Returns:
        Indexed by score and model: ``value``, ``lower``, ``upper``, ``folds`` (with a value), and
        ``difference`` of the model of the run less this one, with ``difference lower`` and ``difference
        upper``. What fewer than two folds, or equal scores in all of them, leave unknown is NaN.

    References:
        Nadeau and Bengio (2003), Machine Learning 52, 239-281.
    """
    n_folds = peers["fold"].nunique()
    rows = {}
    for score in [str(name) for name in peers if name not in ("model", "fold")]:
        table, metric = peers.pivot(index="fold", columns="model", values=score), metric_of(score)[0]
        for model in dict.fromkeys(peers["model"]):
            own = table[model].dropna()
            value, lower, upper = _interval(own, None, n_folds)
            lower, upper = (possible(end, metric.ideal, metric.higher_is_better) for end in (lower, upper))
            line = {"value": value, "lower": lower, "upper": upper}
            line["folds"] = len(own)
            other = np.nan, np.nan, np.nan
            if model != TREE:
                both = table[[TREE, model]].dropna()
                other = _interval(both[TREE], both[model], n_folds)
                if abs(both[TREE] - both[model]).max() <= _EQUAL:  # the same curves: there is no variance
                    other = 0.0, np.nan, np.nan
            names = "difference", "difference lower", "difference upper"
            rows[score, model] = line | dict(zip(names, other, strict=True))
    index = pd.MultiIndex.from_tuples(list(rows), names=["score", "model"])
    return pd.DataFrame(list(rows.values()), index=index)


def _interval(
    first: pd.Series[float], second: pd.Series[float] | None, n_folds: int
) -> tuple[float, float, float]:
    if len(first) < 2:
        return float(first.mean()) if second is None else np.nan, np.nan, np.nan
    zero = np.zeros(len(first)) if second is None else second.to_numpy()
    # Of k folds, one is the test set and k - 1 are the training set.
    found = corrected_resampled_t_test(first.to_numpy(), zero, n_train=n_folds - 1, n_test=1)
    return found.difference, found.lower, found.upper


def performance_lines(peers: pd.DataFrame) -> list[str]:
    """The main scores of a run and of its reference models in held-out rows, with intervals, as sentences."""
    table, n_folds = performance(peers), peers["fold"].nunique()
    lines = [f"Held-out rows, mean of {n_folds} folds (95 % confidence interval)"]
    for score in headlines(list(table.index.unique("score"))):
        own = pd.DataFrame(table.xs(score, level="score"))
        others = [str(name) for name in own.index if name not in (TREE, *NULL_MODELS)]
        parts = [f"{SHOWN.get(name, name)} {estimate_text(own, name)}" for name in (TREE, *others)]
        lines.append(f"{title_of(score)}: {', '.join(parts)}")
        gains = [
            f"{SHOWN.get(name, name)} {estimate_text(own, name, 'difference')}"
            for name in others
            if np.isfinite(own["difference"][name])
        ]
        lines += [f"  difference of this model from: {', '.join(gains)}"] if gains else []
    return lines


def estimate_text(table: pd.DataFrame, model: str, what: str = "value") -> str:
    """The ``value`` of a model, or its signed ``difference``, of one score of `performance`, with limits."""
    signed = what == "difference"
    form, lead = ("{:+.3f}", "difference ") if signed else ("{:.3f}", "")
    value, *limits = (form.format(table[name][model]) for name in (what, f"{lead}lower", f"{lead}upper"))
    return f"{value} ({' to '.join(limits)})" if np.isfinite(table[f"{lead}lower"][model]) else value


def performance_tables(peers: pd.DataFrame) -> list[Table]:
    """Scores of held-out rows by model, and differences to the reference models, with intervals as notes.

    The best score among the models, those with one estimate for all held-out rows, is marked.
    """
    table, n_folds = performance(peers), peers["fold"].nunique()
    scores, models = (list(table.index.unique(name)) for name in ("score", "model"))
    header, best = [], {}
    for score in scores:
        metric, cause = metric_of(score)
        arrow = {True: " ↑", False: " ↓", None: ""}[metric.higher_is_better]
        header.append(f"{metric.short}{f' of {cause}' if cause else ''}{arrow}")
        values = table["value"][score].drop(list(NULL_MODELS), errors="ignore")
        best[score] = round(float(values.max() if metric.higher_is_better else values.min()), 3)

    def lines(what: str, names: list[str], marks: bool) -> list[list[Cell]]:
        rows = []
        for model in names:
            folds = int(table["folds"].xs(model, level="model").max())
            row = [Cell(SHOWN.get(model, model), f"{folds} folds" if folds < n_folds else "")]
            for score in scores:
                cell = _cell(table.loc[[(score, model)]].iloc[0], what)
                of_best = marks and model not in NULL_MODELS
                row.append(
                    replace(cell, best=of_best and round(table["value"][score, model], 3) == best[score])
                )
            rows.append(row)
        return rows

    caption = (
        f"Scores of held-out rows, mean of {n_folds} folds with 95 % confidence interval; the best in bold."
    )
    result = [Table(caption, ["model", *header], lines("value", models, True), stacked=True)]
    if len(models) > 1:
        caption = "This model minus a reference model, paired by fold, with 95 % confidence interval."
        others = lines("difference", [name for name in models if name != TREE], False)
        result.append(Table(caption, ["reference model", *header], others, stacked=True))
    return result


def _cell(row: pd.Series[float], what: str) -> Cell:
    difference = what == "difference"
    text, lead = (signed, "difference ") if difference else (number, "")
    lower, upper = row[f"{lead}lower"], row[f"{lead}upper"]
    return Cell(text(row[what]), f"{text(lower)} to {text(upper)}" if np.isfinite(lower) else "")


def score_legend(peers: pd.DataFrame) -> list[str]:
    """What the columns of :func:`performance_tables` are, a line each."""
    metrics = dict.fromkeys(metric_of(str(name))[0] for name in peers if name not in ("model", "fold"))
    return [f"{each.short}: {each.title}, {each.direction}." for each in metrics]
