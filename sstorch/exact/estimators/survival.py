"""Exact survival trees."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sstorch._types import FloatArray, IntArray
from sstorch.base import CurveKind, SurvivalEstimator, check_alive, check_times
from sstorch.checks import check_after, check_integer
from sstorch.data import OutcomeType, SurvivalData
from sstorch.data.persons import CONSTANT_COVARIATES
from sstorch.data.time_unit import check_time_unit, round_horizons
from sstorch.deploy.exporter import DeployableTree, Deployed
from sstorch.deploy.expression import Formula
from sstorch.exact.binarize import Binarizer, Preset
from sstorch.exact.estimators.base import ExactTree, LoadableTree, rows_text
from sstorch.exact.estimators.search import Questions, SearchSettings
from sstorch.exact.formula import deployed, tree_formula
from sstorch.exact.observed import Observed
from sstorch.exact.solve import Solution
from sstorch.exact.survival_tasks import IntegratedBrier, LogLikelihood
from sstorch.exact.task import Task
from sstorch.exact.tree import (
    BaselineHazard,
    BinaryTree,
    LeafCurveKind,
    LeafCurves,
    hazard_ratios,
    leaf_curves,
    martingale_residuals,
)
from sstorch.exceptions import ConfigError
from sstorch.memory import check_room

Objective = Literal["log_likelihood", "integrated_brier"]

# Curves that the leaves can have, by objective: those that it is, or can be, the loss of.
CURVES: dict[str, tuple[str, ...]] = {
    "log_likelihood": ("kaplan_meier", "proportional_hazards"),
    "integrated_brier": ("kaplan_meier", "ipcw"),
}


@dataclass(kw_only=True)
class SurvivalSettings(SearchSettings):
    """The checked parameters of exact survival trees."""

    objective: Objective
    min_events: int
    leaf_curve: LeafCurveKind
    n_buckets: int | None
    time_unit: str | None = None

    def __post_init__(self) -> None:
        if self.objective not in get_args(Objective):
            raise ConfigError(
                f"objective must be one of {', '.join(get_args(Objective))}, got {self.objective!r}"
            )
        if self.leaf_curve not in CURVES[self.objective]:
            raise ConfigError(
                f"leaf_curve must be one of {', '.join(CURVES[self.objective])} with "
                f"objective={self.objective!r}, got {self.leaf_curve!r}"
            )
        if self.n_buckets is not None and self.objective != "integrated_brier":
            raise ConfigError("n_buckets is for objective='integrated_brier'; leave it None")
        super().__post_init__()
        self.min_events = check_integer("min_events", self.min_events, 0)
        self.time_unit = check_time_unit(self.time_unit)
        if self.n_buckets is not None:
            self.n_buckets = check_integer("n_buckets", self.n_buckets, 2)

    def search(self, data: SurvivalData) -> TreeSearch:
        """Binarize and solve, from these rows alone.

        Raises:
            DataError: the columns cannot be read or, without a binarizer, are not binary; or no leaf could be
                large enough.
            ConfigError: too many questions for the depth.
        """
        rows = observed(data)
        if rows.entry is not None and self.objective != "log_likelihood":
            raise ConfigError(
                f"objective={self.objective!r} does not support left truncation: its inverse probability of "
                "censoring weights would also need the probability of having entered by then; use "
                "objective='log_likelihood'"
            )
        questions = self.questions(data.frame, martingale_residuals(rows), data.sample_weight)
        task: Task
        if self.objective == "log_likelihood":
            task = LogLikelihood(data.time, data.event, entry=data.entry, sample_weight=data.sample_weight)
        else:
            task = IntegratedBrier(
                data.time,
                data.event,
                leaf_curve="ipcw" if self.leaf_curve == "ipcw" else "kaplan_meier",
                n_buckets=self.n_buckets,
                sample_weight=data.sample_weight,
            )
        return TreeSearch(self, data, rows, questions, questions.solve(task, self.min_events))


def observed(data: SurvivalData) -> Observed:
    """The outcomes of rows."""
    return Observed.of(data.time, data.event, data.entry, data.sample_weight)


def training_rows(X: object, y: object, sample_weight: object, causes: bool = False) -> SurvivalData:
    """The rows of positive weight that a tree is fitted to, with one event or with `causes`.

    Raises:
        DataError: the data cannot be used, or their outcome has causes where one event is wanted, or the
            other way round.
    """
    data = SurvivalData(X, y, sample_weight=sample_weight)
    data.check_causes(causes)
    data.warn_of_few_events()
    return data if data.sample_weight.all() else data.subset(data.sample_weight > 0.0)


@dataclass(frozen=True)
class TreeSearch:
    """A finished search for survival trees: its settings, rows and outcomes, and the trees of all budgets."""

    settings: SurvivalSettings
    data: SurvivalData
    rows: Observed
    questions: Questions
    solution: Solution


class OutcomeTree(ExactTree, SurvivalEstimator):
    """Base class of exact trees of times and events: keeps the type of the outcome; not for use by itself."""

    time_varying_: bool

    def _set_outcome(self, data: SurvivalData) -> None:
        self.outcome_type_, self.time_varying_ = data.outcome_type, data.time_varying
        self.zero_time_ = data.zero_time

    def _state(self) -> dict[str, Any]:
        return super()._state() | {
            "outcome_type": self.outcome_type_.to_dict(),
            "time_varying": self.time_varying_,
        }

    def _set_state(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        super()._set_state(state, tensors)
        self.outcome_type_ = OutcomeType.from_dict(state["outcome_type"])
        self.time_varying_ = bool(state["time_varying"])

    def _log_survival(self, X: object, times: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.log(self._curves("survival", X, times))

    @property
    def _condition(self) -> str:
        """Condition under which curves of a leaf hold from time zero, for texts."""
        return f", from time zero {CONSTANT_COVARIATES}" if self.time_varying_ else ""

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Survival curves of any event as scores need them, (n, n_times)."""
        return self._curves("survival", X, check_times(times))


