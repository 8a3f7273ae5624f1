"""Declarations of the settings of trees: defaults, rules, and where else they stand."""

import dataclasses
import inspect

import pytest

from sstorch import PrognosticTree, SoftSurvivalTree
from sstorch.exceptions import ConfigError
from sstorch.soft import BatchSettings, Coefficients
from sstorch.soft.settings import SETTINGS, coefficient, coefficient_or_inf


def test_declared_defaults_are_those_of_the_estimator() -> None:
    parameters = inspect.signature(SoftSurvivalTree).parameters
    ours = {name: item.default for name, item in SETTINGS.items() if name != "seed"}
    assert ours == {name: parameters[name].default for name in ours}
    assert set(parameters) - set(ours) == {"random_state", "time_unit", "verbose"}


def test_every_declared_coefficient_is_one_that_trees_of_a_batch_may_differ_in() -> None:
    declared = {name for name, item in SETTINGS.items() if item.rule in (coefficient, coefficient_or_inf)}
    assert declared == {item.name for item in dataclasses.fields(Coefficients)}


def test_defaults_pass_their_own_rules() -> None:
    plain = BatchSettings.check()
    assert plain == PrognosticTree().settings()
    assert BatchSettings.check(n_starts=3) == dataclasses.replace(plain, n_starts=3)


def test_settings_that_are_saved_have_plain_values() -> None:
    # None depends on start and trainer.
    plain = (int, float, str, type(None))
    assert all(type(item.default) in plain for item in SETTINGS.values() if item.saved)


@pytest.mark.parametrize("name", [item.name for item in dataclasses.fields(Coefficients)])
@pytest.mark.parametrize("value", [-1e-9, float("nan"), float("inf"), True, "1"])
def test_a_coefficient_that_is_none_is_refused(name: str, value: object) -> None:
    if (name, value) == ("fused", float("inf")):
        assert BatchSettings.check(fused=value).fused == value
        return
    with pytest.raises(ConfigError, match=f"^{name} must be a finite number >= 0, got "):
        BatchSettings.check(**{"fairness": "l2", name: value})


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="no settings dept"):
        BatchSettings.check(dept=1)
