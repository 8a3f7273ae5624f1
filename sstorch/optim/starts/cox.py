"""Initial solutions of spline leaves by least squares onto a Cox model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.optimize import lsq_linear
from torch import Tensor

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.batched import SHARED, Batched
from sstorch.data.design_matrix import last_features
from sstorch.memory import at_once
from sstorch.nn import SoftTree, Spline
from sstorch.objective import Sample
from sstorch.optim.batched_lbfgs import LBFGSOptions, minimize
from sstorch.optim.starts.clusters import initialize_random

_OPTIONS = LBFGSOptions(max_iterations=100, gradient_tolerance=1e-5, relative_tolerance=1e-8)


@dataclass(frozen=True)
class _PartialLikelihood(Batched):
    """Negative log partial likelihoods of K data sets, each the mean over its n rows; rows sorted by time."""

    x: Tensor  # (K, n, p), columns of mean zero and standard deviation one, or zero where constant
    weight: Tensor  # (K, n), 1, or 0 for rows that only pad; every row has an event
    first: Tensor  # (K, n), position of the first row with the time of each row
    last: Tensor  # (K, n), position of the last one, of those that count
    entry_order: Tensor  # (K, n), rows in the order of their entry
    entered_late: Tensor  # (K, n), how many in that order enter before each row's time
    before_entry: Tensor  # (K, n), how many rows have their event at or before the entry of each row
    ridge: float = field(metadata=SHARED)  # coefficient of (1/2) ||beta||^2

    @classmethod
    def of(cls, x: Tensor, time: Tensor, entry: Tensor, weight: Tensor, ridge: float) -> _PartialLikelihood:
        """Of rows in the order of their time (K, n); padding comes last."""
        entry_order, first = entry.argsort(dim=1), torch.searchsorted(time, time)
        last, before_entry = (torch.searchsorted(time, at, right=True) for at in (time, entry))
        entered_late = torch.searchsorted(entry.gather(1, entry_order), time)
        return cls(x, weight, first, last - 1, entry_order, entered_late, before_entry, ridge)

    def breslow(self, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log relative risks (K, n), scaled hazard steps up to each (K, n + 1), log risk sets."""
        score = torch.einsum("knp,kp->kn", self.x, beta).masked_fill(self.weight == 0, -torch.inf)
        score = score - score.amax(1, keepdim=True)
        relative = score.exp()
        at_risk = _sums_from(relative).gather(1, self.first)
        # Those not under observation yet at the time of an event.
        at_risk = at_risk - _sums_from(relative.gather(1, self.entry_order)).gather(1, self.entered_late)
        at_risk = at_risk.clamp_min(torch.finfo(at_risk.dtype).tiny)
        return score, torch.nn.functional.pad((self.weight / at_risk).cumsum(1), (1, 0)), at_risk.log()

    def value_and_gradient(self, beta: Tensor) -> tuple[Tensor, Tensor]:
        """Values (K,) and gradients (K, p), which sum the martingale residuals."""
        score, steps, log_risk = self.breslow(beta)
        n = self.weight.sum(1)
        loss = torch.where(self.weight > 0, log_risk - score, 0.0).sum(1) / n
        observed = steps.gather(1, self.last + 1) - steps.gather(1, self.before_entry)
        residual = (score.exp() * observed - self.weight) / n[:, None]
        gradient = torch.einsum("kn,knp->kp", residual, self.x) + self.ridge * beta
        return loss + 0.5 * self.ridge * beta.square().sum(1), gradient


def _sums_from(values: Tensor) -> Tensor:
    """Sums from each position to the end, and zero after the end, (K, n + 1)."""
    return torch.nn.functional.pad(values.flip(1).cumsum(1).flip(1), (0, 1))


def cox_cumulative_hazards(x: Tensor, time: Tensor, entry: Tensor, weight: Tensor, ridge: float) -> Tensor:
    """Fit K Cox models to rows (K, n) that all have an event; the cumulative hazard of each at its own time.

    Features (K, n, p) are standardised, as lifelines does; the ridge, (1/2) ||beta||^2, is added to the mean
    negative log partial likelihood (Breslow 1974, Biometrics 30, 89-99). Rows of weight 0 only pad.
    """
    order = time.masked_fill(weight == 0, torch.inf).argsort(dim=1, stable=True)
    inverse = order.argsort(dim=1)
    weight, entry = weight.gather(1, order), entry.gather(1, order)
    time = time.gather(1, order).masked_fill(weight == 0, torch.inf)
    x = x.gather(1, order[..., None].expand_as(x))
    n = weight.sum(1)[:, None, None]
    centred = (x - (weight[..., None] * x).sum(1, keepdim=True) / n) * weight[..., None]
    spread = (centred.square().sum(1, keepdim=True) / (n - 1).clamp_min(1.0)).sqrt()
    constant = spread <= 1e-12 * x.abs().amax(dim=(1, 2), keepdim=True).clamp_min(1.0)
    scaled = centred / spread.masked_fill(constant, torch.inf)
    loss = _PartialLikelihood.of(scaled, time, entry, weight, ridge)
    score, steps, _ = loss.breslow(minimize(loss, x.new_zeros(x.shape[0], x.shape[2]), _OPTIONS).x)
    return (score.exp() * steps.gather(1, loss.last + 1)).gather(1, inverse)


