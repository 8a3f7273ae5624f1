"""Groups chosen by evidence, and estimated penalties."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sstorch.checks import sentence_case
from sstorch.nn import GateParameters, Topology
from sstorch.optim.evidence import Estimates
from sstorch.optim.starts.regression_tree import Split
from sstorch.soft.design import FIXED, Design

REGRESSION, SPECTRAL = "regression", "spectral"
# Terms that a summary names, and columns whose effects differ that a text names.
_TOLD_TERMS, _TOLD_DIFFERENCES = 8, 4


@dataclass(frozen=True)
class Estimation:
    """Estimated penalties of a fit."""

    kinds: tuple[str, ...]  # of coefficients
    n_coefficients: tuple[int, ...]  # of each kind
    penalty: tuple[float, ...]  # inverse variance of each kind, in the units of :class:`Design`
    freedom: tuple[float, ...]  # effective degrees of freedom of each kind
    term_freedom: Mapping[str, float]  # of each column, or product ``"a:b"``, in what all groups share

    @classmethod
    def of(cls, estimates: Estimates, problem: int, terms: Sequence[str], design: Design) -> Self:
        """Of one problem; ``terms`` are those of the features of leaves, which are the design's."""
        kinds, freedom = estimates.kinds, estimates.freedom[problem : problem + 1]
        counts = dict(zip(kinds.names, kinds.sums(torch.ones_like(freedom))[0].tolist(), strict=True))
        if design.components is not None:
            counts["line"] = design.kinds.count("line")
        of_terms: dict[str, float] = defaultdict(float)
        of_features = design.freedom(estimates, problem).tolist()
        for term, kind, value in zip(terms, design.kinds, of_features, strict=True):
            if kind not in FIXED:
                of_terms[term] += value
        numbers = tuple(int(count) for count in counts.values())
        penalty, sums = estimates.penalty[problem].tolist(), kinds.sums(freedom)[0].tolist()
        return cls(kinds.names, numbers, tuple(penalty), tuple(sums), dict(of_terms))

    @property
    def deviation(self) -> tuple[float, ...]:
        """Standard deviation of the prior of each kind."""
        return tuple(each**-0.5 for each in self.penalty)

    @property
    def terms_text(self) -> str:
        """Terms with the most degrees of freedom, and how many others there are."""
        terms = sorted(self.term_freedom.items(), key=lambda item: -item[1])
        shown = ", ".join(f"{name} {value:.1f}" for name, value in terms[:_TOLD_TERMS])
        more = len(terms) - _TOLD_TERMS
        return f"{shown} and {more:,} more" if more > 0 else shown


@dataclass(frozen=True)
class GroupChoice:
    """Chosen groups, with the reason."""

    # of each candidate in nats, minus the charges on gates: ``"regression"``, and by teacher with the most
    # groups that it was allowed ``"residuals 2"``, ``"predictor 4"`` ...
    evidence: Mapping[str, float]
    chosen: str  # the candidate whose hazards were taken
    n_groups: int  # those that have rows; groups that no gate of the chosen candidate divides share a hazard
    estimations: Mapping[str, Estimation]  # of the chosen candidate, by cause
    # columns whose effects differ most between divided groups, largest first; empty if only baselines differ
    differences: tuple[str, ...] = ()

    @property
    def has_trained_gates(self) -> bool:
        """True if gates were estimated with the leaves, whose covariance then includes them."""
        return self.chosen.startswith(SPECTRAL)

    @property
    def gain(self) -> float:
        """Evidence of the best groups minus that of the regression, in nats; NaN if none were tried."""
        others = [value for name, value in self.evidence.items() if name != REGRESSION]
        return max(others) - self.evidence[REGRESSION] if others else np.nan

    def __str__(self) -> str:
        """Finding about the groups in one line."""
        return self.finding if np.isnan(self.gain) else f"{self.finding} (evidence {self.gain:+.0f} nats)"

    @property
    def finding(self) -> str:
        """Finding about the groups in words, without the evidence."""
        if self.chosen != REGRESSION:
            shown, more = [*self.differences[:_TOLD_DIFFERENCES]], len(self.differences) - _TOLD_DIFFERENCES
            shown += [f"{more} more"] if more > 0 else []
            listed = " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))
            what = f"the effect{'s' * (len(shown) > 1)} of {listed}" if shown else "the baseline"
            return f"the groups explain what the regression misses: they differ in {what}"
        if np.isnan(self.gain):
            return "a regression without groups"
        what = "the groups summarise the regression" if self.n_groups > 1 else "a regression, without groups"
        return f"{what}: no interaction found"

    def summary(self) -> str:
        """Finding about the groups and effective degrees of freedom of each term, as text."""
        lines = [sentence_case(str(self))]
        for cause, each in self.estimations.items():
            whose = f" of {cause}" if len(self.estimations) > 1 else ""
            total = f"effective degrees of freedom{whose} {sum(each.freedom):.1f}"
            lines.append(f"Penalties by marginal likelihood; {total}: {each.terms_text}")
        return "\n".join(lines)

    @property
    def penalties(self) -> pd.DataFrame:
        """By (cause and) kind: number of ``coefficients``, degrees of freedom ``edf``, prior ``sd``."""
        tables = {}
        for cause, each in self.estimations.items():
            columns = {"coefficients": each.n_coefficients, "edf": each.freedom, "sd": each.deviation}
            tables[cause] = pd.DataFrame(columns, index=pd.Index(each.kinds, name="kind"))
        return next(iter(tables.values())) if len(tables) == 1 else pd.concat(tables, names=["cause"])

    @property
    def terms(self) -> pd.DataFrame:
        """Effective degrees of freedom of each column, and of products, for each cause."""
        return pd.DataFrame({cause: each.term_freedom for cause, each in self.estimations.items()})


