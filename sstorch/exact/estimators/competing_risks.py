"""Leaves of exact survival trees for competing causes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from torch import Tensor

from sstorch._types import FloatArray, IntArray
from sstorch.checks import counted
from sstorch.data import SurvivalData
from sstorch.exact.estimators.outcome import OutcomeTree, observed
from sstorch.exact.survival_tasks import CompetingLogLikelihood
from sstorch.exact.tree import LeafCurves, leaf_curves
from sstorch.groups import Recalibration
from sstorch.groups.hooks import RESULTS, CardFacts
from sstorch.groups.table import groups_text, incidence_lines, table_of
from sstorch.memory import check_room
from sstorch.metrics import aalen_johansen

# Attributes with a number or curve of each leaf and cause.
_OF_CAUSES = ("incidence_", "hazards_", "hazard_ratios_")


class CauseLeaves(OutcomeTree):
    """Leaves of an exact survival tree whose training rows have competing causes; not for use by itself.

    Curves are the estimates of Aalen and Johansen of the rows of a leaf.
    """

    curves_: LeafCurves
    incidence_: FloatArray
    hazards_: FloatArray
    hazard_ratios_: FloatArray
    recalibration_: Recalibration | dict[str, Recalibration]

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

    # ------------------------------------------------------------------ predict

    def _cause_incidences(self, X: object, times: FloatArray) -> FloatArray:
        """Steps of the leaves; beyond the last training event they keep their value."""
        leaf = self._leaf(X)
        check_room(len(leaf) * len(self.causes_), len(times))
        at = np.searchsorted(self.event_times_, times, side="right")
        zero = np.zeros((*self.incidence_.shape[:2], 1))
        return np.asarray(np.concatenate([zero, self.incidence_], axis=2)[..., at][leaf])

    # ------------------------------------------------------------------ groups

    def _expected(self, data: SurvivalData, leaf: IntArray) -> list[FloatArray]:
        """Predicted cumulative hazard of each cause from the entry of each row to its time, (n,) each."""
        hazards = self.hazards_ if self._competing else self.curves_.cumulative_hazard[:, None]
        curves = (LeafCurves(self.event_times_, np.exp(-each), each) for each in hazards.swapaxes(0, 1))
        return [each.exposure(leaf, data.time, data.entry) for each in curves]

    # ------------------------------------------------------------------ read and keep

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

    def _leaf_arrays(self) -> dict[str, npt.NDArray[Any]]:
        arrays = {
            "event_times": self.event_times_,
            "survival": self.curves_.survival,
            "cumulative_hazard": self.curves_.cumulative_hazard,
        }
        return arrays | {name: getattr(self, name) for name in _OF_CAUSES if self._competing}

    def _set_leaf_arrays(self, tensors: Mapping[str, Tensor]) -> None:
        self.event_times_ = tensors["event_times"].numpy()
        n_leaves, n_causes, n_times = self.tree_.n_leaves, len(self.causes_), len(self.event_times_)
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(
            ("survival", "cumulative_hazard"), (n_leaves, n_times)
        )
        if self._competing:
            curves = (n_leaves, n_causes, n_times)
            shapes |= {"incidence_": curves, "hazards_": curves, "hazard_ratios_": (n_leaves, n_causes)}
        arrays = {name: tensors[name].numpy() for name in shapes}
        for name, shape in shapes.items():
            if arrays[name].shape != shape:
                raise ValueError(f"{name} has the shape {arrays[name].shape}, expected {shape}")
        self.curves_ = LeafCurves(self.event_times_, arrays.pop("survival"), arrays.pop("cumulative_hazard"))
        for name, array in arrays.items():
            setattr(self, name, array)


def cause_task(data: SurvivalData) -> CompetingLogLikelihood:
    """The loss of cause-specific hazards: the sum over causes of that of one event."""
    return CompetingLogLikelihood(
        data.time, data.cause, len(data.cause_names), entry=data.entry, sample_weight=data.sample_weight
    )