class ExactSurvivalTree(OutcomeTree, DeployableTree):
    """The common part of `OptimalSurvivalTree` and `OptimalSurvivalTreeCV`; not for use by itself."""

    _format = "sstorch.optimal_survival_tree"
    _settings_class = SurvivalSettings
    _numbers = (*ExactTree._numbers, "zero_time_")
    _tables = ("leaf_table_", *ExactTree._tables)

    curves_: LeafCurves
    leaf_table_: pd.DataFrame
    _settings: SurvivalSettings

    def _set_search(self, search: TreeSearch, tree: BinaryTree | None = None) -> Self:
        """Take over a tree of a search, by default the one asked for, and the curves of its leaves."""
        data, settings, rows = search.data, search.settings, search.rows
        leaf = self._set(search.questions, search.solution, tree)
        n_leaves = self.tree_.n_leaves
        self._set_outcome(data)
        self._set_curves(leaf_curves(leaf, n_leaves, rows, settings.leaf_curve))
        table = pd.DataFrame(
            {
                "rows": np.bincount(leaf, minlength=n_leaves),
                "events": np.bincount(leaf[data.event], minlength=n_leaves),
            },
            index=pd.RangeIndex(n_leaves, name="leaf"),
        )
        if settings.objective == "log_likelihood":
            exposure = BaselineHazard.of(rows).exposure(rows)
            table["hazard_ratio"] = hazard_ratios(leaf, n_leaves, rows, exposure)
        table["median"] = self.curves_.quantile(0.5)
        times = round_horizons(self.event_times_, settings.time_unit)
        for time, column in zip(times, self.curves_.survival_at(times).T, strict=True):
            table[f"S({time:g})"] = column
        self.leaf_table_ = table
        return self

    @property
    def time_unit_(self) -> str | None:
        """Unit of the times; None if not known."""
        check_is_fitted(self, "tree_")
        return self._settings.time_unit

    def _set_curves(self, curves: LeafCurves) -> None:
        self.curves_, self.event_times_ = curves, curves.times

    # ------------------------------------------------------------------ predict

    def predict(self, X: object) -> FloatArray:
        """Risk of each row (n,), the expected number of events up to the last training event time.

        It is the sum of H(t | x) over the distinct training event times; higher = earlier event.
        """
        leaf = self.apply(X)
        risk: FloatArray = self.curves_.cumulative_hazard.sum(axis=1)
        return risk[leaf]

    def predict_quantile(self, X: object, q: float = 0.5, after: npt.ArrayLike | None = None) -> FloatArray:
        """First time at which the survival function is at most 1 - q, shape (n,); the median by default.

        It is +inf where the survival function stays above 1 - q. With ``after``, a time at which the rows are
        known to be alive, or one for each row, it is what is left from there.

        Raises:
            ConfigError: ``q`` is not in (0, 1), or the model has time-varying covariates and ``after`` is
                None.
            DataError: the curve of a row is 0 at ``after``.
        """
        self._refuse_unknown_future(after)
        leaf = self.apply(X)
        if after is None:
            return self.curves_.quantile(q)[leaf]
        return self.curves_.residual_quantile(q, leaf, self._alive(leaf, after))

    def predict_rmst(self, X: object, tau: float, after: npt.ArrayLike | None = None) -> FloatArray:
        """Restricted mean survival time: the area under S(t | x) from 0 to ``tau`` > 0, shape (n,).

        With ``math.inf`` it is the mean, +inf where the curve ends above 0. ``after`` as in
        :meth:`predict_quantile`: the mean of what is left, of which ``tau`` counts as much.

        Raises:
            ConfigError: ``tau`` is not positive, or the model has time-varying covariates and ``after`` is
                None.
            DataError: the curve of a row is 0 at ``after``.
        """
        self._refuse_unknown_future(after)
        leaf = self.apply(X)
        if after is None:
            return self.curves_.restricted_mean(tau)[leaf]
        return self.curves_.residual_mean(tau, leaf, self._alive(leaf, after))

    def _alive(self, leaf: IntArray, after: npt.ArrayLike) -> FloatArray:
        """Times at which rows are alive, (n,), checked."""
        times = check_after(after, len(leaf))
        with np.errstate(divide="ignore"):
            check_alive(np.log(self.curves_.survival_at(times[:, None], leaf)[:, 0]), times)
        return times

    def _curves(self, kind: CurveKind, X: object, times: FloatArray) -> FloatArray:
        """Step functions of the leaves; beyond the last training event they keep their value.

        The cumulative hazard is -log S with ``leaf_curve="proportional_hazards"``; otherwise the Nelson-Aalen
        estimate of the leaf's rows, which is finite where S is 0.
        """
        leaf, curves = self.apply(X), self.curves_
        check_room(len(leaf), times.shape[-1], "times")
        at = curves.survival_at if kind == "survival" else curves.cumulative_hazard_at
        return at(times)[leaf] if times.ndim == 1 else at(times, leaf)

    # ------------------------------------------------------------------ read and keep

    def leaf_texts(self) -> list[str]:
        """A line on each leaf: its number, rows, events and, unless covariates are time-varying, median."""
        check_is_fitted(self, "tree_")
        return self._leaf_texts(not self.time_varying_)

    def _leaf_texts(self, medians: bool) -> list[str]:
        table, in_unit = self.leaf_table_, f" {self.time_unit_}" if self.time_unit_ else ""

        def reached(median: float) -> str:
            if not medians:
                return ""
            return f", median {median:.4g}{in_unit}" if math.isfinite(median) else ", median not reached"

        return [
            f"leaf {number}: {rows_text(rows)}, {events} event{'s' * (events != 1)}{reached(median)}"
            for number, rows, events, median in zip(
                table.index, table["rows"], table["events"], table["median"], strict=True
            )
        ]

    def summary(self) -> str:
        """The search and its result, the tree, and a table of the leaves, as text."""
        check_is_fitted(self, "tree_")
        table = self.leaf_table_
        return self._summary(
            "survival",
            f"{table['rows'].sum()} rows, {table['events'].sum()} events",
            self._settings.objective,
            table,
            lambda value: f"{value:.3f}" if math.isfinite(value) else "-",
            heading=f"Leaves, {self._settings.leaf_curve} curves{self._condition}",
        )

    def _formula(self) -> Formula:
        check_is_fitted(self, "tree_")
        return tree_formula(self.tree_, self.rules_, self.curves_, self.schema_)

    def _deployed(self, medians: bool) -> Deployed:
        kind = f"Optimal survival tree with {self.tree_.n_leaves} leaves"
        rows = f"{self.leaf_table_['rows'].sum()} rows, {self.leaf_table_['events'].sum()} events"
        leaves = self._leaf_texts(medians)
        return deployed(self.tree_, self.rules_, self.schema_, leaves, kind, rows, self.time_unit_)

    def _leaf_arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {f"curves.{field.name}": getattr(self.curves_, field.name) for field in fields(LeafCurves)}

    def _set_leaf_arrays(self, tensors: Mapping[str, Tensor]) -> None:
        curves = LeafCurves(*(tensors[f"curves.{field.name}"].numpy() for field in fields(LeafCurves)))
        shape = (self.tree_.n_leaves, len(curves.times))
        if curves.survival.shape != shape or curves.cumulative_hazard.shape != shape:
            raise ValueError(
                f"curves of shape {curves.survival.shape} and {curves.cumulative_hazard.shape}, "
                f"expected {shape}"
            )
        self._set_curves(curves)
        self.leaf_table_.index = pd.RangeIndex(len(self.leaf_table_), name="leaf")


