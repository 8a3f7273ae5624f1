"""Predictions, text and files of exact survival trees, however their size was chosen."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from sstorch.estimators.base import Curve, SurvivalEstimator
from sstorch.estimators.exact_base import ExactTree
from sstorch.estimators.exact_persistence import save_exact_tree
from sstorch.estimators.exact_search import ExactSettings, Search
from sstorch.optimal import BinaryTree
from sstorch.optimal.leaf_curves import LeafCurves, hazard_ratios, leaf_curves

FloatArray = npt.NDArray[np.float64]


class ExactSurvivalTree(ExactTree, SurvivalEstimator):
    """What `OptimalSurvivalTree` and `OptimalSurvivalTreeCV` share; not for use by itself."""

    curves_: LeafCurves
    leaf_table_: pd.DataFrame
    _settings: ExactSettings

    def _adopt(self, search: Search) -> Self:
        """Become the tree that a search was asked for."""
        self._adopt_search(search)
        return self._grow(search, search.solution.tree())

    def _grow(self, search: Search, tree: BinaryTree) -> Self:
        """Take a tree of a search, and the curves of its leaves from the rows of the search."""
        data = search.data
        self._adopt_tree(search, tree)
        self.event_times_ = np.unique(data.time[data.event])
        self.zero_time_ = data.zero_time
        leaf, n_leaves = tree.apply(search.features), tree.n_leaves
        self.curves_ = leaf_curves(leaf, n_leaves, data.time, data.event, search.settings.leaf_curve)
        table = pd.DataFrame(
            {
                "rows": np.bincount(leaf, minlength=n_leaves),
                "events": np.bincount(leaf[data.event], minlength=n_leaves),
            },
            index=pd.RangeIndex(n_leaves, name="leaf"),
        )
        if search.settings.objective == "log_likelihood":
            table["hazard_ratio"] = hazard_ratios(leaf, n_leaves, data.time, data.event)
        table["median"] = self.curves_.quantile(0.5)
        times = np.unique(np.quantile(self.event_times_, [0.25, 0.5, 0.75]))
        for time, column in zip(times, self.curves_.survival_at(times).T, strict=True):
            table[f"S({time:g})"] = column
        self.leaf_table_ = table
        return self

    # ------------------------------------------------------------------ predict

    def predict(self, X: object) -> FloatArray:
        """Risk of each row: expected number of events up to the last training event time.

        Returns:
            Sum of H(t | x) over the distinct training event times, shape (n,); higher = earlier event.
        """
        leaf = self.apply(X)
        risk: FloatArray = self.curves_.cumulative_hazard.sum(axis=1)
        return risk[leaf]

    def predict_quantile(self, X: object, q: float = 0.5) -> FloatArray:
        """First time at which the survival function is at most 1 - q; the median by default.

        Returns:
            shape (n,), original units; +inf where the survival function stays above 1 - q.

        Raises:
            ConfigError: ``q`` is not in (0, 1).
        """
        leaf = self.apply(X)
        return self.curves_.quantile(q)[leaf]

    def predict_rmst(self, X: object, tau: float) -> FloatArray:
        """Restricted mean survival time: the area under S(t | x) from 0 to ``tau``.

        Args:
            X: rows with the training columns.
            tau: > 0, original units; ``math.inf`` gives the mean.

        Returns:
            shape (n,), original units; +inf where ``tau`` is and the curve ends above 0.

        Raises:
            ConfigError: ``tau`` is not positive.
        """
        leaf = self.apply(X)
        return self.curves_.restricted_mean(tau)[leaf]

    def _curves(self, kind: Curve, X: object, times: FloatArray) -> FloatArray:
        """Step functions of the leaves; beyond the last training event they keep their value.

        The cumulative hazard is -log S with ``leaf_curve="proportional_hazards"``; otherwise the Nelson-Aalen
        estimate of the leaf's rows, which is finite where S is 0.
        """
        leaf, curves = self.apply(X), self.curves_
        at = curves.survival_at if kind == "survival" else curves.cumulative_hazard_at
        return at(times)[leaf]

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Survival curves as scores need them, (n, n_times): those of :meth:`predict_survival_function`."""
        return np.asarray(self.predict_survival_function(X, times))

    # ------------------------------------------------------------------ read and keep

    def leaf_texts(self) -> list[str]:
        """A line on each leaf: its number, rows, events and median."""
        check_is_fitted(self, "tree_")
        table = self.leaf_table_
        return [
            f"leaf {number}: {rows} row{'s' * (rows != 1)}, {events} event{'s' * (events != 1)}, "
            + (f"median {median:.4g}" if math.isfinite(median) else "median not reached")
            for number, rows, events, median in zip(
                table.index, table["rows"], table["events"], table["median"], strict=True
            )
        ]

    def summary(self) -> str:
        """What was searched and found, the tree, and a table of the leaves, as text."""
        check_is_fitted(self, "tree_")
        own, table = self._settings, self.leaf_table_
        counts = f"{table['rows'].sum()} rows, {table['events'].sum()} events"
        lines = [
            f"Exact survival tree: {self._shape_text()}, {counts}",
            f"{own.objective} {self._proof_text()}",
            self.export_text(),
            "",
            f"Leaves, {own.leaf_curve} curves",
            table.reset_index().to_string(
                index=False, float_format=lambda value: f"{value:.3f}" if math.isfinite(value) else "-"
            ),
        ]
        return "\n".join(lines)

    def save(self, path: str | Path) -> None:
        """Write the fitted tree into a folder: ``model.json`` and ``tensors.safetensors``, no pickle.

        ``OptimalSurvivalTree.load`` reads it. The search's table of other budgets is kept with it.
        """
        check_is_fitted(self, "tree_")
        save_exact_tree(self, Path(path))
