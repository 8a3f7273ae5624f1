"""The command `sstorch`, run in this process."""

from __future__ import annotations

import sys
from pathlib import Path

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from sstorch.bench.config import Config, register_schemas
from sstorch.commands import sstorch as command

CONFIGS = Path(__file__).parents[1] / "configs"


def sstorch(monkeypatch: pytest.MonkeyPatch, *overrides: str) -> int:
    """Run the app; the exit code."""
    GlobalHydra.instance().clear()
    monkeypatch.setattr(sys, "argv", ["sstorch", *overrides])
    with monkeypatch.context() as patch:
        patch.setattr("warnings.showwarning", None)  # the app has its own, which must not stay
        try:
            command()
        except SystemExit as stop:
            return int(stop.code or 0)
    return 0


def composed(*overrides: str, return_hydra_config: bool = False) -> DictConfig:
    """The configuration of some overrides, as Hydra composes it."""
    register_schemas()
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return hydra.compose("config", list(overrides), return_hydra_config=return_hydra_config)


def compose(*overrides: str) -> Config:
    """The same as objects."""
    config = OmegaConf.to_object(composed(*overrides))
    assert isinstance(config, Config)
    return config
