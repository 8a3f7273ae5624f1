"""Interface of fitted models for inference."""

from __future__ import annotations

from typing import Protocol

import pandas as pd

from sstorch.checks import check_tree
from sstorch.data import SurvivalData
from sstorch.exceptions import ConfigError
from sstorch.fitted import FittedTree
from sstorch.inference.covariance import FitCovariance


class Inferable(Protocol):
    """A fitted regression, or groups, with the covariance of its coefficients."""

    covariance_: FitCovariance

    @property
    def _tree(self) -> FittedTree:
        """The trained tree."""

    def _cleaned(self, X: object) -> pd.DataFrame:
        """The training columns of rows, read."""


class Refitted(Inferable, Protocol):
    """A fitted model that can also check training rows."""

    def _scored(self, X: object, y: object, sample_weight: object = None) -> SurvivalData:
        """Rows with their outcome, checked against that of training."""

    def _rows(self, X: object, y: object, sample_weight: object = None) -> SurvivalData:
        """The same without rows of weight 0."""


def covariance_of(model: Inferable) -> FitCovariance:
    """The covariance of a model; raises ConfigError with the reason if it has none."""
    if reason := no_covariance(model):
        raise ConfigError(reason)
    found: FitCovariance = vars(model)["covariance_"]
    return found


def no_covariance(model: Inferable) -> str:
    """Why a model has no covariance; empty if it has one."""
    check_tree(model, "_tree", "soft survival tree")
    tree = model._tree
    found: FitCovariance | None = vars(model).get("covariance_")
    if found is not None and found.hazards:
        return ""
    reason = "it was trained as one of several, or recalibrated" if found is None else found.reason
    kind = "this regression" if tree.module.topology.depth == 0 else "these groups"
    return f"the coefficients of {kind} have no covariance: {reason}"
