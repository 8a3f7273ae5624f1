"""Exact survival trees of a given size, and of a size that is chosen by cross-validation."""

from __future__ import annotations

import math
from typing import Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch import metrics
from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_choice, check_integer
from sstorch.data import SurvivalData, folds_of
from sstorch.data.folds import Fold, split
from sstorch.exact.binarize import Binarizer, Preset
from sstorch.exact.estimators.base import SEARCH, Search, answers
from sstorch.exact.estimators.survival_tree import (
    Objective,
    SurvivalTree,
    TreeSearch,
    observed,
    training_rows,
)
from sstorch.exact.leaf_curves import BaselineHazard, hazard_ratios, leaf_curves, least_hazard
from sstorch.exact.solution import MAX_EXACT_DEPTH
from sstorch.exceptions import ConfigError, named
from sstorch.metrics.grids import thinned
from sstorch.metrics.outcome import Observed

Choice = Literal["nodes", "budget"]


class OptimalSurvivalTree(SurvivalTree):
    """Survival tree with the smallest training loss of all trees of its size with binary splits.

    Columns are converted to binary splits such as "age > 45.5" (`binarize`). An exact search finds the tree
    with the smallest loss on the training rows: optimal for this objective, these rows and these splits.

    Args:
        max_depth: most questions on a path, 0 (a single leaf) to 9; above 5 see :func:`~sstorch.exact.solve`.
        max_nodes: most questions in all, one less than leaves; None is what the depth can hold.
        objective: ``"log_likelihood"``, half the deviance of proportional hazards with one hazard ratio per
            leaf, summed over the rows (SurTree); ``"integrated_brier"``, the Brier score of one curve per
            leaf, with censoring weights and integrated over the observed times (OSST). Competing causes
            support only the log-likelihood, summed over causes, with events of other causes censored.
        leaf_penalty: penalty per leaf, >= 0, in the unit of the objective.
        min_leaf: minimum number of training rows per leaf.
        binarize: splits of the columns: a preset of :class:`~sstorch.exact.Binarizer` (``"surtree"``,
            ``"osst"``, ``"all"``, ``"quantiles"``), or a Binarizer.
        min_events: minimum number of training events per leaf, of any cause.
        time_unit: unit of the times, such as ``"days"``, used in texts and figures.
        search: :class:`~sstorch.Search`: time limit, memory, buckets of times; ``search__time_limit`` sets
            one of them.

    Attributes:
        tree_: :class:`~sstorch.exact.tree.BinaryTree` over the splits; leaf 0 is group 1.
        rules_: the splits, as :class:`~sstorch.exact.binarize.Rule`.
        loss_: training loss of the tree: a weighted total over rows, or an integrated Brier score.
        objective_: `loss_` plus `leaf_penalty` times the number of leaves.
        certified_: True if it is proved that no tree within the limits has a smaller `objective_`.
        gap_: upper bound on the difference between `objective_` and the optimum; 0 if certified.
        optima_: smallest loss for every depth and number of nodes, from the same search.
        curves_: Kaplan-Meier `survival` of any event (L, T), and `hazards` and `incidences` of causes
            (Nelson-Aalen, Aalen-Johansen; L, K, T), of the leaves at `event_times_`.
        hazard_ratios_: of the log-likelihood, hazard ratio of each leaf and cause, (L, K); a leaf without
            events counts half an event.
        leaf_table_: unweighted numbers of training rows and events per leaf, by cause, and weighted
            estimates: hazard ratios (log-likelihood), median and survival without any event.
        group_validation_, stability_, group_table_: the last results of
            :func:`~sstorch.validation.validate_groups`, :func:`~sstorch.validation.stability` and
            :func:`~sstorch.validation.group_table` with resamples; the first is saved. With causes
            `group_table_` is, before that, the table of the training rows.
        recalibration_: report of :func:`sstorch.recalibrate`, one per cause with competing causes, whose
            rows the tables then count.
        causes_: names of the K competing causes; empty for one event.
        event_times_, zero_time_, horizon_, outcome_type_, time_varying_: of the training rows, as of
            :class:`~sstorch.SoftSurvivalTree`.
        schema_, feature_names_in_, n_features_in_: columns and categories of the training rows.
        n_samples_fit_: number of training rows, without rows of weight 0 and after merging of equal rows.

    References:
        Huisman, van der Linden and Demirović (2024), Optimal survival trees: a dynamic programming approach,
        AAAI 38. Zhang, Xin, Seltzer and Rudin (2024), Optimal sparse survival trees, AISTATS. Aalen and
        Johansen (1978), Scandinavian Journal of Statistics 5, 141-150.

    >>> from sstorch import load_dataset
    >>> data = load_dataset("gbsg2")
    >>> tree = OptimalSurvivalTree(max_depth=2).fit(data.frame, (data.time, data.event))
    >>> tree.certified_, tree.predict_survival_function(data.frame[:2], times=[365.0, 730.0]).shape
    (True, (2, 2))
    """

    def __init__(
        self,
        max_depth: int = 3,
        max_nodes: int | None = None,
        objective: Objective = "log_likelihood",
        leaf_penalty: float = 0.0,
        min_leaf: int = 1,
        binarize: Preset | Binarizer = "surtree",
        min_events: int = 0,
        time_unit: str | None = None,
        search: Search = SEARCH,
    ) -> None:
        super().__init__(max_depth, max_nodes, leaf_penalty, min_leaf, binarize, search)
        self.time_unit = time_unit
        self.objective = objective
        self.min_events = min_events

    def fit(
        self, X: object, y: object = None, sample_weight: object = None, *, reference: object = None
    ) -> Self:
        """Search for the tree.

        Args:
            X: DataFrame (numeric, boolean, categorical or text columns; missing values allowed), or array
                (n, p).
            y: :class:`~sstorch.Surv`, or a right-censored outcome as a (time, event) tuple, a structured
                array or a DataFrame. ``objective="log_likelihood"`` also supports left truncation, start-stop
                rows (``entry``, ``id``; a subject can change leaves) and competing ``causes``.
            sample_weight: (n,), >= 0; integer weights and repeated rows give the same tree. The scale matters
                only for ``leaf_penalty`` with the log-likelihood, a weighted total. ``min_leaf``,
                ``min_events`` and tables count rows of positive weight, whatever they weigh.
            reference: fitted survival model of these columns. Its loss in each row is the assumed least loss
                of a tree there, which shortens searches of more than about 20 seconds, as at depth 6. `gap_`
                uses proved bounds alone. See :func:`~sstorch.exact.reference_costs`.

        Raises:
            DataError: the data are invalid; the message names column, rows and remedy.
            ConfigError: a parameter has an invalid value, the objective does not support the outcome, or
                there are too many splits for the depth (the message estimates memory and time).
        """
        return self._fit_data(training_rows(X, y, sample_weight), reference)

    def _fit_data(self, data: SurvivalData, reference: object = None) -> Self:
        return self._set_search(self._checked()._searched(data, reference))


