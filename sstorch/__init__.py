"""Differentiable survival modelling in PyTorch: soft survival trees, trained as a batch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sstorch._version import __version__

if TYPE_CHECKING:
    from sstorch import metrics
    from sstorch.data import Surv, SurvivalData, list_datasets, load_dataset
    from sstorch.exact.estimators import (
        OptimalPolicyTree,
        OptimalSurvivalTree,
        OptimalSurvivalTreeCV,
        OptimalTreeClassifier,
        OptimalTreeRegressor,
        Search,
    )
    from sstorch.groups.recalibration import recalibrate
    from sstorch.soft.estimators import PrognosticTree, SoftSurvivalTree, SurvivalRegression
    from sstorch.soft.parameters import Columns, GatePenalties, GroupPenalties, Penalties
    from sstorch.soft.torch_survival import TorchSurvival
    from sstorch.validation import validate

__all__ = [
    "Columns",
    "GatePenalties",
    "GroupPenalties",
    "OptimalPolicyTree",
    "OptimalSurvivalTree",
    "OptimalSurvivalTreeCV",
    "OptimalTreeClassifier",
    "OptimalTreeRegressor",
    "Penalties",
    "PrognosticTree",
    "Search",
    "SoftSurvivalTree",
    "Surv",
    "SurvivalData",
    "SurvivalRegression",
    "TorchSurvival",
    "__version__",
    "list_datasets",
    "load_dataset",
    "metrics",
    "recalibrate",
    "validate",
]

# Modules of these names: they load torch, at the first use, so that a command can report that it starts.
_HOMES = {
    **dict.fromkeys(("Surv", "SurvivalData", "list_datasets", "load_dataset"), "sstorch.data"),
    **dict.fromkeys((name for name in __all__ if name.startswith("Optimal")), "sstorch.exact.estimators"),
    "Search": "sstorch.exact.estimators",
    **dict.fromkeys(("Columns", "GatePenalties", "GroupPenalties", "Penalties"), "sstorch.soft.parameters"),
    **dict.fromkeys(("PrognosticTree", "SoftSurvivalTree", "SurvivalRegression"), "sstorch.soft.estimators"),
    "TorchSurvival": "sstorch.soft.torch_survival",
    "recalibrate": "sstorch.groups.recalibration",
    "validate": "sstorch.validation",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sstorch' has no attribute {name!r}")
    if name == "metrics":
        value: Any = import_module("sstorch.metrics")
    else:
        value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