# Penalty of the Cox model and of the least squares, smallest weight of a function of the spline basis, and
# numbers in the drawn rows of the Cox models that are fitted at a time.
_PENALTY, _SMALLEST, _ELEMENTS = 1e-3, 1e-3, 2**24


@torch.no_grad()
def initialize_cox(
    tree: SoftTree,
    sample: Sample,
    seeds: Sequence[np.random.SeedSequence],
    curved: BoolArray | None = None,
) -> None:
    """Random gates; spline leaves fitted by least squares to the curves of a Cox model, in place.

    For each leaf a share 1/L of the rows with an event is drawn with replacement and a Cox model is fitted to
    them. Its cumulative hazard at each drawn row, on the scale of the spline, is regressed on the spline
    basis, with positive weights, and x (Consolo, Amaldi and Carrizosa). A leaf whose Cox model cannot be
    fitted keeps the start of :func:`initialize_random`.
    """
    family = tree.family
    assert isinstance(family, Spline)
    initialize_random(tree, sample, seeds, curved)
    design = family.design(sample.log_time).double().cpu().numpy()
    late = torch.full_like(sample.log_time, -torch.inf) if sample.log_entry is None else sample.log_entry
    given = sample.log_time, sample.event, sample.weight, late.exp()
    log_time, event, weight, entry = (part.double().cpu().numpy() for part in given)
    matrices = last_features(sample.x, tree.in_features).to_dense().double().cpu().numpy()
    split = np.repeat(np.arange(len(sample.x.counts)), sample.x.counts)
    n_leaves = len(tree.topology.leaves)
    # The leaves of a few problems at a time: their drawn rows are copied.
    size = at_once(int(np.count_nonzero(event, axis=1).max()) * matrices.shape[-1], _ELEMENTS)
    for first in range(0, len(seeds), size):
        drawn: list[tuple[int, int, IntArray]] = []  # leaf, problem and rows
        for number in range(first, min(first + size, len(seeds))):
            draws, chance = np.random.default_rng(seeds[number].spawn(1)[0]), weight[number] * event[number]
            count, chance = max(1, round(np.count_nonzero(chance) / n_leaves)), chance / chance.sum()
            for node in tree.topology.leaves:
                drawn.append((node, number, draws.choice(len(chance), count, p=chance)))
        longest = max(len(rows) for _, _, rows in drawn)
        rows = np.stack([np.resize(rows, longest) for _, _, rows in drawn])
        counts = np.arange(longest) < np.array([[len(rows)] for _, _, rows in drawn])
        problem = np.array([[number] for _, number, _ in drawn])
        hazards = cox_cumulative_hazards(
            torch.as_tensor(matrices[split[problem], rows]),
            torch.as_tensor(np.exp(log_time[problem, rows])),
            torch.as_tensor(entry[problem, rows]),
            torch.as_tensor(counts, dtype=torch.float64),
            _PENALTY,
        )
        for (node, number, own), hazard in zip(drawn, hazards, strict=True):
            hazard = hazard[: len(own)]
            if bool((hazard.isfinite() & (hazard > 0)).all()):
                # An estimated theta has its starting value, 1.
                target = family.link(hazard.new_zeros(1)).inverse(hazard).numpy()
                fitted = _least_squares(design[number, own], matrices[split[number]][own], target)
                intercept, weights, slope = (torch.as_tensor(part).to(tree.log_time_scale) for part in fitted)
                leaf, shape = tree.leaf(node), weights.log()
                leaf.intercept[number], leaf.slope[number] = intercept, slope
                leaf.shape[number, : len(shape)] = shape


def _least_squares(design: FloatArray, x: FloatArray, target: FloatArray) -> tuple[FloatArray, ...]:
    """Intercept, weights of the spline basis and slopes of a leaf."""
    n_basis, n_features = design.shape[1], x.shape[1]
    usable = np.isfinite(target)
    matrix = np.column_stack([np.ones(len(target)), design, x])[usable]
    penalty = np.sqrt(_PENALTY * usable.sum()) * np.eye(matrix.shape[1])[1 + n_basis :]
    lower = np.r_[-np.inf, np.full(n_basis, _SMALLEST), np.full(n_features, -np.inf)]
    with np.errstate(invalid="ignore"):  # steps to bounds that are infinite
        fit = lsq_linear(
            np.vstack([matrix, penalty]), np.r_[target[usable], np.zeros(n_features)], (lower, np.inf)
        )
    return fit.x[0], fit.x[1 : 1 + n_basis], fit.x[1 + n_basis :]
