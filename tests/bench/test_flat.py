"""Flat settings of configurations and studies, and the estimators that they describe."""

import math

import pytest

from sstorch import PrognosticTree, SoftSurvivalTree, SurvivalRegression
from sstorch.bench.flat import soft_tree
from sstorch.exceptions import ConfigError
from sstorch.optim import Distillation, Joint, Leaves


def _same(flat: object, plain: object) -> bool:
    return type(flat) is type(plain) and flat._batch_settings() == plain._batch_settings()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("flat", "plain"),
    [
        ({}, PrognosticTree()),
        ({"trainer": "leaves", "init": "distilled", "n_starts": None, "fused": None}, PrognosticTree()),
        ({"depth": 0, "gate_ridge": 0.5}, SurvivalRegression()),
        ({"trainer": "nodec"}, SoftSurvivalTree(trainer="nodec", init="random")),
        ({"init": "kmeans", "n_starts": 3}, SoftSurvivalTree(trainer="nodec", init="kmeans", n_starts=3)),
        ({"depth": 0, "init": "random"}, SoftSurvivalTree(depth=0, trainer="nodec", init="random")),
    ],
)
def test_flat_settings_choose_the_class(flat: dict, plain: object) -> None:
    assert _same(soft_tree(**flat), plain)


def test_gate_features_none_means_all_columns() -> None:
    assert soft_tree(gate_features=None)._batch_settings().gate_features is None
    assert soft_tree(gate_features=1, min_leaf=0.2)._batch_settings().distillation == Distillation(1, 0.2)


def test_settings_of_training_go_to_the_trainer() -> None:
    assert soft_tree(holdout=0.2, engine="torch").trainer == Leaves(holdout=0.2, engine="torch")
    assert soft_tree(trainer=Joint(), holdout=0.2).trainer == Joint(holdout=0.2)


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


def test_unknown_setting_raises_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"'rigde'.*'ridge'"):
        soft_tree(rigde=1.0)