class OptimalSurvivalTree(ExactSurvivalTree, LoadableTree):
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
        time_unit: unit of the times, such as ``"days"``, as texts and figures name it.
        lookahead: None for the best tree, of depth 5 at most; 1, 2 or 3 for trees up to depth 8, of which so
            many levels are searched together, with greedy trees below, then the best tree below each; not
            with ``"ipcw"`` curves; see :func:`~sstorch.exact.solve`.
        verbose: 1 says on standard error how far the search is, once a second.

    Attributes:
        tree_: :class:`~sstorch.exact.BinaryTree` over the questions.
        rules_: the questions, as :class:`~sstorch.exact.Rule`.
        loss_: training loss of the tree: a weighted total over rows, or an integrated Brier score.
        objective_: `loss_` and `leaf_penalty` for each leaf.
        certified_: whether it is proved that no tree within the budget has a smaller `objective_`.
        gap_: the most by which `objective_` can exceed the smallest one; 0 if certified.
        curves_: survival and cumulative hazard of each leaf.
        leaf_table_: of each leaf the numbers of training rows and events, whatever they weigh, and weighted
            estimates: hazard ratio (log-likelihood), median and survival.
        optima_: least loss for every budget (depth, nodes) from the same search.
        path_: nodes and loss of the best tree for every leaf penalty.
        event_times_: distinct training event times, original units, increasing.
        zero_time_: what replaces a time of zero when rows are scored: half the smallest training time.
        outcome_type_: type of the training outcome; what takes ``y`` refuses rows that lack its entry or id.
        time_varying_: whether some training subjects had several rows: one row then does not determine
            survival from time zero, and predictions ask for a path or ``after``.
        schema_: columns and categories of the training rows.
        feature_names_in_: raw feature names.
        n_features_in_: their number.
        n_samples_fit_: number of training rows, those of weight 0 left out and equal ones merged.

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
        time_unit: str | None = None,
        lookahead: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            max_depth,
            max_nodes,
            leaf_penalty,
            min_leaf,
            binarize,
            device,
            time_limit,
            memory,
            lookahead,
            verbose,
        )
        self.time_unit = time_unit
        self.objective = objective
        self.leaf_curve = leaf_curve
        self.min_events = min_events
        self.n_buckets = n_buckets

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Search for the tree.

        Args:
            X: DataFrame (numeric, boolean, categorical or text columns; missing values allowed), or array
                (n, p); with ``binarize=False`` columns of 0 and 1.
            y: :class:`~sstorch.Surv`, or a right-censored outcome as a (time, event) tuple, a structured
                array or a DataFrame. Left truncation and start-stop rows (``entry``, ``id``) with
                ``objective="log_likelihood"``, see :class:`~sstorch.exact.LogLikelihood`; the curves of
                leaves are those of rows at risk. A subject with several rows may change leaves; its
                consecutive rows with equal covariates are merged first.
            sample_weight: (n,), >= 0. Thresholds, objective, curves and hazard ratios are weighted: integer
                weights give the tree of as many equal rows, and the scale of the weights matters only for
                ``leaf_penalty`` with the log-likelihood, a weighted total. ``min_leaf``, ``min_events`` and
                the counts of tables are of rows of positive weight, whatever they weigh.

        Raises:
            DataError: the data cannot be used; the message names column, rows and remedy.
            ConfigError: a parameter has a value that does not exist; left truncation with an objective that
                does not support it; or there are too many questions for the depth: the message estimates
                memory and time.
        """
        return self._set_search(self._check().search(training_rows(X, y, sample_weight).joined()))
