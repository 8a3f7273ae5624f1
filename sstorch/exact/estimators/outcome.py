"""The common part of exact trees of times and events: outcome, groups, causes, trees of resamples."""

from __future__ import annotations

import copy
import math
import warnings
from abc import abstractmethod
from dataclasses import replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.base import check_times
from sstorch.checks import counted
from sstorch.data import SurvivalData
from sstorch.data.fingerprint import fingerprint
from sstorch.data.subjects import CONSTANT_COVARIATES, rows_of_subjects
from sstorch.data.target import steps_up_to
from sstorch.exact.estimators.base import ExactTree
from sstorch.exact.observed import weighted_rows
from sstorch.exact.survival_tasks import CompetingLogLikelihood
from sstorch.exact.tree import LeafCurveKind, LeafCurves, leaf_curves
from sstorch.exceptions import DataWarning
from sstorch.groups import Recalibration
from sstorch.groups.hooks import RESULTS, CardFacts, GroupedTree, PartitionOf
from sstorch.groups.stability import Partition
from sstorch.groups.table import CHOSEN_RULES, WEIGHTED, groups_text, incidence_lines, table_of
from sstorch.memory import check_room
from sstorch.metrics import aalen_johansen
from sstorch.metrics.outcome import Observed
from sstorch.reading.nodes import steps_from_entry


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


