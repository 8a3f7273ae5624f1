"""Parameter objects with scikit-learn's own tools."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from sklearn.base import clone

from sstorch.base import FrameEstimator
from sstorch.exceptions import ConfigError
from sstorch.parameters import Parameters


@dataclass(repr=False)
class Weights(Parameters):
    ridge: float = 1e-3
    columns: tuple[str, ...] = field(default=())


WEIGHTS = Weights()


class Model(FrameEstimator):  # type: ignore[misc]
    def __init__(self, weights: Weights = WEIGHTS, depth: int = 2) -> None:
        self.weights = weights
        self.depth = depth


def test_parameters_are_cloned_compared_and_shown_by_what_differs() -> None:
    given = Weights(ridge=0.5)
    assert clone(given) == given != Weights()
    assert repr(given) == "Weights(ridge=0.5)"
    assert repr(Weights()) == "Weights()"


def test_nested_parameters_change_one_estimator_alone() -> None:
    first, second = Model(), Model()
    first.set_params(weights__ridge=2.0, depth=1)
    assert (first.weights.ridge, first.depth) == (2.0, 1)
    assert second.weights.ridge == WEIGHTS.ridge == 1e-3
    assert clone(first).get_params()["weights__ridge"] == 2.0


@pytest.mark.parametrize(
    ("name", "told"), [("rigde", "did you mean 'ridge'"), ("zzz", "there are ridge, columns")]
)
def test_unknown_parameter_raises_with_the_name_that_is_meant(name: str, told: str) -> None:
    values: dict[str, Any] = {name: 1}
    with pytest.raises(ConfigError, match=told):
        Weights().set_params(**values)
