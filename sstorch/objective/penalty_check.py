"""Check of custom penalties where training stopped."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sstorch.exceptions import TrainingError
from sstorch.nn import SoftTree
from sstorch.objective.penalties import GatePenalty, Penalty
from sstorch.objective.row_penalties import RowPenalty
from sstorch.objective.rows import Sample


def check_penalties(penalties: Sequence[Penalty], tree: SoftTree, sample: Sample, problems: Tensor) -> None:
    """Raise TrainingError if a penalty has no finite value and gradient at finite gates and leaves.

    Training cannot leave such a point, and its result would be the starting values.

    Args:
        penalties: custom penalties.
        tree: R problems.
        sample: their rows.
        problems: positions of those to check, (K,).
    """
    both = [
        type(part)(*(value.detach()[problems].requires_grad_() for value in vars(part).values()))
        for part in (tree.gate_parameters(), tree.leaf_parameters())
    ]
    values = {
        f"{kind}.{name}": value
        for kind, part in zip(("gates", "leaves"), both, strict=True)
        for name, value in vars(part).items()
    }
    finite = torch.stack([value.isfinite().flatten(1).all(1) for value in values.values()]).all(0)
    gates, leaves = both
    for penalty in penalties:
        own = penalty.select(problems)
        if isinstance(own, RowPenalty):
            family, rows = tree.family.select(problems), sample.select(problems)
            value = own(gates, leaves, family, rows, relaxed=True)
        else:
            value = own(gates if isinstance(own, GatePenalty) else leaves)
        wrong = finite & ~value.isfinite()
        text = f"penalty {type(penalty).__name__}"
        if bool(wrong.any()):
            found = float(value.detach()[wrong][0])
            raise TrainingError(f"{text} is {found} at finite gates and leaves; it must be finite there")
        if not value.requires_grad:
            continue
        slopes = torch.autograd.grad(
            value.sum(), list(values.values()), allow_unused=True, materialize_grads=True
        )
        for name, slope in zip(values, slopes, strict=True):
            if bool((finite & ~slope.isfinite().flatten(1).all(1)).any()):
                raise TrainingError(
                    f"{text} has no finite gradient with respect to {name} where training stopped: make it "
                    "differentiable there, such as a norm by (sum of squares + 1e-12).sqrt()"
                )
