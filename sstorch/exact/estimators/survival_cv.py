"""Exact trees whose size is chosen by cross-validation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch import metrics
from sstorch._types import IntArray
from sstorch.checks import check_choice, check_integer
from sstorch.data import Fold, SurvivalData, folds_of
from sstorch.data.folds import defined, scoring_of, split, train_outside_score_inside
from sstorch.exact.binarize import Binarizer, Preset
from sstorch.exact.estimators.outcome import Objective, TreeSearch, observed, training_rows
from sstorch.exact.estimators.search import SEARCH, Search, answers
from sstorch.exact.estimators.survival import ExactSurvivalTree, OptimalSurvivalTree
from sstorch.exact.problem import MAX_EXACT_DEPTH
from sstorch.exact.rows import least_hazard
from sstorch.exact.solution import Solution
from sstorch.exact.tree import BaselineHazard, LeafCurveKind, hazard_ratios, leaf_curves
from sstorch.exceptions import ConfigError
from sstorch.metrics.evaluation import remedy_for_names
from sstorch.metrics.outcome import Observed

Choice = Literal["nodes", "depth", "budget"]
Size = tuple[int, int]


class OptimalSurvivalTreeCV(ExactSurvivalTree):
    """Exact survival tree with depth or number of nodes chosen by cross-validation.

    Each fold is searched once, on its training rows, with splits from these rows. This search returns the
    trees of all sizes, which are compared on the held-out rows. A final search uses the chosen size and all
    rows.

    Args:
        max_depth: largest depth tried, 0 to 5.
        max_nodes: largest number of nodes tried; None for the maximum at this depth.
        objective: as in `OptimalSurvivalTree`, and so are `min_leaf`, `binarize`, `leaf_curve`, `min_events`,
            `time_unit` and `search`.
        choose: ``"nodes"``, 0 to `max_nodes` nodes at depth `max_depth`; ``"depth"``, 0 to `max_depth`;
            ``"budget"``, every pair of both.
        scoring: ``"loss"``, the loss of `objective` on the held-out rows: the mean deviance per row, with
            baseline and hazard ratios of the training rows, summed over competing causes; or the integrated
            Brier score, convention ``"osst"``. Or a scorer of scikit-learn, ``scorer(tree, X, y)``, higher is
            better.
        n_folds: folds, stratified by event; all rows of a subject are in one.
        random_state: seed of the folds.

    Attributes:
        best_depth_: maximum number of splits on a path of the chosen size.
        best_nodes_: maximum number of splits in the tree.
        best_score_: mean score of the chosen size over folds; minus the loss for ``"loss"``.
        cv_results_: one row per size: depth, nodes, mean and standard error of the score over folds, the
            score of each fold, mean number of leaves.
        folds_: fold of each row of positive weight.

    All other attributes are as in `OptimalSurvivalTree`, for the tree of all rows. `OptimalSurvivalTree.load`
    reads the file of :meth:`save`.

    >>> from sstorch import load_dataset
    >>> data = load_dataset("gbsg2")
    >>> tree = OptimalSurvivalTreeCV(max_depth=2).fit(data.frame, (data.time, data.event))
    >>> 1 <= tree.best_nodes_ <= 3, len(tree.cv_results_)
    (True, 4)
    """

    best_depth_: int
    best_nodes_: int
    best_score_: float
    cv_results_: pd.DataFrame
    folds_: npt.NDArray[np.int64]

    def __init__(
        self,
        max_depth: int = 3,
        max_nodes: int | None = None,
        objective: Objective = "log_likelihood",
        min_leaf: int = 1,
        binarize: Preset | bool | Binarizer = "surtree",
        leaf_curve: LeafCurveKind = "kaplan_meier",
        min_events: int = 0,
        choose: Choice = "nodes",
        scoring: Literal["loss"] | Callable[[Any, Any, Any], float] = "loss",
        n_folds: int = 5,
        random_state: int = 0,
        time_unit: str | None = None,
        search: Search = SEARCH,
    ) -> None:
        # No penalty per leaf: sizes are compared instead.
        super().__init__(max_depth, max_nodes, 0.0, min_leaf, binarize, search)
        self.objective = objective
        self.leaf_curve = leaf_curve
        self.min_events = min_events
        self.choose = choose
        self.scoring = scoring
        self.n_folds = n_folds
        self.random_state = random_state
        self.time_unit = time_unit

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Choose the size and search for the tree; arguments and errors as `OptimalSurvivalTree.fit`.

        Searches and ``scoring="loss"`` are weighted. All rows of a subject are in one fold. A scorer receives
        the held-out rows and a :class:`~sstorch.Surv` with outcomes and weights.
        """
        return self._fit_data(training_rows(X, y, sample_weight))

    def _fit_data(self, data: SurvivalData) -> Self:
        """:meth:`fit` to rows of positive weight."""
        settings = self._checked()
        if settings.max_depth > MAX_EXACT_DEPTH:
            raise ConfigError(f"max_depth must be 0 to {MAX_EXACT_DEPTH}, got {settings.max_depth}")
        n_folds = check_integer("n_folds", self.n_folds, 2)
        seed = self._seed
        # Of rows as they were given: subjects, which are the same ones afterwards, are assigned to folds.
        self.folds_ = folds_of(data, n_folds, seed)
        sizes = list[Size]()

        def train(splits: list[SurvivalData]) -> Iterator[tuple[int, TreeSearch]]:
            searches = [settings._searched(rows) for rows in splits]
            sizes.extend(_sizes(searches[0].solution, self.choose))
            yield from enumerate(searches)

        def score(fold: Fold, search: TreeSearch) -> list[tuple[float, int]]:
            reached = [search.solution.optimum(depth=depth, nodes=nodes)[:2] for depth, nodes in sizes]
            with scoring_of(fold.number, n_folds):
                known = {
                    size: _score(search, size, fold.test, self.scoring) for size in dict.fromkeys(reached)
                }
            return [known[size] for size in reached]

        parts = split(data, folds_of(data, n_folds, seed))
        found = np.array(list(train_outside_score_inside(parts, train, score)))  # (n_folds, C, 2)
        scores, leaves = np.ascontiguousarray(found[..., 0].T), np.ascontiguousarray(found[..., 1].T)
        best = int(scores.mean(axis=1).argmax())  # the smaller tree of a tie: sizes increase
        self.best_depth_, self.best_nodes_ = sizes[best]
        self.best_score_ = float(scores[best].mean())
        self.cv_results_ = pd.DataFrame(
            {
                "depth": [depth for depth, _ in sizes],
                "nodes": [nodes for _, nodes in sizes],
                "mean_score": scores.mean(axis=1),
                "standard_error": scores.std(axis=1, ddof=1) / math.sqrt(n_folds),
                "mean_leaves": leaves.mean(axis=1),
                **{f"fold_{fold}": scores[:, fold] for fold in range(n_folds)},
            }
        )
        final = settings.set_params(max_depth=self.best_depth_, max_nodes=self.best_nodes_)
        return self._set_final(final._searched(data))

    def _check(self) -> None:
        check_choice(self.choose, "choose", get_args(Choice))
        if self.scoring != "loss" and not callable(self.scoring):
            raise ConfigError(
                f"scoring must be 'loss' or a scorer of scikit-learn, called with (tree, X, y), got "
                f"{self.scoring!r}{remedy_for_names(self.scoring)}"
            )
        super()._check()

    @property
    def _seed(self) -> int:
        return check_integer("random_state", self.random_state, 0)


