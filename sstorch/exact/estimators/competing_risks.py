"""Exact trees for competing causes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sstorch._types import FloatArray, IntArray
from sstorch.base import CurveKind, IncidenceEstimator
from sstorch.checks import check_integer
from sstorch.data import SurvivalData
from sstorch.data.time_unit import check_time_unit
from sstorch.deploy import Deployable, Deployed, Formula
from sstorch.exact.binarize import Binarizer, Preset
from sstorch.exact.estimators.base import LoadableTree, rows_text
from sstorch.exact.estimators.outcome import OutcomeTree, observed, training_rows
from sstorch.exact.estimators.search import SearchSettings
from sstorch.exact.formula import deployed, tree_formula
from sstorch.exact.recalibration import (
    baseline_report,
    check_baseline,
    leaf_factors,
    scaled_incidence,
)
from sstorch.exact.survival_tasks import CompetingLogLikelihood
from sstorch.exact.tree import LeafCurves, leaf_curves, martingale_residuals
from sstorch.exceptions import DataError
from sstorch.groups import Recalibration
from sstorch.groups.hooks import RESULTS, CardFacts
from sstorch.groups.recalibration import Recalibrate
from sstorch.groups.table import frame_of_state, frame_state, groups_text, incidence_lines, table_of
from sstorch.memory import check_room
from sstorch.metrics import aalen_johansen
from sstorch.metrics.weights import WeightKind


@dataclass(kw_only=True)
class CompetingRisksSettings(SearchSettings):
    """The checked parameters of exact trees for competing causes."""

    min_events: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self.min_events = check_integer("min_events", self.min_events, 0)


class OptimalCompetingRisksTree(OutcomeTree, LoadableTree, Deployable, IncidenceEstimator):
    """Tree for competing causes of least training loss among all trees of its size, over yes-no questions.

    The loss is the sum over causes of SurTree's, half the deviance of proportional hazards with one hazard
    ratio per leaf, the events of the other causes being censored: the likelihood of cause-specific hazards is
    a product over causes. Curves of the leaves are the estimates of Aalen and Johansen of their rows.

    Args:
        max_depth: most questions on a path, 0 (a single leaf) to 5.
        max_nodes: as of :class:`~sstorch.OptimalSurvivalTree`, and so are `leaf_penalty`, `min_leaf`,
            `binarize`, `device`, `time_limit`, `memory`, `time_unit`, `lookahead` and `verbose`.
        min_events: least number of training events of a leaf, of any cause.

    Attributes:
        tree_: as of :class:`~sstorch.OptimalSurvivalTree`, and so are `rules_`, `objective_`, `certified_`,
            `gap_`, `outcome_type_`, `time_varying_`, `optima_`, `path_`, `zero_time_`, `schema_`,
            `feature_names_in_`, `n_features_in_` and `n_samples_fit_`.
        loss_: training loss of the tree, a total over rows.
        causes_: names of the K causes.
        horizon_: median of the observed event times, the time at which :meth:`predict` gives incidences.
        incidence_: of each leaf and cause at `event_times_`, (L, K, T).
        hazards_: cumulative hazard of each leaf and cause at `event_times_` (Nelson-Aalen), (L, K, T).
        curves_: survival and cumulative hazard of any event, of each leaf.
        group_validation_, stability_: the last results of :func:`~sstorch.validation.validate_groups`, which
            is saved, and of :func:`~sstorch.validation.stability`.
        recalibration_: by cause, of a tree from :func:`sstorch.recalibrate`; `group_table_` then counts its
            rows.
        group_table_: :func:`~sstorch.validation.group_table` of the training rows.
        hazard_ratios_: of each leaf and cause, (L, K); half an event is counted in a leaf without any.
        event_times_: distinct times of any event, original units, increasing.
        time_unit_: unit of the times; None if not known.

    References:
        Huisman, van der Linden and Demirović (2024), Optimal survival trees: a dynamic programming approach,
        AAAI 38, for the loss of one event. Aalen and Johansen (1978), Scandinavian Journal of Statistics 5,
        141-150.

    >>> import numpy as np
    >>> from sstorch import Surv
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(300, 2))
    >>> first, second = rng.exponential(np.exp(x[:, 0])), rng.exponential(np.exp(x[:, 1]))
    >>> cause = np.where(first < second, 1, 2) * (np.minimum(first, second) < 2)
    >>> time = np.minimum(np.minimum(first, second), 2)
    >>> tree = OptimalCompetingRisksTree(max_depth=2, min_leaf=30)
    >>> tree = tree.fit(x, Surv(time, cause, causes=("relapse", "death")))
    >>> tree.certified_, tree.predict_cumulative_incidence(x[:3], times=[0.5, 1.0]).shape
    (True, (3, 2, 2))
    """

    _format = "sstorch.optimal_competing_risks_tree"
    _settings_class = CompetingRisksSettings
    _numbers = (*LoadableTree._numbers, "zero_time_", "horizon_")
    _competing = True

    curves_: LeafCurves
    incidence_: FloatArray
    hazards_: FloatArray
    hazard_ratios_: FloatArray
    recalibration_: dict[str, Recalibration]
    _settings: CompetingRisksSettings

    def __init__(
        self,
        max_depth: int = 3,
        max_nodes: int | None = None,
        leaf_penalty: float = 0.0,
        min_leaf: int = 1,
        binarize: Preset | bool | Binarizer = "surtree",
        device: str = "cpu",
        time_limit: float | None = None,
        min_events: int = 0,
        memory: int = 4 * 2**30,
        time_unit: str | None = None,
        lookahead: int | None = None,
        verbose: int = 0,
    ) -> None:
        size = max_depth, max_nodes, leaf_penalty, min_leaf
        super().__init__(*size, binarize, device, time_limit, memory, lookahead, verbose)
        self.min_events = min_events
        self.time_unit = time_unit

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Search for the tree; `X`, `sample_weight` and errors as in :meth:`OptimalSurvivalTree.fit`.

        ``y`` is a :class:`~sstorch.Surv` with ``causes``; with ``entry`` for left truncation, and ``id`` for
        start-stop rows of subjects.
        """
        return self.fit_data(training_rows(X, y, sample_weight, causes=True))

    def fit_data(self, data: SurvivalData) -> Self:
        """:meth:`fit` to rows of positive weight whose causes are known."""
        settings: CompetingRisksSettings = self._check()
        unit, data = check_time_unit(self.time_unit), data.joined()
        rows = observed(data)
        questions = settings.questions(data.frame, martingale_residuals(rows), data.sample_weight)
        task = _task(data)
        leaf = self._set(questions, questions.solve(task, settings.min_events))
        self._set_outcome(data)
        self._set_causes(data)
        self.time_unit_ = unit or data.time_unit
        self._set_estimates(data, leaf)
        return self

    def _set_estimates(self, data: SurvivalData, leaf: IntArray, weights: WeightKind = "sampling") -> None:
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
            [aalen_johansen(data.y[i], curves.times, sample_weight=rows.weight[i]) for i in inside]
        )
        self._set_leaves(curves, incidence, hazards, data, _task(data).decisions(leaf, n_leaves), weights)

    def _set_leaves(
        self,
        curves: LeafCurves,
        incidence: FloatArray,
        hazards: FloatArray,
        data: SurvivalData,
        ratios: FloatArray,
        weights: WeightKind = "sampling",
    ) -> None:
        """Set what the leaves hold, and the table of some rows.

        Args:
            curves: of any event.
            incidence: of each cause, shape (L, K, T).
            hazards: cumulative hazard of each cause, shape (L, K, T).
            data: rows that the table counts.
            ratios: hazard ratio of each leaf and cause, shape (L, K).
            weights: what the weights of the rows are.
        """
        self.curves_, self.event_times_ = curves, curves.times
        self.incidence_, self.hazards_, self.hazard_ratios_ = incidence, hazards, ratios
        self.group_table_ = table_of(self, data.joined(), weights=weights)

    # ------------------------------------------------------------------ predict

    def _incidences(self, X: object, times: FloatArray) -> FloatArray:
        """Steps of the leaves; beyond the last training event they keep their value."""
        leaf = self.apply(X)
        check_room(len(leaf) * len(self.causes_), len(times), "times")
        at = np.searchsorted(self.event_times_, times, side="right")
        zero = np.zeros((*self.incidence_.shape[:2], 1))
        return np.asarray(np.concatenate([zero, self.incidence_], axis=2)[..., at][leaf])

    def _curves(self, kind: CurveKind, X: object, times: FloatArray) -> FloatArray:
        """Of any event: Kaplan-Meier, and for the cumulative hazard Nelson-Aalen."""
        leaf = self.apply(X)
        check_room(len(leaf), times.shape[-1], "times")
        at = self.curves_.survival_at if kind == "survival" else self.curves_.cumulative_hazard_at
        return at(times)[leaf] if times.ndim == 1 else at(times, leaf)

    # ------------------------------------------------------------------ groups

    def recalibrated(self, data: SurvivalData, how: Recalibrate, weights: WeightKind) -> Self:
        """See :func:`sstorch.recalibrate`."""
        leaf, n_leaves = self._leaf_of(data.frame), self.tree_.n_leaves
        expected = self._expected(data, leaf)
        events = [data.cause == number for number in range(1, len(self.causes_) + 1)]
        new, reports = self._recalibrated_copy(), list[Recalibration]()
        if how == "baseline":
            check_baseline(data, leaf, n_leaves, weights)
            new._set_estimates(data, leaf, weights)
            for event, *both in zip(events, expected, new._expected(data, leaf), strict=True):
                reports.append(baseline_report(data, event, (both[0], both[1])))
        else:
            ratios = self.hazard_ratios_.copy()
            factors = np.ones((n_leaves, len(self.causes_)))
            for k, name in enumerate(self.causes_):
                try:
                    factors[:, k], slope, report = leaf_factors(
                        data, events[k], leaf, expected[k], np.log(ratios[:, k]), how, weights
                    )
                except DataError as error:
                    raise DataError(f"cause {name}: {error}") from error
                ratios[:, k] **= slope
                reports.append(report)
            curves, incidence = scaled_incidence(self.curves_, self.hazards_, factors)
            hazards = factors[:, :, None] * self.hazards_
            new._set_leaves(curves, incidence, hazards, data, ratios, weights)
        new.recalibration_ = dict(zip(self.causes_, reports, strict=True))
        return new

    def _expected(self, data: SurvivalData, leaf: IntArray) -> list[FloatArray]:
        """Predicted cumulative hazard of each cause from the entry of each row to its time, (n,) each."""
        curves = (LeafCurves(self.event_times_, np.exp(-each), each) for each in self.hazards_.swapaxes(0, 1))
        return [each.exposure(leaf, data.time, data.entry) for each in curves]

    # ------------------------------------------------------------------ read and keep

    def leaf_texts(self) -> list[str]:
        """A line on each leaf: its number, rows and events of every cause."""
        check_is_fitted(self, "tree_")
        # Leaves may have none of the rows of a recalibration.
        table = self.group_table_.reindex(range(self.tree_.n_leaves), fill_value=0)
        return [
            f"leaf {leaf}: {rows_text(int(table['rows', ''][leaf]))}, "
            + ", ".join(f"{table[f'events {name}', ''][leaf]:g} {name}" for name in self.causes_)
            for leaf in table.index
        ]

    @property
    def _unit_of_time(self) -> str | None:
        return self.time_unit_

    def _card(self) -> CardFacts:
        table = self.group_table_
        events = ", ".join(f"{table[f'events {name}', ''].sum()} {name}" for name in self.causes_)
        return self._facts(int(table["rows", ""].sum()), events, incidence_lines(table))

    def _predicted(self, frame: pd.DataFrame, times: FloatArray) -> FloatArray:
        return self._incidences(frame, times)

    def summary(self) -> str:
        """The search and its result, the tree, hazard ratios of the leaves, and a table of the groups.

        Below them the results of ``validate_groups``, of ``stability`` and of :func:`sstorch.recalibrate`,
        whose rows the table then counts.
        """
        check_is_fitted(self, "tree_")
        card, reports = self._card(), vars(self).get("recalibration_", {})
        leaves = pd.RangeIndex(self.tree_.n_leaves, name="leaf")
        text = self._summary(
            "competing risks",
            f"{card.rows} rows, {card.events}{self._of_recalibration}",
            "log_likelihood",
            pd.DataFrame(self.hazard_ratios_, index=leaves, columns=self.causes_),
            lambda value: f"{value:.3f}" if math.isfinite(value) else "-",
            heading="Leaves, hazard ratio of each cause",
        )
        unit = f", t in {self.time_unit_}" if self.time_unit_ else ""
        is_scaled = any(report.how != "baseline" for report in reports.values())
        incidence = "the recalibrated incidence of the leaf" if is_scaled else "that of the leaf"
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
        return "\n\n".join(parts)

    def _formula(self) -> Formula:
        check_is_fitted(self, "tree_")
        incidence = dict(zip(self.causes_, self.incidence_.swapaxes(0, 1), strict=True))
        return tree_formula(self.tree_, self.rules_, self.curves_, self.schema_, incidence)

    def _deployed(self, medians: bool) -> Deployed:
        table = self.group_table_
        counts = [f"{table[f'events {name}', ''].sum():g} {name}" for name in self.causes_]
        rows = f"{table['rows', ''].sum():g} rows, {', '.join(counts)}{self._of_recalibration}"
        kind = f"Optimal competing risks tree with {self.tree_.n_leaves} leaves"
        return deployed(self.tree_, self.rules_, self.schema_, self.leaf_texts(), kind, rows, self.time_unit_)

    def _state(self) -> dict[str, Any]:
        state = super()._state() | {
            "time_unit": self.time_unit_,
            "group_table": frame_state(self.group_table_),
        }
        if "recalibration_" in vars(self):
            state["recalibration"] = {name: each.to_dict() for name, each in self.recalibration_.items()}
        return state

    def _leaf_arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {
            "event_times": self.event_times_,
            "incidence": self.incidence_,
            "hazards": self.hazards_,
            "survival": self.curves_.survival,
            "cumulative_hazard": self.curves_.cumulative_hazard,
            "hazard_ratios": self.hazard_ratios_,
        }

    def _set_leaf_arrays(self, tensors: Mapping[str, Tensor]) -> None:
        arrays = {
            name: tensors[name].numpy()
            for name in ("survival", "cumulative_hazard", "incidence", "hazards", "hazard_ratios")
        }
        self.event_times_, n_leaves = tensors["event_times"].numpy(), self.tree_.n_leaves
        shape = n_leaves, len(self.event_times_)
        if any(arrays[name].shape != shape for name in ("survival", "cumulative_hazard")):
            raise ValueError(f"curves of {arrays['survival'].shape}, expected {shape}")
        if len(arrays["incidence"]) != n_leaves:
            raise ValueError(f"incidences of {len(arrays['incidence'])} leaves, expected {n_leaves}")
        self.curves_ = LeafCurves(self.event_times_, arrays["survival"], arrays["cumulative_hazard"])
        if arrays["hazards"].shape != arrays["incidence"].shape:
            raise ValueError(f"hazards of {arrays['hazards'].shape}, expected {arrays['incidence'].shape}")
        self.incidence_, self.hazards_ = arrays["incidence"], arrays["hazards"]
        self.hazard_ratios_ = arrays["hazard_ratios"]

    def _set_state(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        super()._set_state(state, tensors)
        self.time_unit_ = state["time_unit"]
        if self.incidence_.shape[1] != len(self.causes_):
            raise ValueError(f"incidences of {self.incidence_.shape[1]} causes, expected {len(self.causes_)}")
        self.group_table_ = frame_of_state(state["group_table"])
        if "recalibration" in state:
            reports = state["recalibration"].items()
            self.recalibration_ = {name: Recalibration.from_dict(report) for name, report in reports}


def _task(data: SurvivalData) -> CompetingLogLikelihood:
    return CompetingLogLikelihood(
        data.time, data.cause, len(data.cause_names), entry=data.entry, sample_weight=data.sample_weight
    )
