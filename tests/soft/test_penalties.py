"""Penalties as the estimators take them."""

import math

import pytest

from sstorch import GatePenalties, GroupPenalties, Penalties, PrognosticTree, SurvivalRegression
from sstorch.exceptions import ConfigError


def test_penalties_of_a_base_class_keep_the_others_by_default() -> None:
    settings = PrognosticTree(penalties=Penalties(ridge=0.5))._batch_settings()
    assert (settings.ridge, settings.fused, settings.offset) == (0.5, math.inf, 0.1)


def test_penalties_of_another_class_keep_what_was_named() -> None:
    settings = PrognosticTree(penalties=GatePenalties(fused=0.2))._batch_settings()
    assert (settings.fused, settings.offset) == (0.2, GroupPenalties().offset)


def test_penalties_on_what_is_not_there_raise() -> None:
    with pytest.raises(ConfigError, match=r"nothing has the penalties gate_ridge here: use Penalties\(...\)"):
        SurvivalRegression(penalties=GatePenalties(gate_ridge=1.0))._batch_settings()