def _sizes(solution: Solution, choose: Choice) -> list[Size]:
    """Depth and nodes of the trees to compare, small trees first."""
    depth, nodes = solution.max_depth, solution.max_nodes
    if choose == "nodes":
        return [(depth, n) for n in range(nodes + 1)]
    if choose == "depth":
        return [(d, min(2**d - 1, nodes)) for d in range(depth + 1)]
    return list(solution.optima)


def _score(search: TreeSearch, size: Size, rows: SurvivalData, scoring: Any) -> tuple[float, int]:
    """Score on held-out rows, greater is better, and number of leaves, of a fold's tree."""
    train, settings = search.data, search.settings
    tree = search.solution.tree(depth=size[0], nodes=size[1])
    if scoring != "loss":
        fitted = OptimalSurvivalTree()._set_search(search, tree)
        return defined(float(scoring(fitted, rows.frame, rows.given_y))), tree.n_leaves
    leaf = tree.apply(search.questions.features)
    here = tree.apply(answers(search.questions.rules, rows.frame))
    if settings.objective == "log_likelihood":
        parts = [(train, rows)]
        if train.causes is not None:
            parts = [(train.of_cause(name), rows.of_cause(name)) for name in train.cause_names]
        return -sum(_deviance(leaf, here, tree.n_leaves, *part) for part in parts), tree.n_leaves
    curves = leaf_curves(leaf, tree.n_leaves, search.rows, settings.leaf_curve)
    grid = metrics.thinned(metrics.evaluation_times(rows.time, train.time, "osst"), len(rows.time))
    score = metrics.integrated_brier_score(
        rows.y,
        curves.survival_at(grid)[here],
        grid,
        train=train.y,
        convention="osst",
        sample_weight=rows.sample_weight,
    )
    return -score, tree.n_leaves


def _deviance(
    leaf: IntArray, here: IntArray, n_leaves: int, train: SurvivalData, rows: SurvivalData
) -> float:
    """Mean deviance of held-out rows, in the leaves `here`, by the hazard of one event."""
    # Both parts by the baseline of the training rows; late entry of either counts for both.
    known, test = _alike(observed(train), observed(rows))
    baseline = BaselineHazard.of(known)
    ratio = hazard_ratios(leaf, n_leaves, known, baseline.exposure(known))[here]
    hazard = baseline.exposure(test)
    # An event may fall where the training rows have none: whatever stands there is in the score of all sizes.
    seen = np.where(hazard > 0.0, hazard, least_hazard(known.weights))
    deviance = hazard * ratio - rows.event * (np.log(seen) + np.log(ratio) + 1.0)
    return float(np.average(deviance, weights=rows.sample_weight))


def _alike(train: Observed, test: Observed) -> tuple[Observed, Observed]:
    """Both with entry times if either has some, those of the other being from the beginning."""
    if (train.entry is None) == (test.entry is None):
        return train, test

    def late(rows: Observed) -> Observed:
        return rows._replace(entry=np.full(len(rows.time), -np.inf)) if rows.entry is None else rows

    return late(train), late(test)
