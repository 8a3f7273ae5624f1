"""A soft gate and its two leaves as one problem for Newton's method.

The loss of a row is the expected loss of the paper, E = sum_l P_l L_l over leaves l, made smooth:
-(1/tau) log sum_l P_l exp(-tau L_l). As tau goes to 0 it is E; at tau = 1 it is the likelihood of the mixture
of the leaves. A small tau keeps E's minimum, and its Hessian has the responsibilities of the leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from typing_extensions import override

from sstorch.batched import SHARED, Batched
from sstorch.checks import blocks
from sstorch.newton import Problem
from sstorch.optim.linear_hazards import LinearHazards

# Temperature of the smooth loss. Up to .1 gates and predictions are those of E.
TAU = 0.02
# L, the left one first.
LEAVES = 2
# Largest change of a shape parameter, and of the logit of any row, in a step.
_LONGEST, _LONGEST_LOGIT = 3.0, 10.0
# Elements of the second derivatives of the rows that are worked on at once: they stay in the cache.
_ELEMENTS = 2**19


class _Losses(NamedTuple):
    """Losses of rows in both leaves by a cause, with derivatives by the linear predictor and the shapes."""

    loss: Tensor  # (K, L, n)
    first: Tensor  # (K, 1 + m, L, n)
    second: dict[tuple[int, int], Tensor]  # (K, L, n) each, of pairs j <= k


@dataclass(frozen=True)
class SoftGate(Batched, Problem):
    """K problems: hazards in two leaves under a gate that sends each row to both, with probabilities.

    Coefficients of a problem are, in one vector (D,), for each cause those of :class:`LinearHazards` with the
    leaves as groups, then bias and weights of the gate, if the probabilities are not given.
    """

    hazards: tuple[LinearHazards, ...]  # of every cause, for the same rows and features, without groups
    own: Tensor = field(metadata=SHARED)  # positions of features with slopes of their own in leaves, (q,)
    z: Tensor | None = None  # features of the gate, standardised, (K, n, Q)
    log_probability: Tensor | None = None  # of the leaves, where the gate is given, (K, L, n)
    tau: float = field(default=TAU, metadata=SHARED)

    @property
    @override
    def n_rows(self) -> int:
        return int(self._weight.shape[1])

    @cached_property
    def of_causes(self) -> tuple[slice, ...]:
        """Positions of the coefficients of each cause."""
        found, end = [], 0
        for each in self.hazards:
            n_shapes = len(each.family.shape_names)
            size = each.width + LEAVES * (1 + len(self.own)) + n_shapes * (1 + LEAVES)
            found.append(slice(end, end + size))
            end += size
        return tuple(found)

    @property
    def of_gate(self) -> slice:
        """Positions of the coefficients of the gate."""
        first = self.of_causes[-1].stop
        return slice(first, first if self.z is None else first + 1 + self.z.shape[-1])

    @property
    def n_coefficients(self) -> int:
        """D, the length of the vector of a problem."""
        return int(self.of_gate.stop)

    @override
    def step_size(self, step: Tensor) -> Tensor:
        layout = self._layout
        deviations = layout.order[layout.places[2]]
        longest = torch.nn.functional.pad(step[:, deviations], (0, 1)).abs().amax(-1) / _LONGEST
        if self.z is not None:
            logits = torch.matmul(step[:, None, self.of_gate], self._gate_features.mT).abs().amax((-2, -1))
            longest = torch.maximum(longest, logits / _LONGEST_LOGIT)
        return 1 / longest.clamp(min=1.0)

    @override
    def thinned(self, stride: int) -> SoftGate:
        return replace(
            self,
            hazards=tuple(each.thinned(stride) for each in self.hazards),
            z=None if self.z is None else self.z[:, ::stride],
            log_probability=None if self.log_probability is None else self.log_probability[..., ::stride],
        )

    @override
    @torch.no_grad()
    def value(self, theta: Tensor) -> Tensor:
        total = theta.new_zeros(len(theta))
        for rows in self._row_blocks:
            exponent = self._routes(theta, rows)
            for number, each in enumerate(self.hazards):
                linear, shape = self._latents(number, theta, rows)
                times = each.part(rows).log_times
                exponent = exponent - self.tau * each.family.loss(times, linear, shape)
            weight = self._weight[:, rows]
            total += (weight * torch.where(weight > 0, -exponent.logsumexp(1) / self.tau, 0.0)).sum(-1)
        return total

    @override
    @torch.no_grad()
    def derivatives(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        layout, total = self._layout, theta.new_zeros(len(theta))
        size = layout.places[-1].stop
        gradient, hessian = (theta.new_zeros(len(theta), *(size,) * k) for k in (1, 2))
        for rows in self._row_blocks:
            log_probability = self._routes(theta, rows)
            leaves = [self._losses(number, theta, rows) for number in range(len(self.hazards))]
            loss = torch.stack([each.loss for each in leaves]).sum(0)
            exponent, weight = log_probability - self.tau * loss, self._weight[:, rows]
            normaliser = exponent.logsumexp(1, keepdim=True)
            total += (weight * torch.where(weight > 0, -normaliser.squeeze(1) / self.tau, 0.0)).sum(-1)
            share = torch.where(weight[:, None] > 0, (exponent - normaliser).exp(), 0.0)
            first, second = self._of_latents(leaves, log_probability, share, weight)
            kinds = list(zip(layout.latents, layout.places, self._of_kinds(rows), strict=True))
            for k, (latents, places, x) in enumerate(kinds):
                gradient[:, places] += torch.matmul(first[:, latents], x).flatten(1)
                for others, columns, z in kinds[k:]:
                    hessian[:, places, columns] += _gram(x, z, second[:, latents, others])
        hessian = layout.spread @ (hessian.triu() + hessian.triu(1).mT) @ layout.spread.mT
        return total, gradient @ layout.spread.mT, (hessian + hessian.mT) / 2

    @torch.no_grad()
    def leaf_losses(self, theta: Tensor) -> Tensor:
        """Mean loss of each leaf over its share of the rows, all causes together, (K, L)."""
        total, count = (theta.new_zeros(len(theta), LEAVES) for _ in range(2))
        for rows in self._row_blocks:
            losses = [self._losses(number, theta, rows).loss for number in range(len(self.hazards))]
            loss = torch.stack(losses).sum(0)
            share = torch.softmax(self._routes(theta, rows) - self.tau * loss, 1)
            share = share * self._weight[:, None, rows]
            total += (share * loss).sum(-1)
            count += share.sum(-1)
        return total / count

    # ------------------------------------------------------------------ rows

    @property
    def _weight(self) -> Tensor:
        return self.hazards[0].weight

    @cached_property
    def _layout(self) -> _Layout:
        count, q = partial(torch.arange, device=self._weight.device), len(self.own)
        sizes, p = [len(each.family.shape_names) for each in self.hazards], self.hazards[0].width
        of_gate = count(self.of_gate.stop)[self.of_gate]
        n_linear, n_shapes = len(sizes) * LEAVES, sum(sizes) * LEAVES
        latents = [0, *accumulate([len(sizes), n_linear, n_shapes, int(self.z is not None)])]
        places = [0, *accumulate([len(sizes) * p, n_linear * (1 + q), n_shapes, len(of_gate)])]
        common, linear, deviations, constants = [], [], [], []
        for m, part in zip(sizes, self.of_causes, strict=True):
            own = part.start + count(part.stop - part.start)
            slopes, level, of_leaf, shapes = own.split([p, LEAVES, LEAVES * q, m * (1 + LEAVES)])
            shapes = shapes.view(m, 1 + LEAVES)
            common.append(slopes)
            linear.append(torch.cat([level[:, None], of_leaf.view(LEAVES, q)], 1).flatten())
            deviations.append(shapes[:, 1:].flatten())
            constants.append(shapes[:, 0].repeat_interleave(LEAVES))
        order, of_shapes = torch.cat([*common, *linear, *deviations, of_gate]), slice(*places[2:4])
        spread = torch.zeros(self.n_coefficients, len(order)).to(self._weight)
        spread[order, count(len(order))] = 1.0
        spread[torch.cat(constants), count(len(order))[of_shapes]] = 1.0
        leaf = count(LEAVES).repeat(len(sizes) + sum(sizes))
        kinds, parts = (tuple(slice(*pair) for pair in pairwise(ends)) for ends in (latents, places))
        return _Layout(kinds, parts, order, spread, leaf, (leaf[:, None] == leaf).double()[..., None])

    @cached_property
    def _row_blocks(self) -> list[slice]:
        return blocks(self.n_rows, len(self._weight) * self._layout.latents[-1].stop ** 2, _ELEMENTS)

    def _of_kinds(self, rows: slice) -> tuple[Tensor, ...]:
        """Features of some rows that each kind of latents is linear in, (K, n, a)."""
        own = self._own_features[:, rows]
        return self._features[:, rows], own, own[..., :1], self._gate_features[:, rows]

    @cached_property
    def _features(self) -> Tensor:
        """A one and the features of hazards, standardised, (K, n, p)."""
        first = self.hazards[0]
        centre, scale = first.units
        x = first.x.to_dense().to(centre)
        x = x if set(first.x.counts) == {1} else x[first.x.split]
        return torch.nn.functional.pad((x - centre[:, None]) / scale[:, None], (1, 0), value=1.0)

    @cached_property
    def _own_features(self) -> Tensor:
        """A one and the features with slopes of their own in leaves, (K, n, 1 + q)."""
        return self._features[..., torch.cat([self.own.new_zeros(1), 1 + self.own])].contiguous()

    @cached_property
    def _gate_features(self) -> Tensor:
        """A one and the features of the gate, (K, n, 1 + Q); none where probabilities are given."""
        if self.z is None:
            return self._features[..., :0]
        return torch.nn.functional.pad(self.z, (1, 0), value=1.0)

    def _latents(self, number: int, theta: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        """Linear predictors (K, L, n) and shapes (K, L, 1, m) of a cause."""
        each, part = self.hazards[number], theta[:, self.of_causes[number]]
        p, q = each.width, len(self.own)
        end = p + LEAVES * (1 + q)
        common = torch.matmul(self._features[:, rows], part[:, :p, None]).mT
        if each.offset is not None:
            common = common + each.offset[:, None, rows]
        level, slope = part[:, p : p + LEAVES], part[:, p + LEAVES : end].unflatten(1, (LEAVES, q))
        own = torch.cat([level[..., None], slope], -1)
        linear = common + torch.matmul(own, self._own_features[:, rows].mT)
        shapes = part[:, end:].unflatten(1, (len(each.family.shape_names), 1 + LEAVES))
        return linear, (shapes[..., :1] + shapes[..., 1:]).mT[:, :, None]

    def _routes(self, theta: Tensor, rows: slice) -> Tensor:
        """Log probabilities of the leaves, (K, L, n)."""
        if self.log_probability is not None:
            return self.log_probability[..., rows]
        logit = torch.matmul(theta[:, None, self.of_gate], self._gate_features[:, rows].mT)
        return torch.cat([logsigmoid(logit), logsigmoid(-logit)], 1)

    def _losses(self, number: int, theta: Tensor, rows: slice) -> _Losses:
        latents = self._latents(number, theta, rows)
        loss, slopes, pairs = self.hazards[number].in_leaves(*latents, rows)
        counts = (self._weight[:, rows] > 0)[:, None]
        # A leaf that is impossible for a row has no derivatives of it.
        finite = (torch.where(counts & part.isfinite(), part, 0.0) for part in (*slopes, *pairs.values()))
        first = torch.stack([next(finite).expand(loss.shape) for _ in slopes], 1)
        return _Losses(torch.where(counts, loss, 0.0), first, dict(zip(pairs, finite, strict=True)))

    # ------------------------------------------------------------------ sums over rows

    def _of_latents(
        self, leaves: Sequence[_Losses], log_probability: Tensor, share: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Weighted first (K, T, n) and second derivatives (K, T, T, n) by the latents of :class:`_Layout`."""
        # With responsibilities R_l, first derivatives u of the losses and a of the log probabilities, the
        # second ones are R_l L_l'' - tau (cov_R u), R_l u_l (a_l - mean a), and -(mean a' + cov_R a) / tau;
        # the lower triangle of blocks is not filled.
        layout, tau = self._layout, self.tau
        firsts = [each.first for each in leaves]
        own = torch.cat([u[:, 0] for u in firsts] + [u[:, 1:].flatten(1, 2) for u in firsts], 1)
        counted, n_own = share * weight[:, None], own.shape[1]
        shared, weighted = share[:, layout.leaf] * own, counted[:, layout.leaf] * own
        n_causes, size = len(leaves), layout.latents[-1].stop
        whole = own.new_empty(len(own), size, size, own.shape[-1])
        second = whole[:, n_causes:, n_causes:]
        among = second[:, :n_own, :n_own]
        torch.addcmul(shared[:, None], layout.same_leaf, own[:, None], value=-1, out=among)
        among.mul_(tau * weighted[:, :, None])
        n_before, of_leaves = n_causes, torch.arange(LEAVES, device=own.device)
        for number, each in enumerate(leaves):
            for pair, part in each.second.items():
                # Numbers of the latents: the linear predictor of each leaf, parameter 0, or a shape.
                s, t = (LEAVES * (n_before + p - 1 if p else number) + of_leaves for p in pair)
                among[:, s, t] += part * counted
                if pair[0] != pair[1]:
                    among[:, t, s] += part * counted
            n_before += each.first.shape[1] - 1
        n_linear, by_cause = n_causes * LEAVES, (n_causes, LEAVES)
        first = [weighted[:, :n_linear].unflatten(1, by_cause).sum(2), weighted]
        if self.z is not None:
            left, right = log_probability.exp().unbind(1)
            slope = torch.stack([right, -left], 1)
            mean = (share * slope).sum(1)  # (K, n)
            second[:, :n_own, n_own] = weighted * (slope[:, layout.leaf] - mean[:, None])
            moments = (share * slope * slope).sum(1)
            between = mean * mean - moments + share.sum(1) * (left * right)
            second[:, n_own, n_own] = between * (weight / tau)
            first.append((mean * (-weight / tau))[:, None])
        linear = whole[:, layout.latents[1], n_causes:].unflatten(1, by_cause).sum(2)
        whole[:, :n_causes, n_causes:] = linear
        whole[:, :n_causes, :n_causes] = linear[:, :, :n_linear].unflatten(2, by_cause).sum(3)
        return torch.cat(first, 1), whole


