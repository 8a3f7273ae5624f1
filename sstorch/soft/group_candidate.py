"""Gates of splits, and the estimates of every cause under them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sstorch.nn import GateParameters, LeafParameters
from sstorch.optim.evidence import Estimates
from sstorch.optim.starts.gate_rows import Split


@dataclass(frozen=True)
class Candidate:
    """Gates of S problems, and the estimates of every cause under them."""

    name: str  # of the teacher and the number of groups
    gates: GateParameters  # weights (S, B, q) and biases (S, B)
    # of each problem by node, where whole nodes may be divided further; None if they may not
    splits: Sequence[dict[int, Split]] | None
    estimates: Mapping[str, Estimates]  # of each cause
    groups: Mapping[str, LeafParameters]  # parameters of the groups that have rows in some split, by cause
    position: Tensor  # number of the group of each leaf, from left to right; 0 of those without rows

    @property
    def divides(self) -> Tensor:
        """Whether gates divide rows, boolean (S, B)."""
        return (self.gates.weight != 0).any(-1)

    def evidence(self, charge: float) -> Tensor:
        """Of all causes, minus the charge on each gate, in nats, (S,); -inf if no gate divides rows."""
        total = torch.stack([each.evidence for each in self.estimates.values()]).sum(0)
        n_gates = self.divides.sum(-1, dtype=torch.float64)
        return torch.where(n_gates > 0, total - charge * n_gates, -torch.inf)


def gates_of(models: Sequence[Candidate]) -> GateParameters:
    """Gates of each split's candidate."""
    return GateParameters(
        torch.stack([each.gates.weight[split] for split, each in enumerate(models)]),
        torch.stack([each.gates.bias[split] for split, each in enumerate(models)]),
    )


def whole_to_left(divides: Tensor) -> Tensor:
    """The leaf of rows of each leaf if gates (B,) that divide nothing sent all rows left, (L,)."""
    n_leaves = len(divides) + 1
    ends = []
    for leaf in range(n_leaves, 2 * n_leaves):
        node = 1
        for shift in reversed(range(leaf.bit_length() - 1)):
            node = 2 * node + (leaf >> shift & 1 if divides[node - 1] else 0)
        ends.append(node - n_leaves)
    return torch.tensor(ends, device=divides.device)
