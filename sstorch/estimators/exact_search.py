"""The search for exact survival trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from sstorch.data import SurvivalData
from sstorch.estimators.tree_search import SearchSettings, TreeSearch, check_integer
from sstorch.exceptions import ConfigError
from sstorch.optimal import IntegratedBrier, LogLikelihood, Task
from sstorch.optimal.leaf_curves import Curve

Objective = Literal["log_likelihood", "integrated_brier"]

# Curves that the leaves can have, by objective: those that it is, or can be, the loss of.
CURVES: dict[str, tuple[str, ...]] = {
    "log_likelihood": ("kaplan_meier", "proportional_hazards"),
    "integrated_brier": ("kaplan_meier", "ipcw"),
}


@dataclass(frozen=True, kw_only=True)
class ExactSettings(SearchSettings):
    """The checked parameters of exact survival trees; build it with :meth:`check`."""

    objective: Objective
    min_events: int
    leaf_curve: Curve
    n_buckets: int | None

    @classmethod
    def check(
        cls,
        *,
        objective: Objective,
        min_events: object,
        leaf_curve: Curve,
        n_buckets: object,
        **common: Any,
    ) -> ExactSettings:
        """Check every value and bring it to its plain type.

        Raises:
            ConfigError: a value does not exist or is out of range; the message says what would do.
        """
        if objective not in get_args(Objective):
            raise ConfigError(f"objective must be one of {', '.join(get_args(Objective))}, got {objective!r}")
        if leaf_curve not in CURVES[objective]:
            raise ConfigError(
                f"leaf_curve must be one of {', '.join(CURVES[objective])} with objective={objective!r}, "
                f"got {leaf_curve!r}"
            )
        if n_buckets is not None and objective != "integrated_brier":
            raise ConfigError("n_buckets is for objective='integrated_brier'; leave it None")
        return cls(
            **cls.common(**common),
            objective=objective,
            min_events=check_integer("min_events", min_events, 0),
            leaf_curve=leaf_curve,
            n_buckets=None if n_buckets is None else check_integer("n_buckets", n_buckets, 2),
        )

    def task(self, data: SurvivalData) -> Task:
        """The objective on some rows."""
        if self.objective == "log_likelihood":
            return LogLikelihood(data.time, data.event)
        curve: Literal["kaplan_meier", "ipcw"] = "ipcw" if self.leaf_curve == "ipcw" else "kaplan_meier"
        return IntegratedBrier(data.time, data.event, leaf_curve=curve, n_buckets=self.n_buckets)

    def search(self, data: SurvivalData) -> Search:
        """Binarize and solve, from these rows alone; errors as in `search_frame`."""
        target = (data.time, data.event)
        found = self.search_frame(data.frame, lambda _: self.task(data), target, self.min_events)
        return Search(self, found.schema, found.rules, found.features, found.solution, data)


@dataclass(frozen=True)
class Search(TreeSearch):
    """A finished search for survival trees and what it was made of.

    Attributes:
        data: its rows.
    """

    settings: ExactSettings
    data: SurvivalData
