"""The common part of exact trees of times and events: outcome, search, groups, causes, leaves."""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.base import check_times
from sstorch.checks import check_choice, check_integer
from sstorch.data import SurvivalData
from sstorch.data.fingerprint import fingerprint
from sstorch.data.oddities import report
from sstorch.data.subjects import CONSTANT_COVARIATES, rows_of_subjects
from sstorch.data.time_unit import check_time_unit, round_horizons
from sstorch.exact.estimators.base import ExactTree
from sstorch.exact.estimators.search import Questions
from sstorch.exact.recalibration import scaled_incidence
from sstorch.exact.reference import reference_costs
from sstorch.exact.rows import weighted_rows
from sstorch.exact.solution import Solution
from sstorch.exact.survival_tasks import CompetingLogLikelihood, IntegratedBrier, LogLikelihood
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
from sstorch.exceptions import ConfigError, DataWarning
from sstorch.fitted.estimator import SurvivalEstimator
from sstorch.groups import Recalibration
from sstorch.groups.table import CHOSEN_RULES, WEIGHTED, groups_without_events, table_of
from sstorch.groups.tree import RESULTS, Partition, PartitionOf
from sstorch.metrics import aalen_johansen
from sstorch.metrics.outcome import Observed
from sstorch.reading.nodes import steps_from_entry

Objective = Literal["log_likelihood", "integrated_brier"]
# Curves that the leaves can have, by objective: those that it is, or can be, the loss of.
CURVES: dict[str, tuple[str, ...]] = {
    "log_likelihood": ("kaplan_meier", "proportional_hazards"),
    "integrated_brier": ("kaplan_meier", "ipcw"),
}
# With competing causes: cause-specific hazards, and the estimates of Aalen and Johansen.
OF_CAUSES = {"objective": "log_likelihood", "leaf_curve": "kaplan_meier"}


def observed(data: SurvivalData) -> Observed:
    """The outcomes of rows."""
    return weighted_rows(data.y.any_cause(), data.sample_weight)


def cause_task(data: SurvivalData) -> CompetingLogLikelihood:
    """The loss of cause-specific hazards: the sum over causes of that of one event."""
    return CompetingLogLikelihood(
        data.time, data.cause, len(data.cause_names), entry=data.entry, sample_weight=data.sample_weight
    )


def training_rows(X: object, y: object, sample_weight: object) -> SurvivalData:
    """The rows of positive weight, with follow-up, of a fit. Raises DataError: the data are invalid."""
    data = SurvivalData(X, y, sample_weight=sample_weight)
    data.warn_of_few_events()
    data = data.followed()
    if text := steps_from_entry(data):
        warnings.warn(text, DataWarning, stacklevel=3)
    return data


class TreeSearch(NamedTuple):
    """A finished search: checked parameters, rows and their outcomes, and the trees of all budgets."""

    settings: Any
    data: SurvivalData
    rows: Observed
    questions: Questions
    solution: Solution


