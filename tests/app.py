"""The command `sstorch`, run in this process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

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
