"""How much of each estimator there is to learn: public methods and parameters of the constructor."""

import inspect

import pytest
from sklearn.base import BaseEstimator

import sstorch

ESTIMATORS = (
    "SurvivalRegression",
    "PrognosticTree",
    "SoftSurvivalTree",
    "OptimalSurvivalTree",
    "OptimalSurvivalTreeCV",
)
METHODS, PARAMETERS = 20, 15
# Of scikit-learn itself.
_OF_SKLEARN = {name for name in dir(BaseEstimator) if not name.startswith("_")}


def public_methods(name: str) -> list[str]:
    """Callable public names of an estimator, without those of scikit-learn itself."""
    kind = getattr(sstorch, name)
    names = (each for each in dir(kind) if not each.startswith("_") and callable(getattr(kind, each)))
    return [each for each in names if each not in _OF_SKLEARN and not each.endswith("_request")]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_public_methods_are_few(name: str) -> None:
    methods = public_methods(name)
    assert len(methods) <= METHODS, methods


@pytest.mark.parametrize("name", ESTIMATORS)
def test_parameters_are_few(name: str) -> None:
    parameters = list(inspect.signature(getattr(sstorch, name)).parameters)
    assert len(parameters) <= PARAMETERS, parameters
