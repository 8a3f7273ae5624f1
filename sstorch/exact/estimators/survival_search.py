"""Search of exact survival trees: checked parameters, and what a search has found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from sstorch.checks import check_choice, check_integer
from sstorch.data import SurvivalData
from sstorch.data.time_unit import check_time_unit
from sstorch.exact.estimators.search import Questions, SearchSettings
from sstorch.exact.observed import weighted_rows
from sstorch.exact.reference import reference_costs
from sstorch.exact.solution import Solution
from sstorch.exact.survival_tasks import CompetingLogLikelihood, IntegratedBrier, LogLikelihood
from sstorch.exact.task import Task
from sstorch.exact.tree import LeafCurveKind, martingale_residuals
from sstorch.exceptions import ConfigError
from sstorch.metrics.outcome import Observed

Objective = Literal["log_likelihood", "integrated_brier"]


# Curves that the leaves can have, by objective: those that it is, or can be, the loss of.
CURVES: dict[str, tuple[str, ...]] = {
    "log_likelihood": ("kaplan_meier", "proportional_hazards"),
    "integrated_brier": ("kaplan_meier", "ipcw"),
}


# With competing causes: cause-specific hazards, and the estimates of Aalen and Johansen.
CURVES_OF_CAUSES = ("log_likelihood", "kaplan_meier")


def observed(data: SurvivalData) -> Observed:
    """The outcomes of rows."""
    return weighted_rows(data.y.any_cause(), data.sample_weight)


def cause_task(data: SurvivalData) -> CompetingLogLikelihood:
    """The loss of cause-specific hazards: the sum over causes of that of one event."""
    return CompetingLogLikelihood(
        data.time, data.cause, len(data.cause_names), entry=data.entry, sample_weight=data.sample_weight
    )


@dataclass(kw_only=True)
class SurvivalSettings(SearchSettings):
    """The checked parameters of exact survival trees."""

    objective: Objective
    min_events: int
    leaf_curve: LeafCurveKind
    time_unit: str | None = None

    def __post_init__(self) -> None:
        check_choice(self.objective, "objective", get_args(Objective))
        if self.leaf_curve not in CURVES[self.objective]:
            raise ConfigError(
                f"leaf_curve must be one of {', '.join(CURVES[self.objective])} with "
                f"objective={self.objective!r}, got {self.leaf_curve!r}"
            )
        super().__post_init__()
        self.min_events = check_integer("min_events", self.min_events, 0)
        self.time_unit = check_time_unit(self.time_unit)

    @property
    def has_buckets(self) -> bool:  # noqa: D102 -- that of the base class
        return self.objective == "integrated_brier"

    def check_entry(self, rows: Observed) -> None:
        """Require an objective that supports left truncation, where rows entered late.

        Raises:
            ConfigError: it does not.
        """
        if rows.entry is not None and self.objective != "log_likelihood":
            raise ConfigError(
                f"objective={self.objective!r} does not support left truncation: its inverse probability of "
                "censoring weights would also need the probability of having entered by then; use "
                "objective='log_likelihood'"
            )

    def searched(self, data: SurvivalData, reference: object = None) -> TreeSearch:
        """Binarize and solve, from these rows and the reference model alone.

        Raises:
            DataError: the columns cannot be read or, without a binarizer, are not binary; or no leaf could be
                large enough.
            ConfigError: too many questions for the depth.
        """
        data = data.joined()
        rows, settings = observed(data), replace(self, time_unit=self.time_unit or data.time_unit)
        self.check_entry(rows)
        if data.causes is not None and (self.objective, self.leaf_curve) != CURVES_OF_CAUSES:
            name, value = (
                ("objective", self.objective)
                if self.objective != CURVES_OF_CAUSES[0]
                else ("leaf_curve", self.leaf_curve)
            )
            raise ConfigError(
                f"{name}={value!r} is for one event, and y has competing causes; use "
                f"objective={CURVES_OF_CAUSES[0]!r} and leaf_curve={CURVES_OF_CAUSES[1]!r}"
            )
        questions = self.questions(data.frame, martingale_residuals(rows), data.sample_weight)
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
        return TreeSearch(settings, data, rows, questions, questions.solve(task, self.min_events, guess))


@dataclass(frozen=True)
class TreeSearch:
    """A finished search for survival trees: its settings, rows and outcomes, and the trees of all budgets."""

    settings: SurvivalSettings
    data: SurvivalData
    rows: Observed
    questions: Questions
    solution: Solution