@dataclass(frozen=True)
class Candidate:
    """Gates of S problems, and the estimates of every cause under them."""

    name: str  # of the teacher and the number of groups
    gates: GateParameters  # weights (S, B, q) and biases (S, B)
    # of each problem by node, where whole nodes may be divided further; None if they may not
    splits: Sequence[Mapping[int, Split]] | None
    estimates: Mapping[str, Estimates]  # of each cause
    position: Tensor  # number of the group of each leaf, from left to right; 0 of those without rows
    joint: Estimates | None = None  # of gates and leaves together, where gates are trained

    @property
    def n_groups(self) -> int:
        """Groups that have rows in some split."""
        return int(self.position.max()) + 1

    @property
    def divides(self) -> Tensor:
        """Whether gates divide rows, boolean (S, B)."""
        return (self.gates.weight != 0).any(-1)

    def groups_of_leaves(self, split: int) -> Tensor:
        """Number of the group of each leaf of a split, (L,): gates that divide nothing send all rows left."""
        divides, ends = self.divides[split], []
        n_leaves = len(divides) + 1
        for leaf in range(n_leaves, 2 * n_leaves):
            node = 1
            for shift in reversed(range(leaf.bit_length() - 1)):
                node = 2 * node + (leaf >> shift & 1 if divides[node - 1] else 0)
            ends.append(node - n_leaves)
        return self.position[torch.tensor(ends, device=divides.device)]

    def evidence(self, charge: float) -> Tensor:
        """Of all causes, minus the charge on each gate, in nats, (S,); -inf if no gate divides rows."""
        total = total_evidence(self.estimates) if self.joint is None else self.joint.evidence
        n_gates = self.divides.sum(-1, dtype=torch.float64)
        return torch.where(n_gates > 0, total - charge * n_gates, -torch.inf)


def total_evidence(estimates: Mapping[str, Estimates]) -> Tensor:
    """Of all causes, (S,)."""
    return torch.stack([each.evidence for each in estimates.values()]).sum(0)


def positions_of(leaves: Tensor, topology: Topology) -> Tensor:
    """Number of the group of each leaf, of those that are groups; 0 for others, (L,)."""
    position = torch.zeros(len(topology.leaves), dtype=torch.long, device=leaves.device)
    position[leaves] = torch.arange(len(leaves), device=leaves.device)
    return position


def gates_of(models: Sequence[Candidate]) -> GateParameters:
    """Gates of each split's candidate."""
    return GateParameters(
        torch.stack([each.gates.weight[split] for split, each in enumerate(models)]),
        torch.stack([each.gates.bias[split] for split, each in enumerate(models)]),
    )
