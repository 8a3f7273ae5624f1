"""Choice of the engine: torch or compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, get_args

import torch

from sstorch.checks import check_choice
from sstorch.exceptions import ConfigError
from sstorch.nn import SoftTree
from sstorch.objective import Penalty, Sample, TrainingObjective

if TYPE_CHECKING:
    from sstorch.optim.compiled.problems import CompiledProblems

# "torch": batches of tensors, on any device, for every family and penalty: the reference. "compiled": machine
# code for one tree at a time, on the CPU. "auto": compiled where it can be and there is much to do; that is
# up to the problems alone, never to what a machine has compiled before.
Engine = Literal["auto", "torch", "compiled"]
ENGINES: tuple[Engine, ...] = get_args(Engine)


def obstacle(tree: SoftTree, objective: TrainingObjective, rows: Sample) -> str | None:
    """Why the compiled engine cannot train some problems; None if it can."""
    family, device = tree.family, rows.weight.device
    if device.type != "cpu":
        return f"it runs on the CPU alone, not on {device.type}: use device='cpu'"
    if tree.log_time_scale.dtype != torch.float64:
        return "it computes in double precision alone: use dtype='float64'"
    if family.kernel is None:
        return f"leaf {family.name!r} has no compiled loss: use another leaf"
    if len(objective.row_penalties):
        return (
            "penalties on rows (fairness, small leaves) are not supported: use fairness=None, min_leaf=0 "
            "and, since distilled gates have a least leaf, init='random'"
        )
    for penalty in (*objective.gate_penalties, *objective.leaf_penalties):
        if type(penalty).__module__ != Penalty.__module__:  # also what is derived from those of the package
            return f"{type(penalty).__name__}, a custom penalty, is not supported: remove it"
    if rows.log_upper is not None:
        return "times within intervals are not supported: use exact times"
    return None


def compiled_problems(
    engine: Engine,
    reason: str | None,
    tree: SoftTree,
    objective: TrainingObjective,
    rows: Sample,
    many: float,
    on_compile: Callable[[], None],
) -> CompiledProblems | None:
    """The problems for the compiled engine, if it is to train them; None if torch is.

    ``"auto"`` is compiled from `many` rows on, added up over the problems, unless the trainer has a `reason`
    against it. `on_compile` is called before machine code is made, if none is kept.

    Raises ConfigError: ``"compiled"`` was requested where it is impossible; the message says why.
    """
    check_choice(engine, "engine", ENGINES)
    n_rows = rows.weight.numel()
    if engine == "torch" or (engine == "auto" and n_rows < many):
        return None
    reason = reason or obstacle(tree, objective, rows)
    if reason is not None:
        if engine == "compiled":
            raise ConfigError(f"engine='compiled' cannot train this: {reason}, or engine='torch'")
        return None
    # numba takes a while to load, which only training by it need wait for.
    from sstorch.optim.compiled.jit import cache_folder
    from sstorch.optim.compiled.problems import CompiledProblems

    if not cache_folder().exists():
        on_compile()
    return CompiledProblems(tree, objective, rows)