class OptimalSurvivalTreeCV(SurvivalTree):
    """Exact survival tree with number of nodes, or depth and nodes, chosen by cross-validation.

    Each fold is searched once, on its training rows, with splits from these rows. The trees of all sizes are
    compared by `objective` on the held-out rows. A final search uses the chosen size and all rows. For other
    scores use ``GridSearchCV`` of scikit-learn.

    Args:
        max_depth: largest depth tried, 0 to 5.
        max_nodes: largest number of nodes tried; None for the maximum at this depth.
        objective, min_leaf, binarize, min_events, time_unit, search: as in `OptimalSurvivalTree`.
        choose: ``"nodes"``, 0 to `max_nodes` nodes at depth `max_depth`; ``"budget"``, every pair of depth
            and nodes.
        n_folds: folds, stratified by event; all rows of a subject are in one.
        random_state: seed of the folds.

    Attributes:
        best_depth_, best_nodes_: maximum number of splits on a path, and in the tree, of the chosen size.
        best_score_: mean score of the chosen size over folds: minus the mean deviance per row, with baseline
            and hazard ratios of the training rows, summed over competing causes; or minus the integrated
            Brier score, convention ``"osst"``.
        cv_results_: one row per size: depth, nodes, mean and standard error of the score over folds, the
            score of each fold, mean number of leaves.
        folds_: fold of each row of positive weight.

    All other attributes are as in `OptimalSurvivalTree`, whose `load` reads the file of :meth:`save`.

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
        binarize: Preset | Binarizer = "surtree",
        min_events: int = 0,
        choose: Choice = "nodes",
        n_folds: int = 5,
        random_state: int = 0,
        time_unit: str | None = None,
        search: Search = SEARCH,
    ) -> None:
        # No penalty per leaf: sizes are compared instead.
        super().__init__(max_depth, max_nodes, 0.0, min_leaf, binarize, search)
        self.objective = objective
        self.min_events = min_events
        self.choose = choose
        self.n_folds = n_folds
        self.random_state = random_state
        self.time_unit = time_unit

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Choose the size and search for the tree; arguments and errors as `OptimalSurvivalTree.fit`."""
        return self._fit_data(training_rows(X, y, sample_weight))

    def _fit_data(self, data: SurvivalData) -> Self:
        settings = self._checked()
        # Of rows as they were given: subjects, which are the same ones afterwards, are assigned to folds.
        self.folds_ = folds_of(data, self.n_folds, self.random_state)
        folds = split(data, self.folds_)
        searches = [settings._searched(fold.train) for fold in folds]
        solution = searches[0].solution
        depth, nodes = solution.max_depth, range(solution.max_nodes + 1)
        sizes = list(solution.optima) if self.choose == "budget" else [(depth, n) for n in nodes]

        def score(fold: Fold, search: TreeSearch) -> list[tuple[float, int]]:
            reached = [search.solution.optimum(depth=depth, nodes=nodes)[:2] for depth, nodes in sizes]
            with named(f"fold {fold.number} of {self.n_folds} cannot be scored, choose fewer folds"):
                known = {size: _score(search, size, fold.test) for size in dict.fromkeys(reached)}
            return [known[size] for size in reached]

        found = np.array([*map(score, folds, searches)])  # (n_folds, C, 2)
        scores, leaves = np.ascontiguousarray(found.T)  # (C, n_folds) each
        mean = scores.mean(axis=1)
        best = int(mean.argmax())  # the smaller tree of a tie: sizes increase
        (self.best_depth_, self.best_nodes_), self.best_score_ = sizes[best], float(mean[best])
        self.cv_results_ = pd.DataFrame(sizes, columns=["depth", "nodes"]).assign(
            mean_score=mean,
            standard_error=scores.std(axis=1, ddof=1) / math.sqrt(self.n_folds),
            mean_leaves=leaves.mean(axis=1),
            **{f"fold_{fold}": scores[:, fold] for fold in range(self.n_folds)},
        )
        final = settings.set_params(max_depth=self.best_depth_, max_nodes=self.best_nodes_)
        return self._set_search(final._searched(data))

    def _check(self) -> None:
        check_choice(self.choose, "choose", get_args(Choice))
        check_integer("n_folds", self.n_folds, 2)
        check_integer("random_state", self.random_state, 0)
        super()._check()
        if check_integer("max_depth", self.max_depth, 0) > MAX_EXACT_DEPTH:
            raise ConfigError(f"max_depth must be 0 to {MAX_EXACT_DEPTH}, got {self.max_depth}")

    @property
    def _seed(self) -> int:
        return self.random_state


