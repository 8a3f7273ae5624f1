"""Penalties as the estimators take them."""

import pytest

from sstorch import GatePenalties, Penalties, PrognosticTree, SurvivalRegression
from sstorch.exceptions import ConfigError


def test_penalties_of_another_class_keep_what_was_named() -> None:
    settings = PrognosticTree(penalties=Penalties(ridge=0.5))._batch_settings()
    assert (settings.ridge, settings.gate_charge) == (0.5, 4.0)
    settings = PrognosticTree(penalties=GatePenalties(gate_charge=1.0))._batch_settings()
    assert (settings.ridge, settings.gate_charge) == ("estimated", 1.0)


def test_penalties_on_what_is_not_there_raise() -> None:
    with pytest.raises(ConfigError, match=r"nothing has the penalties gate_ridge here: use Penalties\(...\)"):
        SurvivalRegression(penalties=GatePenalties(gate_ridge=1.0))._batch_settings()
