"""Exact survival trees."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.base import CurveKind, SurvivalEstimator
from sstorch.checks import check_device
from sstorch.data import SurvivalData
from sstorch.exact.binarize import Binarizer, Preset
from sstorch.exact.estimators.base import ExactTree, parameters_of, read_tree, write_tree
from sstorch.exact.estimators.search import ExactSettings, Objective, Search
from sstorch.exact.tree import BinaryTree, LeafCurveKind, LeafCurves, hazard_ratios, leaf_curves
from sstorch.exceptions import FormatError
from sstorch.files import read_folder

FORMAT = "sstorch.optimal_survival_tree"
FORMAT_VERSION = 1

_CURVES = ("times", "survival", "cumulative_hazard")


def save_exact_tree(estimator: ExactSurvivalTree, folder: Path) -> None:
    """Write a fitted tree into ``folder``, which is made if missing.

    Raises:
        ConfigError: if the folder cannot be written.
    """
    curves = estimator.curves_
    tensors = {f"curves.{name}": torch.from_numpy(getattr(curves, name).copy()) for name in _CURVES}
    state = {"zero_time_": float(estimator.zero_time_)}
    write_tree(estimator, folder, FORMAT, FORMAT_VERSION, state, tensors, ["leaf_table_"])


def load_exact_tree(kind: type[Any], folder: Path, device: str) -> Any:
    """Read a tree of class ``kind`` written by :func:`save_exact_tree`.

    Raises:
        FormatError: files are missing, altered or of an unknown format version.
        ConfigError: the device does not exist.
    """
    state, tensors = read_folder(folder, FORMAT, FORMAT_VERSION)
    try:
        parameters = parameters_of(state, device)
        estimator = kind(**parameters)
        read_tree(estimator, ExactSettings.check(**parameters), state, tensors, ["leaf_table_"])
        estimator.zero_time_ = float(state["zero_time_"])
        estimator.curves_ = _curves(tensors, estimator.tree_.n_leaves)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{folder} is incomplete or altered: {error}") from error
    estimator.leaf_table_.index = pd.RangeIndex(len(estimator.leaf_table_), name="leaf")
    estimator.event_times_ = estimator.curves_.times
    return estimator


def _curves(tensors: dict[str, Tensor], n_leaves: int) -> LeafCurves:
    times, survival, hazard = (_array(tensors[f"curves.{name}"]) for name in _CURVES)
    shape = (n_leaves, len(times))
    if survival.shape != shape or hazard.shape != shape:
        raise ValueError(f"curves of shape {survival.shape} and {hazard.shape}, expected {shape}")
    return LeafCurves(times, survival, hazard)


def _array(tensor: Tensor) -> npt.NDArray[np.float64]:
    values: npt.NDArray[np.float64] = tensor.numpy()
    return values


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

    def _curves(self, kind: CurveKind, X: object, times: FloatArray) -> FloatArray:
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


class OptimalSurvivalTree(ExactSurvivalTree):
    """Survival tree of least training loss among all trees of its size, over yes-no questions.

    Columns become questions such as "age > 45.5" (`binarize`), and a search that leaves no tree out finds the
    one with the least loss on the training rows. "Optimal" is meant so: for this objective, these rows and
    these questions.

    Args:
        max_depth: most questions on a path, 0 (a single leaf) to 5.
        max_nodes: most questions in all, one less than leaves; None is what the depth can hold.
        objective: ``"log_likelihood"``, half the deviance of proportional hazards with one hazard ratio per
            leaf, in total over the rows (SurTree); ``"integrated_brier"``, the Brier score of one curve per
            leaf, weighted for censoring and integrated over the observed times (OSST).
        leaf_penalty: loss that each leaf costs, >= 0, in the unit of the objective.
        min_leaf: least number of training rows of a leaf.
        min_events: least number of training events of a leaf.
        binarize: how columns become questions: a preset of :class:`~sstorch.exact.Binarizer`
            (``"surtree"``, ``"osst"``, ``"all"``, ``"quantiles"``, ``"boosted"``), a Binarizer with settings
            of one's own, or False for columns that hold 0 and 1 already.
        leaf_curve: curve of a leaf, ``"kaplan_meier"`` with either objective; ``"proportional_hazards"`` with
            the log-likelihood, exp(-theta Λ(t)), the curve that is its loss; ``"ipcw"`` with the Brier score,
            the step function of least weighted Brier score, which is then searched with, too (the curve is
            pooled to fall where that of the search rises, and 0 beyond the follow-up of the leaf).
        device: ``"cpu"`` or a CUDA device such as ``"cuda"``.
        time_limit: seconds, or None. Where they do not suffice, the best tree found is kept, with `gap_`.
        n_buckets: for ``"integrated_brier"``, None for all observed times, or a number of buckets of equal
            width that times are put in for the search (not for the curves).
        memory: bytes that the search may take.

    Attributes:
        tree_: :class:`~sstorch.exact.BinaryTree` over the questions.
        rules_: the questions, as :class:`~sstorch.exact.Rule`.
        loss_: training loss of the tree: a total over rows, or an integrated Brier score.
        objective_: `loss_` and `leaf_penalty` for each leaf.
        certified_: whether it is proved that no tree within the budget has a smaller `objective_`.
        gap_: the most by which `objective_` can exceed the smallest one; 0 if certified.
        curves_: survival and cumulative hazard of each leaf.
        leaf_table_: training rows and events, hazard ratio (log-likelihood), median and survival by leaf.
        optima_: least loss for every budget (depth, nodes) from the same search.
        path_: nodes and loss of the best tree for every leaf penalty.
        event_times_: distinct training event times, original units, increasing.
        zero_time_: what replaces a time of zero when rows are scored: half the smallest training time.
        schema_: columns and categories of the training rows.
        feature_names_in_: raw feature names.
        n_features_in_: their number.
        n_samples_fit_: number of training rows.

    References:
        Huisman, van der Linden and Demirović (2024), Optimal survival trees: a dynamic programming approach,
        AAAI 38. Zhang, Xin, Seltzer and Rudin (2024), Optimal sparse survival trees, AISTATS.

    >>> from sstorch import load_dataset
    >>> data = load_dataset("gbsg2")
    >>> tree = OptimalSurvivalTree(max_depth=2).fit(data.frame, (data.time, data.event))
    >>> print(tree.export_text())
    if pnodes > 3:
    ...
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
        binarize: Preset | bool | Binarizer = "surtree",
        leaf_curve: LeafCurveKind = "kaplan_meier",
        device: str = "cpu",
        time_limit: float | None = None,
        min_events: int = 0,
        n_buckets: int | None = None,
        memory: int = 4 * 2**30,
    ) -> None:
        self.max_depth = max_depth
        self.max_nodes = max_nodes
        self.objective = objective
        self.leaf_penalty = leaf_penalty
        self.min_leaf = min_leaf
        self.binarize = binarize
        self.leaf_curve = leaf_curve
        self.device = device
        self.time_limit = time_limit
        self.min_events = min_events
        self.n_buckets = n_buckets
        self.memory = memory

    def fit(self, X: object, y: object) -> Self:
        """Search for the tree; all rows count alike and are taken as observed from time zero.

        Args:
            X: DataFrame (numeric, boolean, categorical or text columns; missing values allowed), or array
                (n, p); with ``binarize=False`` columns of 0 and 1.
            y: structured array with an event and a time field, a (time, event) tuple, or a DataFrame with the
                columns ``time`` and ``event``.

        Raises:
            DataError: the data cannot be used; the message names column, rows and remedy.
            ConfigError: a parameter has a value that does not exist, or there are too many questions for the
                depth: the message estimates memory and time.
        """
        settings = ExactSettings.check(**self.get_params(deep=False))
        return self._adopt(settings.search(SurvivalData(X, y)))

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> Self:
        """Read a tree written by :meth:`save`; ``device`` is where it would be fitted anew.

        Raises:
            FormatError: files are missing, altered or of an unknown format version.
            ConfigError: torch does not see the device.
        """
        check_device(device)
        tree: Self = load_exact_tree(cls, Path(path), device)
        return tree