def _score(search: TreeSearch, size: tuple[int, int], data: SurvivalData) -> tuple[float, int]:
    """Score on held-out rows, greater is better, and number of leaves, of a fold's tree."""
    tree = search.solution.tree(depth=size[0], nodes=size[1])
    leaf = tree.apply(search.questions.features)
    here = tree.apply(answers(search.questions.rules, data.frame))
    if search.settings.objective == "log_likelihood":
        every = [search.rows, observed(data)]
        if any(rows.entry is not None for rows in every):  # late entry of either counts for both
            early = [np.full(len(rows.time), -np.inf) if rows.entry is None else rows.entry for rows in every]
            every = [rows._replace(entry=entry) for rows, entry in zip(every, early, strict=True)]
        causes = range(1, search.rows.n_causes + 1)
        deviances = [_deviances(leaf, here, tree.n_leaves, *(rows.only(k) for rows in every)) for k in causes]
        return -float(np.average(sum(deviances), weights=data.sample_weight)), tree.n_leaves
    curves = leaf_curves(leaf, tree.n_leaves, search.rows)
    grid = thinned(metrics.evaluation_times(data.time, search.data.time, "osst"), len(data.time))
    score = metrics.integrated_brier_score(
        data.y,
        curves.survival_at(grid)[here],
        grid,
        train=search.data.y,
        convention="osst",
        sample_weight=data.sample_weight,
    )
    return -score, tree.n_leaves


def _deviances(leaf: IntArray, here: IntArray, n_leaves: int, train: Observed, test: Observed) -> FloatArray:
    """Deviance of each held-out row, in the leaves `here`, by the hazard of the training rows."""
    baseline = BaselineHazard.of(train)
    ratio = hazard_ratios(leaf, n_leaves, train, baseline.exposure(train))[here]
    hazard = baseline.exposure(test)
    # An event may fall where the training rows have none: whatever stands there is in the score of all sizes.
    seen = np.where(hazard > 0.0, hazard, least_hazard(train.weights))
    deviances: FloatArray = hazard * ratio - test.event * (np.log(seen) + np.log(ratio) + 1.0)
    return deviances
