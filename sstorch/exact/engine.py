"""Which engine searches: torch, or the compiled one."""

from __future__ import annotations

import torch

from sstorch.exact.compiled.forms import form_of
from sstorch.exact.task import BranchCostTask, Task
from sstorch.exceptions import ConfigError
from sstorch.optim import ENGINES, Engine


def obstacle(task: Task, device: torch.device) -> str | None:
    """Why the compiled engine cannot search for trees of a task; None if it can."""
    if device.type != "cpu":
        return f"it runs on the CPU alone, not on {device.type}: use device='cpu'"
    if isinstance(task, BranchCostTask):
        return "it does not know costs of tests"
    if form_of(task) is None:
        return f"{type(task).__name__} has no compiled cost"
    return None


def compiles(engine: Engine, task: Task, device: torch.device) -> bool:
    """Whether the compiled engine is to search.

    Raises:
        ConfigError: an unknown engine, or ``"compiled"`` where it cannot; the message says why.
    """
    if engine not in ENGINES:
        raise ConfigError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    if engine == "torch":
        return False
    reason = obstacle(task, device)
    if reason is not None and engine == "compiled":
        raise ConfigError(f"engine='compiled' cannot search this: {reason}; use engine='torch'")
    return reason is None
