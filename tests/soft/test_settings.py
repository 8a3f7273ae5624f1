"""Parameters of soft estimators as settings of a batch: defaults, rules, names."""

import dataclasses

import pytest

from sstorch import Columns, GatePenalties, Penalties, PrognosticTree, SoftSurvivalTree, SurvivalRegression
from sstorch.exceptions import ConfigError
from sstorch.soft.settings import BatchSettings, Coefficients
from tests.flat import soft_tree


def test_declared_defaults_are_those_of_prognostic_trees() -> None:
    values = PrognosticTree().get_params() | PrognosticTree().penalties.get_params() | Columns().get_params()
    values.pop("trainer")  # a name among the settings
    defaults = {item.name: item.default for item in dataclasses.fields(BatchSettings)}
    shared = set(values) & set(defaults)
    assert {name: defaults[name] for name in shared} == {name: values[name] for name in shared}
    others = {"trainer", "init", "n_starts", "prediction", "seed", "trains_gates"}
    assert set(defaults) - shared == others | {"gate_ridge"}
    plain = BatchSettings.check()
    assert dataclasses.replace(plain, gate_ridge=0.0) == PrognosticTree()._batch_settings()
    assert BatchSettings.check(min_leaf=0.2) == dataclasses.replace(plain, min_leaf=0.2)


@pytest.mark.parametrize("name", [item.name for item in dataclasses.fields(Coefficients)])
@pytest.mark.parametrize("value", [-1e-9, float("nan"), float("inf"), True, "1"])
def test_a_coefficient_that_is_none_raises(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"^{name} must be .*a finite number >= 0"):
        BatchSettings.check(**{"fairness": "l2", name: value})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"depth": 7}, "depth"),
        ({"leaf": "weibul"}, r"unknown leaf 'weibul'.*Did you mean 'weibull'"),
        ({"leaf": [1]}, "unknown leaf"),
        ({"n_starts": 0, "trainer": "nodec"}, "n_starts"),
        ({"n_starts": 1.5}, "n_starts"),
        ({"n_starts": True}, "n_starts"),
        ({"trainer": "sgd"}, "trainer must be one of nodec"),
        ({"trainer": 5}, "settings such as Nodec"),
        ({"init": "zeros"}, "init"),
        ({"prediction": "mean"}, "prediction"),
        ({"dtype": "float16"}, "dtype"),
        ({"device": "gpu"}, "device"),
        ({"device": "cpu:abc"}, "device"),
        ({"random_state": -1}, "random_state"),
        ({"random_state": "a"}, "random_state"),
        ({"fairness": "l1"}, "fairness must be one of l2, l2_relaxed"),
        ({"rho": 0.5}, "rho=0.5 needs a fairness penalty"),
        ({"fairness": "l2", "trainer": "joint"}, "Joint moves gates and leaves together.*l2_relaxed"),
    ],
)
def test_wrong_parameters_raise(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        soft_tree(**{"depth": 1, "init": "random", **values})._batch_settings()


def test_penalties_of_another_class_keep_what_was_named() -> None:
    settings = PrognosticTree(penalties=Penalties(ridge=0.5))._batch_settings()
    assert (settings.ridge, settings.gate_charge) == (0.5, 4.0)
    settings = PrognosticTree(penalties=GatePenalties(gate_charge=1.0))._batch_settings()
    assert (settings.ridge, settings.gate_charge) == ("estimated", 1.0)
    with pytest.raises(ConfigError, match=r"nothing has the penalties gate_ridge here: use Penalties\(...\)"):
        SurvivalRegression(penalties=GatePenalties(gate_ridge=1.0))._batch_settings()
    with pytest.raises(ConfigError, match="columns must be Columns"):
        SoftSurvivalTree(columns="linear")._batch_settings()  # type: ignore[arg-type]
