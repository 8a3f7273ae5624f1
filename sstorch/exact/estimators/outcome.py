"""The common part of exact trees of times and events: outcome, groups, trees of resamples."""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone
from torch import Tensor

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.base import check_times, median_event_time
from sstorch.data import OutcomeType, SurvivalData
from sstorch.data.fingerprint import fingerprint
from sstorch.data.subjects import CONSTANT_COVARIATES, rows_of_subjects
from sstorch.exact.estimators.base import ExactTree
from sstorch.exact.observed import weighted_rows
from sstorch.exact.tree import LeafCurveKind, leaf_curves
from sstorch.exceptions import DataWarning
from sstorch.groups.hooks import RESULTS, CardFacts, GroupedTree, LeafOf
from sstorch.groups.stability import Partition, resamples
from sstorch.groups.table import CHOSEN_RULES, WEIGHTED
from sstorch.groups.validation import CompetingGroupValidation, GroupValidation
from sstorch.metrics.outcome import Observed
from sstorch.reading.late_fit import steps_from_entry


def observed(data: SurvivalData) -> Observed:
    """The outcomes of rows."""
    return weighted_rows(data.y.any_cause(), data.sample_weight)


def training_rows(X: object, y: object, sample_weight: object) -> SurvivalData:
    """The rows of positive weight that a tree is fitted to. Raises DataError: the data are invalid."""
    data = SurvivalData(X, y, sample_weight=sample_weight)
    data.warn_of_few_events()
    data = data.counted()
    if text := steps_from_entry(data):
        warnings.warn(text, DataWarning, stacklevel=3)
    return data


class OutcomeTree(ExactTree, GroupedTree):
    """Base class of exact trees of times and events: keeps the type of the outcome; not for use by itself."""

    training_rows_: str  # fingerprint of the training rows
    _start_text: str  # that curves before the first entry are not observed; empty if nothing is lost
    _subjects: list[int]  # of all rows that the tables count and of each group; empty if each has one row

    @property
    def _competing(self) -> bool:
        return bool(self.causes_)

    @abstractmethod
    def _fit_data(self, data: SurvivalData) -> Self:
        """Search for the tree of rows of positive weight."""

    def _set_outcome(self, data: SurvivalData) -> None:
        self.outcome_type_ = replace(data.outcome_type, weighted=data.uneven_weight is not None)
        self.time_varying_ = data.time_varying
        self.zero_time_, self.horizon_ = data.zero_time, median_event_time(data)
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

    def _state(self) -> dict[str, Any]:
        state = super()._state() | {
            "outcome_type": self.outcome_type_.to_dict(),
            "time_varying": self.time_varying_,
            "training_rows": self.training_rows_,
            "subjects": self._subjects,
            "start_text": self._start_text,
        }
        if "group_validation_" in vars(self):
            state["group_validation"] = self.group_validation_.to_dict()
        return state

    def _set_state(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        super()._set_state(state, tensors)
        self.outcome_type_ = OutcomeType.from_dict(state["outcome_type"])
        self.time_varying_ = bool(state["time_varying"])
        self.training_rows_ = str(state["training_rows"])
        self._subjects = [int(number) for number in state["subjects"]]
        self._start_text = str(state["start_text"])
        if "group_validation" in state:
            of_file = CompetingGroupValidation if self._competing else GroupValidation
            self.group_validation_ = of_file.from_dict(state["group_validation"])

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
        """Seed of resamples."""
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

    def _trained(self, data: SurvivalData, splits: list[SurvivalData]) -> list[LeafOf]:
        return [clone(self)._fit_data(rows)._leaf_of for rows in splits]

    def _resampled(self, data: SurvivalData, n_resamples: int) -> ResampledTrees:
        splits, draws = resamples(data, n_resamples, self._seed)
        return ResampledTrees(tuple(clone(self)._fit_data(rows) for rows in splits), draws)

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


@dataclass(frozen=True)
class ResampledTrees:
    """Exact trees fitted to resamples.

    Attributes:
        fitted: the K trees.
        draws: number of draws of each row of positive weight for each tree, shape (K, n).
    """

    fitted: tuple[OutcomeTree, ...]
    draws: IntArray

    def apply(self, X: object) -> IntArray:
        """Group of each row in all trees, shape (K, n)."""
        frame = self.fitted[0]._cleaned(X)
        return np.stack([tree._leaf_of(frame) for tree in self.fitted])

    def partitions(self, X: object) -> Iterator[Partition]:
        """Groups of rows in each tree, and the columns of its splits."""
        frame = self.fitted[0]._cleaned(X)
        for tree in self.fitted:
            yield tree._partition(frame)