class OutcomeTree(ExactTree, SurvivalEstimator):
    """Base class of exact trees of times and events: outcome and groups; not for direct use."""

    # of a search over sizes, see :meth:`save`
    _not_saved = ("stability_", "best_depth_", "best_nodes_", "best_score_", "cv_results_", "folds_")

    training_rows_: str  # fingerprint of the training rows
    _start_text: str  # that curves before the first entry are not observed; empty if nothing is lost
    _subjects: list[int]  # of all rows that the tables count and of each group; empty if each has one row
    leaf_table_: pd.DataFrame
    group_table_: pd.DataFrame
    curves_: LeafCurves
    incidence_: FloatArray
    hazards_: FloatArray
    hazard_ratios_: FloatArray
    recalibration_: Recalibration | dict[str, Recalibration]
    objective: Objective
    leaf_curve: LeafCurveKind
    min_events: int
    time_unit: str | None

    @property
    def _competing(self) -> bool:
        return bool(self.causes_)

    @abstractmethod
    def _fit_data(self, data: SurvivalData) -> Self:
        """Search for the tree of rows of positive weight."""

    def _check(self) -> None:
        check_choice(self.objective, "objective", get_args(Objective))
        if self.leaf_curve not in CURVES[self.objective]:
            raise ConfigError(
                f"leaf_curve must be one of {', '.join(CURVES[self.objective])} with "
                f"objective={self.objective!r}, got {self.leaf_curve!r}"
            )
        super()._check()
        self.min_events = check_integer("min_events", self.min_events, 0)
        self.time_unit = check_time_unit(self.time_unit)

    def _check_outcome(self, rows: Observed, competing: bool) -> None:
        """Require parameters that support left truncation and competing causes, where rows have these.

        Raises:
            ConfigError: they do not.
        """
        if rows.entry is not None and self.objective != "log_likelihood":
            raise ConfigError(
                f"objective={self.objective!r} does not support left truncation: its inverse probability of "
                "censoring weights would also need the probability of having entered by then; use "
                "objective='log_likelihood'"
            )
        for name, value in OF_CAUSES.items() if competing else ():
            if getattr(self, name) != value:
                raise ConfigError(
                    f"{name}={getattr(self, name)!r} is for one event, and y has competing causes; use "
                    f"{name}={value!r}"
                )

    def _searched(self, data: SurvivalData, reference: object = None) -> TreeSearch:
        """Binarize and solve with checked parameters, from these rows and the reference model alone.

        Raises:
            DataError: the columns cannot be read or, without a binarizer, are not binary; or no leaf could be
                large enough.
            ConfigError: too many questions for the depth.
        """
        data, settings = data.joined(), copy.copy(self)
        rows, settings.time_unit = observed(data), self.time_unit or data.time_unit
        self._check_outcome(rows, data.causes is not None)
        questions = self._questions(data.frame, martingale_residuals(rows), data.sample_weight)
        task: Task
        if data.causes is not None:
            task = cause_task(data)
        elif self.objective == "log_likelihood":
            task = LogLikelihood(data.time, data.event, entry=data.entry, sample_weight=data.sample_weight)
        else:
            task = IntegratedBrier(
                data.time,
                data.event,
                leaf_curve="ipcw" if self.leaf_curve == "ipcw" else "kaplan_meier",
                n_buckets=self.search.n_buckets,
                sample_weight=data.sample_weight,
            )
        guess = None if reference is None else reference_costs(task, reference, data.frame)
        solution = self._solve(questions, task, self.min_events, guess)
        return TreeSearch(settings, data, rows, questions, solution)

    def _set_search(self, search: TreeSearch, tree: BinaryTree | None = None) -> Self:
        """Take over a tree of a search, by default the one asked for, and the curves of its leaves."""
        settings, data, rows, questions, solution = search
        if tree is None:
            leaf = self._set_solution(settings, questions, solution)
        else:
            leaf = self._set(settings, questions, tree)
        # Leaves are numbered by the survival of their training rows.
        order = leaf_curves(leaf, self.tree_.n_leaves, rows, settings.leaf_curve).order
        self.tree_ = replace(self.tree_, order=order)
        self._set_outcome(data)
        self._estimate(data, order[leaf])
        return self

    def _set_final(self, search: TreeSearch) -> Self:
        """`_set_search` of the tree that is kept, whose groups without events are named."""
        self._set_search(search)
        report(
            groups_without_events(self._leaf_of(search.data.frame), search.data), strict=False, stacklevel=4
        )
        return self

    def _set_outcome(self, data: SurvivalData) -> None:
        super()._set_outcome(data)
        self.training_rows_ = fingerprint(data)
        self._start_text = steps_from_entry(data)
        self._forget_results()

    def _count_subjects(self, data: SurvivalData, leaf: IntArray) -> None:
        inside = [leaf >= 0, *(leaf == number for number in range(self.tree_.n_leaves))]
        subject = data.subject if data.time_varying else None
        self._subjects = [] if subject is None else [np.unique(subject[each]).size for each in inside]

    def _rows_text(self, rows: float, group: int = 0) -> str:
        """Rows of a group, 0 for all, and their subjects where these have several."""
        return rows_of_subjects(rows, self._subjects[group] if self._subjects else None)

    def _forget_results(self) -> None:
        """Drop results about another tree."""
        for name in (*RESULTS, "leaf_table_", "group_table_", "recalibration_", "hazard_ratios_"):
            self.__dict__.pop(name, None)

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

    # ------------------------------------------------------------------ groups

    @property
    def _can_divide(self) -> bool:
        settings = self._checked()
        return settings.max_depth > 0 and settings.max_nodes != 0

    @property
    def _seed(self) -> int:
        return 0

    def apply(self, X: object) -> IntArray:  # noqa: D102 -- that of the base class
        return self._leaf(X) + 1

    def _leaf_of(self, frame: pd.DataFrame) -> IntArray:
        return self._leaves(frame) + 1

    def _partition(self, frame: pd.DataFrame) -> Partition:
        tree = self.tree_
        number = tree.heap_number
        used = dict(zip(number[~tree.is_leaf].tolist(), tree.feature[~tree.is_leaf].tolist(), strict=True))
        # The first leaf below each leaf in the complete tree.
        ends = np.zeros(tree.n_leaves, dtype=np.int64)
        for leaf, heap in zip(tree.leaf_number[tree.is_leaf], number[tree.is_leaf].tolist(), strict=True):
            ends[leaf] = heap << (tree.depth + 1 - heap.bit_length())
        group, names = self._leaf_of(frame), frame.columns.to_numpy()

        def columns(node: int) -> BoolArray:
            asked = self.rules_[used[node]].column if node in used else None
            return np.asarray(names == asked)

        place = ends[group - 1] - 2**tree.depth
        return Partition(group, place, tree.depth, tuple(sorted(used)), columns)

    def _trained(self, data: SurvivalData, splits: list[SurvivalData]) -> list[PartitionOf]:
        return [clone(self)._fit_data(rows)._partition for rows in splits]

    @property
    def _of_recalibration(self) -> str:
        """Text on the rows counted in tables; empty for training rows."""
        return " of the recalibration" if hasattr(self, "recalibration_") else ""

    @property
    def _cautions(self) -> list[str]:
        """Cautions of a summary: unobserved first times, groups chosen on these rows, their weights."""
        chosen = self.tree_.n_leaves > 1 and not hasattr(self, "recalibration_")
        cautions = [f"Caution: {CHOSEN_RULES}"] if chosen else []
        cautions += [f"Caution: {self._start_text}."] if self._start_text else []
        return [*cautions, *([WEIGHTED] if self.outcome_type_.weighted else [])]

    def _recalibrated_copy(self) -> Self:
        """The tree as it is, to be given other leaves; results about its groups are of other rows."""
        new = copy.copy(self)
        new._forget_results()
        return new

    # ------------------------------------------------------------------ leaves

    def _estimate(self, data: SurvivalData, leaf: IntArray) -> None:
        """Estimate what the leaves hold from rows with a leaf each, (n,)."""
        rows, n_leaves, ratios = observed(data), self.tree_.n_leaves, None
        self._settings._check_outcome(rows, self._competing)
        curves = leaf_curves(leaf, n_leaves, rows, self._settings.leaf_curve)
        hazards, incidence = curves.cumulative_hazard[:, None], 1.0 - curves.survival[:, None]
        if self._competing:
            parts = [observed(data.of_cause(name)) for name in self.causes_]
            each = [leaf_curves(leaf, n_leaves, part, "kaplan_meier") for part in parts]
            hazards = np.stack([curve.cumulative_hazard_at(curves.times) for curve in each], axis=1)
            inside = [leaf == number for number in range(n_leaves)]
            weights = rows.weights
            incidence = np.stack(
                [aalen_johansen(data.y[i], curves.times, sample_weight=weights[i]) for i in inside]
            )
            ratios = cause_task(data).decisions(leaf, n_leaves)
        elif self._settings.objective == "log_likelihood":
            ratios = hazard_ratios(leaf, n_leaves, rows, BaselineHazard.of(rows).exposure(rows))[:, None]
        self._set_leaves(curves, incidence, hazards, ratios, data, leaf)

    def _set_leaves(
        self,
        curves: LeafCurves,
        incidence: FloatArray,
        hazards: FloatArray,
        ratios: FloatArray | None,
        data: SurvivalData,
        leaf: IntArray,
    ) -> None:
        """Set what the leaves hold, and the tables of the rows of `data`.

        `curves` are of any event, `incidence` and cumulative `hazards` (L, K, T), hazard `ratios` (L, K).
        """
        self.curves_, self.event_times_ = curves, curves.times
        self.incidence_, self.hazards_ = incidence, hazards
        self._count_subjects(data, leaf)
        n_leaves = self.tree_.n_leaves
        table = pd.DataFrame(
            {"rows": np.bincount(leaf, minlength=n_leaves)},
            index=pd.RangeIndex(1, n_leaves + 1, name="group"),
        )
        for ending, event in zip(self._endings, self._events(data), strict=True):
            table[f"events{ending}"] = np.bincount(leaf[event], minlength=n_leaves)
        if ratios is not None:
            self.hazard_ratios_ = ratios
            table[[f"hazard_ratio{ending}" for ending in self._endings]] = ratios
        table["median"] = curves.quantile(0.5)
        times = round_horizons(self.event_times_, self._settings.time_unit)
        for time, column in zip(times, curves.survival_at(times).T, strict=True):
            table[f"S({time:g})"] = column
        self.leaf_table_ = table
        if self._competing:
            self.group_table_ = table_of(self, data)

    @property
    def _endings(self) -> list[str]:
        """What names of columns of each cause end with; nothing for one event."""
        return [f" {name}" for name in self.causes_] or [""]

    def _events(self, data: SurvivalData) -> list[BoolArray]:
        """Which rows have an event of each cause, (n,) each."""
        if not self._competing:
            return [data.event]
        return [data.cause == k + 1 for k in range(len(self.causes_))]

    def _expected(self, data: SurvivalData, leaf: IntArray) -> list[FloatArray]:
        """Predicted cumulative hazard of each cause from the entry of each row to its time, (n,) each."""
        curves = (LeafCurves(self.event_times_, np.exp(-each), each) for each in self.hazards_.swapaxes(0, 1))
        return [each.exposure(leaf, data.time, data.entry) for each in curves]

    def _scale(
        self, factors: FloatArray, ratios: FloatArray | None, data: SurvivalData, leaf: IntArray
    ) -> None:
        """Multiply the hazards of each leaf and cause by factors (L, K), with hazard `ratios` (L, K) then."""
        if self._competing:
            curves, incidence = scaled_incidence(self.curves_, self.hazards_, factors)
        else:
            curves = self.curves_.scaled(factors[:, 0])
            incidence = 1.0 - curves.survival[:, None]
        self._set_leaves(curves, incidence, factors[:, :, None] * self.hazards_, ratios, data, leaf)