@dataclass(frozen=True)
class _Layout:
    """Latents of rows: predictors of causes (sums over leaves), of leaves, deviations of shapes, logit."""

    latents: tuple[slice, ...]  # of each kind
    places: tuple[slice, ...]  # of the coefficients of each kind
    order: Tensor  # position in the vector of a problem of each of these coefficients, (N,)
    spread: Tensor  # derivatives by the vector from those by these coefficients, (D, N)
    leaf: Tensor  # of each latent of leaves
    same_leaf: Tensor  # whether two of them are of one leaf, (T, T, 1)


def _gram(left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
    """Sums over rows of features (K, n, a), (K, n, b), or a one, by weights (K, V, U, n): (K, V a, U b)."""
    (v, u), a, b = weight.shape[1:3], left.shape[-1], right.shape[-1]
    if a == b == 1:
        return weight.sum(-1)
    if a == 1:
        return torch.matmul(weight, right[:, None]).flatten(2)
    if b == 1:
        return torch.matmul(weight, left[:, None]).mT.flatten(1, 2)
    scaled = (weight[:, :, :, None] * right.mT[:, None, None]).flatten(1, 3)  # (K, V U b, n)
    found = torch.matmul(scaled, left).view(len(left), v, u, b, a)
    return found.permute(0, 1, 4, 2, 3).reshape(len(left), v * a, u * b)