class OutcomeTree(ExactTree, GroupedTree):
    """Base class of exact trees of times and events: outcome, groups, leaves of competing causes.

    Not for use by itself. With competing causes the curves of a leaf are the estimates of Aalen and Johansen
    of its rows.
    """

    # of a search over sizes, see :meth:`save`
    _not_saved = ("stability_", "best_depth_", "best_nodes_", "best_score_", "cv_results_", "folds_")

    training_rows_: str  # fingerprint of the training rows
    _start_text: str  # that curves before the first entry are not observed; empty if nothing is lost
    _subjects: list[int]  # of all rows that the tables count and of each group; empty if each has one row
    curves_: LeafCurves
    incidence_: FloatArray
    hazards_: FloatArray
    hazard_ratios_: FloatArray
    recalibration_: Recalibration | dict[str, Recalibration]

    @property
    def _competing(self) -> bool:
        return bool(self.causes_)

    @abstractmethod
    def _fit_data(self, data: SurvivalData) -> Self:
        """Search for the tree of rows of positive weight."""

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
        for name in (*RESULTS, "leaf_table_", "group_table_", "recalibration_"):
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
        settings = self._check()
        return bool(settings.max_depth > 0 and settings.max_nodes != 0)

    @property
    def _seed(self) -> int:
        return 0

    def apply(self, X: object) -> IntArray:  # noqa: D102 -- that of the base class
        return self._leaf(X) + 1

    def _leaf_of(self, frame: pd.DataFrame) -> IntArray:
        return self._leaves(frame) + 1

    def _number_leaves(self, leaf: IntArray, rows: Observed, curve: LeafCurveKind) -> IntArray:
        """Number the leaves by the survival of their training rows; the new number of each row, (n,)."""
        order = leaf_curves(leaf, self.tree_.n_leaves, rows, curve).order
        self.tree_ = replace(self.tree_, order=order)
        return order[leaf]

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

    def _facts(self, rows: int, events: str, groups: list[str]) -> CardFacts:
        """Facts of a model card: rows of the tables, events among them, and a sentence on each group."""
        kind = f"{'competing risks' if self._competing else 'survival'} tree"
        proof = "optimal" if self.certified_ else f"at most {self.gap_:.4g} above the optimum"
        return CardFacts(
            title=f"An exact {kind}",
            kind=f"exact {kind}, depth {self.tree_.depth}, {self.tree_.n_leaves} leaves, {proof}",
            rows=rows,
            events=events,
            groups=groups,
            rules=self._export_text(),
            beyond="; beyond it curves keep their value",
        )

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

    # ------------------------------------------------------------------ competing causes

    def _set_estimates(self, data: SurvivalData, leaf: IntArray) -> None:
        """Estimate the curves and incidences of the leaves from rows."""
        rows, n_leaves = observed(data), self.tree_.n_leaves
        curves = leaf_curves(leaf, n_leaves, rows, "kaplan_meier")
        inside = [leaf == number for number in range(n_leaves)]
        hazards = np.stack(
            [
                leaf_curves(leaf, n_leaves, observed(data.of_cause(k)), "kaplan_meier").cumulative_hazard_at(
                    curves.times
                )
                for k in data.cause_names
            ],
            axis=1,
        )
        incidence = np.stack(
            [aalen_johansen(data.y[i], curves.times, sample_weight=rows.weights[i]) for i in inside]
        )
        self._set_cause_leaves(curves, incidence, hazards, data, cause_task(data).decisions(leaf, n_leaves))

    def _set_cause_leaves(
        self,
        curves: LeafCurves,
        incidence: FloatArray,
        hazards: FloatArray,
        data: SurvivalData,
        ratios: FloatArray,
    ) -> None:
        """Set what the leaves hold, and the table of the rows of `data`.

        `curves` are of any event, `incidence` and cumulative `hazards` (L, K, T), hazard `ratios` (L, K).
        """
        self.curves_, self.event_times_ = curves, curves.times
        self.incidence_, self.hazards_, self.hazard_ratios_ = incidence, hazards, ratios
        self._count_subjects(data, self._leaves(data.frame))
        self.group_table_ = table_of(self, data)

    def _cause_incidences(self, X: object, times: FloatArray) -> FloatArray:
        """Steps of the leaves; beyond the last training event they keep their value."""
        leaf = self._leaf(X)
        check_room(len(leaf) * len(self.causes_), len(times))
        at = steps_up_to(self.event_times_, times)
        zero = np.zeros((*self.incidence_.shape[:2], 1))
        return np.asarray(np.concatenate([zero, self.incidence_], axis=2)[..., at][leaf])

    def _expected(self, data: SurvivalData, leaf: IntArray) -> list[FloatArray]:
        """Predicted cumulative hazard of each cause from the entry of each row to its time, (n,) each."""
        hazards = self.hazards_ if self._competing else self.curves_.cumulative_hazard[:, None]
        curves = (LeafCurves(self.event_times_, np.exp(-each), each) for each in hazards.swapaxes(0, 1))
        return [each.exposure(leaf, data.time, data.entry) for each in curves]

    def _cause_texts(self) -> list[str]:
        """A line on each group: its number, rows and events of every cause."""
        # Groups may have none of the rows of a recalibration.
        table = self.group_table_.reindex(range(1, self.tree_.n_leaves + 1), fill_value=0)
        return [
            f"group {number}: {self._rows_text(row['rows', ''], number)}, {self._events_text(row)}"
            for number, (_, row) in enumerate(table.iterrows(), 1)
        ]

    def _events_text(self, row: pd.Series) -> str:
        counts = {name: int(row[f"events {name}", ""]) for name in self.causes_}
        return ", ".join(f"{counted(count, 'event')} of {name}" for name, count in counts.items())

    def _cause_card(self) -> CardFacts:
        table = self.group_table_
        total = table.sum()
        return self._facts(int(total["rows", ""]), self._events_text(total), incidence_lines(table))

    def _cause_summary(self) -> str:
        """The search and its result, the tree, hazard ratios of the leaves, and a table of the groups."""
        card, reports = self._cause_card(), vars(self).get("recalibration_", {})
        groups = pd.RangeIndex(1, self.tree_.n_leaves + 1, name="group")
        text = self._summary(
            "competing risks",
            f"{self._rows_text(card.rows)}, {card.events}{self._of_recalibration}",
            "log_likelihood",
            pd.DataFrame(self.hazard_ratios_, index=groups, columns=self.causes_),
            lambda value: f"{value:.3f}" if math.isfinite(value) else "-",
            heading="Groups, hazard ratio of each cause",
        )
        unit = f", t in {self.time_unit_}" if self.time_unit_ else ""
        is_scaled = any(report.how != "baseline" for report in reports.values())
        incidence = "the recalibrated incidence of the group" if is_scaled else "that of the group"
        about = (
            f"F(t) is the incidence of Aalen and Johansen, model F(t) {incidence}{unit}{self._condition}\n"
        )
        parts = [
            text,
            about + groups_text(self.group_table_),
            *(str(vars(self)[name]) for name in RESULTS if name in vars(self)),
        ]
        for name, report in reports.items():
            parts.append(f"{name}: {report}")
        return "\n\n".join([*parts, *self._cautions])
