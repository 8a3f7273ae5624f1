"""Honest groups: half of the subjects place the gates, the other half estimates the hazards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sstorch.data import Preprocessor, SurvivalData
from sstorch.data.folds import folds_of
from sstorch.exceptions import ConfigError
from sstorch.nn import GateParameters

_TEACHERS = (None, "residuals", "predictor")


@dataclass(frozen=True)
class Honest:
    """Teacher of a :class:`~sstorch.PrognosticTree` that places the gates on one half of the subjects.

    The other half estimates the hazards of the groups. Given the covariates, the gates are independent of the
    outcomes of this half: confidence intervals of groups are valid as for fixed gates. Halves are balanced by
    event, or by cause; all rows of a subject are in one half.

    Args:
        teacher: source of the gates in the first half: ``"residuals"``, ``"predictor"``, or None for the one
            with more evidence.

    References:
        Athey and Imbens (2016), "Recursive partitioning for heterogeneous causal effects", Proceedings of the
        National Academy of Sciences 113, 7353-7360.
    """

    teacher: str | None = None

    def __post_init__(self) -> None:
        if self.teacher not in _TEACHERS:
            raise ConfigError(
                "teacher of Honest must be None, 'residuals' or 'predictor', trained on one half of the "
                f"subjects, got {self.teacher!r}"
            )


@dataclass(frozen=True)
class PlacedGates:
    """Gates of S splits that other subjects have placed."""

    # of the splits, fitted to these subjects: gates are in their features
    preprocessors: Sequence[Preprocessor]
    gates: GateParameters  # weights (S, B, q) and biases (S, B)


def halves(data: SurvivalData, seed: int) -> tuple[SurvivalData, SurvivalData]:
    """Rows that place the gates, and rows that estimate the hazards; each has events of every cause."""
    places = folds_of(data, 2, seed) == 0
    return data.subset(places), data.subset(~places)
