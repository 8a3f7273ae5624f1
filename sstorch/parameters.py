"""Groups of related parameters, as objects that scikit-learn's tools see into."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self, TypeVar

from sklearn.base import BaseEstimator

from sstorch.exceptions import ConfigError

EstimatorT = TypeVar("EstimatorT", bound=BaseEstimator)


@dataclass
class Parameters:
    """Related parameters of an estimator, a dataclass with defaults, such as those of its penalties.

    ``get_params`` and ``set_params`` are those of scikit-learn: a grid may have ``penalties__ridge``.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Values by name."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def set_params(self, **values: Any) -> Self:
        """Set values by name."""
        names = [item.name for item in fields(self)]
        for name, value in values.items():
            if name not in names:
                raise ConfigError(f"{type(self).__name__} has no parameter {name!r}{meant(name, names)}")
            setattr(self, name, value)
        return self

    @property
    def changed(self) -> dict[str, Any]:
        """The values that are not those by default."""
        usual = type(self)().get_params()
        return {name: value for name, value in self.get_params().items() if value != usual[name]}

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.changed.items())
        return f"{type(self).__name__}({values})"


def restored(kind: type[EstimatorT], parameters: Mapping[str, Any]) -> EstimatorT:
    """An estimator with saved parameters; those that its constructor lacks are set after it."""
    names = kind._get_param_names() & parameters.keys()
    estimator: EstimatorT = kind(**{name: parameters[name] for name in names})
    bases: list[type[BaseEstimator]] = [base for base in kind.__mro__ if issubclass(base, BaseEstimator)]
    for name in {name for base in bases for name in base._get_param_names()} - names:
        if name in parameters:
            setattr(estimator, name, parameters[name])
    return estimator


def meant(name: str, names: list[str]) -> str:
    """Hint after an unknown name in a message: the nearest valid name, if any, and all valid names."""
    near = difflib.get_close_matches(name, names, 1)
    return f": did you mean {near[0]!r}?" if near else f"; there are {', '.join(names)}"
