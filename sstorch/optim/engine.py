"""Choice of the engine: torch or compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

import torch

from sstorch.exceptions import ConfigError
from sstorch.monitoring import Callback
from sstorch.nn import SoftTree
from sstorch.nn.hazards import Exponential, HazardFamily, LogLogistic, LogNormal, Spline, Weibull
from sstorch.nn.hazards.links import ExponentialLink, Link, LinkFamily, LogisticLink, NormalLink
from sstorch.objective import GateRidge, Ridge, Roughness, Sample, TrainingObjective

if TYPE_CHECKING:
    from sstorch.optim.compiled.trees import CompiledTrees

# "torch": batches of tensors, on any device, for every family and penalty: the reference. "compiled": machine
# code for the decomposition, one tree at a time, on the CPU. "auto": compiled where it can be and there is
# much to do; that is up to the problems alone, never to what a machine has compiled before.
Engine = Literal["auto", "torch", "compiled"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
# Rows, summed over trees, for which torch would take about as long as the compilation.
MANY_ROWS = 200_000
# Families with machine code, and what it calls their links.
_FAMILIES = (Exponential, Weibull, LogLogistic, LogNormal, Spline)
_LINKS: dict[type[Link], str] = {ExponentialLink: "exp", LogisticLink: "logistic", NormalLink: "probit"}


def link_of(family: HazardFamily) -> str | None:
    """Link of a family that the compiled engine has; None if it has not."""
    # What is derived from a family may have another loss.
    if type(family) not in _FAMILIES or not isinstance(family, LinkFamily) or not family.closed_form:
        return None
    return _LINKS[type(family.link(torch.empty(0)))]


def obstacle(
    tree: SoftTree, objective: TrainingObjective, rows: Sample, callbacks: Sequence[Callback] = ()
) -> str | None:
    """Why the compiled engine cannot train some problems by decomposition; None if it can."""
    family, link, device = tree.family, link_of(tree.family), rows.weight.device
    if device.type != "cpu":
        return f"it runs on the CPU alone, not on {device.type}: use device='cpu'"
    if tree.log_time_scale.dtype != torch.float64:
        return "it computes in double precision alone: use dtype='float64'"
    if link is None:
        return f"leaf {family.name!r} has no compiled loss: use another leaf"
    if family.ancillary != "constant" and family.shape_names:
        return f"ancillary={family.ancillary!r} is not supported: use ancillary='constant'"
    if len(objective.row_penalties):
        return (
            "penalties on rows (fairness, small leaves) are not supported: use fairness=None, min_leaf=0 "
            "and, since distilled gates have a least leaf, init='random'"
        )
    for penalty in (*objective.gate_penalties, *objective.leaf_penalties):
        if type(penalty) not in (GateRidge, Ridge, Roughness):
            return f"{type(penalty).__name__} is not supported, ridges on gates and slopes are: remove it"
    if rows.log_upper is not None:
        return "times within intervals are not supported: use exact times"
    if rows.x.rows is not None:
        return "trees with rows of their own are not supported: give those of other trees weight zero"
    for callback in callbacks:
        if type(callback).on_step is not Callback.on_step:
            return f"{type(callback).__name__} looks at trees between steps: use on_macro_iteration alone"
    return None


def compiled_trees(
    engine: Engine,
    tree: SoftTree,
    objective: TrainingObjective,
    rows: Sample,
    callbacks: Sequence[Callback],
) -> CompiledTrees | None:
    """The trees for the compiled engine, if it is to train them; None if torch is.

    ``"auto"`` is compiled from MANY_ROWS on, summed over the trees. Callbacks are called before machine code
    is made, if none is cached.

    Raises ConfigError: ``"compiled"`` was requested where it is impossible; the message says why.
    """
    if engine == "torch" or (engine == "auto" and rows.weight.numel() < MANY_ROWS):
        return None
    reason = obstacle(tree, objective, rows, callbacks)
    if reason is not None:
        if engine == "compiled":
            raise ConfigError(f"engine='compiled' cannot train this: {reason}, or engine='torch'")
        return None
    # numba takes a while to load, which only training by it need wait for.
    from sstorch.optim.compiled.jit import cache_folder

    if not cache_folder().exists():
        for callback in callbacks:
            callback.on_compile()
    from sstorch.optim.compiled.trees import CompiledTrees

    return CompiledTrees(tree, objective, rows, str(link_of(tree.family)))
