"""Which engine searches: torch, or the compiled one."""

from __future__ import annotations

import torch

from sstorch.exact.compiled.forms import form_of
from sstorch.exact.problem import Work
from sstorch.exact.task import Task, has_branch_costs
from sstorch.exceptions import ConfigError
from sstorch.optim import ENGINES, Engine

# "auto" has machine code made, which may take as long, for what torch would need longer for, by its estimate,
# or search root by root. The choice is by the problem alone, never by what a machine has compiled before.
_LONG = 20.0


def obstacle(task: Task, device: torch.device) -> str | None:
    """Why the compiled engine cannot search for trees of a task; None if it can."""
    if device.type != "cpu":
        return f"it runs on the CPU alone, not on {device.type}: use device='cpu'"
    if form_of(task) is None:
        kind = "compiled cost of tests" if has_branch_costs(task) else "compiled cost"
        return f"{type(task).__name__} has no {kind}"
    return None


def compiles(engine: Engine, task: Task, device: torch.device, work: Work, memory: int) -> bool:
    """Whether the compiled engine is to search, given the work for torch and the bytes that may be used.

    Raises ConfigError: an unknown engine, or ``"compiled"`` where it cannot; the message says why.
    """
    if engine not in ENGINES:
        raise ConfigError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    if engine == "torch":
        return False
    reason = obstacle(task, device)
    if engine == "auto":
        return reason is None and (work.searches > 1 or work.seconds > _LONG or work.bytes > memory)
    if reason is not None:
        raise ConfigError(f"engine='compiled' cannot search this: {reason}; use engine='torch'")
    return True
