"""Declarations of the settings of trees: defaults, rules, and where else they stand."""

import dataclasses
from typing import get_args

import pytest

from sstorch import Columns, PrognosticTree, SurvivalRegression
from sstorch.exceptions import ConfigError
from sstorch.nn import FAMILIES
from sstorch.soft import BatchSettings, Coefficients
from sstorch.soft.settings import (
    AUTO,
    DTYPES,
    INITS,
    TRAINERS,
    Dtype,
    Init,
    LeafName,
    TrainerName,
    coefficient,
    coefficient_or_estimated,
)


def test_declared_defaults_are_those_of_prognostic_trees() -> None:
    values = PrognosticTree().get_params() | PrognosticTree().penalties.get_params() | Columns().get_params()
    values["offset_column"] = values.pop("offset")
    values.pop("trainer")  # a name among the settings
    defaults = {item.name: item.default for item in dataclasses.fields(BatchSettings)}
    shared = set(values) & set(defaults)
    assert {name: defaults[name] for name in shared} == {name: values[name] for name in shared}
    assert set(defaults) - shared == {
        *("trainer", "init", "n_starts", "prediction", "seed", "own_penalties", "trains_gates"),
        *("gate_ridge", "gate_ridge_units"),
    }


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (get_args(LeafName), {*FAMILIES, AUTO}),
        (get_args(TrainerName), set(TRAINERS)),
        (get_args(Init), set(INITS)),
        (get_args(Dtype), set(DTYPES)),
    ],
)
def test_names_for_type_checkers_are_those_that_exist(names: tuple[str, ...], values: set[str]) -> None:
    assert set(names) == values


def test_misspelt_leaf_names_the_one_that_is_meant() -> None:
    with pytest.raises(ConfigError, match=r"unknown leaf 'weibul'.*Did you mean 'weibull'"):
        SurvivalRegression(leaf="weibul")._batch_settings()  # type: ignore[arg-type]


def test_every_declared_coefficient_is_one_that_trees_of_a_batch_may_differ_in() -> None:
    rules = (coefficient, coefficient_or_estimated)
    declared = {item.name for item in dataclasses.fields(BatchSettings) if item.metadata["rule"] in rules}
    assert declared - {"gate_charge"} == {item.name for item in dataclasses.fields(Coefficients)}


def test_defaults_pass_their_own_rules() -> None:
    plain = BatchSettings.check()
    assert dataclasses.replace(plain, gate_ridge=0.0) == PrognosticTree()._batch_settings()
    assert BatchSettings.check(min_leaf=0.2) == dataclasses.replace(plain, min_leaf=0.2)


@pytest.mark.parametrize("name", [item.name for item in dataclasses.fields(Coefficients)])
@pytest.mark.parametrize("value", [-1e-9, float("nan"), float("inf"), True, "1"])
def test_a_coefficient_that_is_none_is_refused(name: str, value: object) -> None:
    bounds = "('estimated' or )?a finite number >= 0"
    with pytest.raises(ConfigError, match=f"^{name} must be {bounds}, got "):
        BatchSettings.check(**{"fairness": "l2", name: value})
