"""Flat settings of configurations and studies, and the estimators that they describe."""

import math

import pytest

from sstorch import PrognosticTree, SoftSurvivalTree, SurvivalRegression
from sstorch.bench.flat import soft_search, soft_tree
from sstorch.exceptions import ConfigError
from sstorch.optim import Distillation, Joint, Leaves, Nodec


def _same(flat: object, plain: object) -> bool:
    return type(flat) is type(plain) and flat._batch_settings() == plain._batch_settings()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("flat", "plain"),
    [
        ({}, PrognosticTree()),
        ({"trainer": "leaves", "init": "distilled", "n_starts": None, "fused": None}, PrognosticTree()),
        ({"depth": 0, "gate_ridge": 0.5}, SurvivalRegression()),
        ({"trainer": "nodec"}, SoftSurvivalTree()),
        ({"init": "kmeans", "n_starts": 3}, SoftSurvivalTree(init="kmeans", n_starts=3)),
        ({"depth": 0, "init": "random"}, SoftSurvivalTree(depth=0)),
    ],
)
def test_flat_settings_choose_the_class(flat: dict, plain: object) -> None:
    assert _same(soft_tree(**flat), plain)


def test_gate_features_none_means_all_columns() -> None:
    assert soft_tree(gate_features=None)._batch_settings().gate_features is None
    assert soft_tree(gate_features=1, min_leaf=0.2)._batch_settings().distillation == Distillation(1, 0.2)


def test_settings_of_training_go_to_the_trainer() -> None:
    assert soft_tree(holdout=0.2, engine="torch").trainer == Leaves(holdout=0.2, engine="torch")
    assert soft_tree(trainer=Joint(), n_shards=2).trainer == Joint(n_shards=2)
    assert soft_search(trainer=Nodec(), holdout=0.2).grid.trainer == Nodec(holdout=0.2)


def test_mixture_of_distilled_leaves_keeps_the_penalties_of_groups() -> None:
    found = soft_tree(prediction="mixture")._batch_settings()
    assert (found.prediction, found.init, found.fused, found.offset) == (
        "mixture",
        "distilled",
        math.inf,
        0.1,
    )


def test_distilled_gates_that_are_trained_are_a_soft_tree() -> None:
    found = soft_tree(init="distilled", trainer="joint")._batch_settings()
    assert (found.init, found.gate_ridge_units, found.fused, found.n_starts) == ("distilled", "sd", 0.0, 1)


@pytest.mark.parametrize(
    ("settings", "families"),
    [
        ({}, ("regression", "groups", "gates")),
        ({"init": "random"}, ("regression", "gates")),
        ({"trainer": "joint"}, ("regression", "gates")),
        ({"trainer": "leaves"}, ("regression", "groups")),
        ({"init": ["distilled", "random"]}, ("regression", "groups", "gates")),
    ],
)
def test_starts_and_trainer_choose_the_families_of_a_search(settings: dict, families: tuple) -> None:
    assert tuple(soft_search(**settings).families) == families


def test_unknown_setting_raises_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"'rigde'.*'ridge'"):
        soft_tree(rigde=1.0)
    with pytest.raises(ConfigError, match=r"'depths'.*'depth'"):
        soft_search(depths=1)
    with pytest.raises(ConfigError, match="offset"):
        soft_search(offset=1.0)


def test_distilled_starts_of_a_trainer_are_gates_of_a_search() -> None:
    search = soft_search(init="distilled", trainer="joint")
    assert search.families == ("regression", "gates")
    assert search.grid.init == ["distilled"]
    assert {each.init for each in search.candidates() if each.family == "gates"} == {"distilled"}
