"""Soft gates and the leaves under them as one problem for Newton's method.

The loss of a row is the expected loss of the paper, E = sum_l P_l L_l over leaves l, made smooth:
-(1/tau) log sum_l P_l exp(-tau L_l). As tau goes to 0 it is E; at tau = 1 it is the likelihood of the mixture
of the leaves, whose components describe the shape of the marginal curve and not groups of rows. A small tau
keeps E's minimum, and its Hessian can be written with the responsibilities of the leaves.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from sstorch.batched import SHARED, Batched
from sstorch.data.design_matrix import row_blocks
from sstorch.newton import Hessian, Problem
from sstorch.nn import Topology
from sstorch.nn.functional import log_sigmoid_pair
from sstorch.nn.losses import component_losses, derivatives_by_autograd
from sstorch.optim.linear_hazards import LinearHazards

# Temperature of the smooth loss. Up to .1 gates and predictions are those of E.
TAU = 0.02
# Largest change of a shape parameter, and of the logit of any row, in a step.
_LONGEST, _LONGEST_LOGIT = 3.0, 10.0
# Elements of the second derivatives of the rows that are worked on at once: they stay in the cache.
_ELEMENTS = 2**19


def path_signs(topology: Topology, gates: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Leaves of the tree of some gates, numbered as nodes; gates that are left out send all rows left.

    Returns:
        positions of the leaves that rows can reach, from left to right, (L,); +1 where the path to a leaf
        turns left at a gate, -1 where it turns right, 0 where the gate is not on it, (L, B).
    """
    places, rows = [], []
    for place, leaf in enumerate(topology.leaves):
        path = topology.ancestors(leaf)
        if any(not left and gate not in gates for gate, left in path):
            continue
        turn = {gate: 1.0 if left else -1.0 for gate, left in path}
        places.append(place)
        rows.append([turn.get(gate, 0.0) for gate in gates])
    return torch.tensor(places), torch.tensor(rows, dtype=torch.float64).reshape(len(places), len(gates))


class _Routes(NamedTuple):
    """Gates at rows: log probabilities of the leaves, and their derivatives by the logits."""

    log_probability: Tensor  # (K, L, n)
    slope: Tensor  # (K, L, B, n)
    curvature: Tensor  # of every leaf whose path has the gate, (K, B, n)


class _Losses(NamedTuple):
    """Losses of rows in all leaves by a cause, with derivatives by the linear predictor and the shapes."""

    loss: Tensor  # (K, L, n)
    first: Tensor  # (K, L, 1 + m, n)
    second: dict[tuple[int, int], Tensor]  # (K, L, n) each, of pairs j <= k


@dataclass(frozen=True)
class SoftGates(Batched, Problem):
    """K problems: hazards in L leaves under gates that send each row to all leaves, with probabilities.

    Coefficients of a problem are, in one vector (D,), for each cause those of :class:`LinearHazards` with the
    leaves as groups (features, levels, own slopes, shapes), then for each gate its bias and weights. Gates
    are estimated, or the probabilities of leaves are given.
    """

    hazards: tuple[LinearHazards, ...]  # of every cause, for the same rows and features, without groups
    own: Tensor = field(metadata=SHARED)  # positions of features with slopes of their own in leaves, (q,)
    signs: Tensor = field(metadata=SHARED)  # of the paths, (L, B), see :func:`path_signs`
    z: Tensor | None = None  # features of the gates, standardised, (K, n, Q)
    log_probability: Tensor | None = None  # of the leaves, where gates are given, (K, L, n)
    tau: float = field(default=TAU, metadata=SHARED)

    @property
    def n_leaves(self) -> int:
        """L."""
        return len(self.signs)

    @property
    def n_gates(self) -> int:
        """Estimated gates, B; 0 where probabilities are given."""
        return 0 if self.z is None else self.signs.shape[1]

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
            size = each.width + self.n_leaves * (1 + len(self.own)) + n_shapes * (1 + self.n_leaves)
            found.append(slice(end, end + size))
            end += size
        return tuple(found)

    @property
    def of_gates(self) -> slice:
        """Positions of the coefficients of the gates."""
        first = self.of_causes[-1].stop
        return slice(first, first if self.z is None else first + self.n_gates * (1 + self.z.shape[-1]))

    @property
    def n_coefficients(self) -> int:
        """D, the length of the vector of a problem."""
        return int(self.of_gates.stop)

    @override
    def step_size(self, step: Tensor) -> Tensor:
        layout = self._layout
        of_shapes = layout.order[layout.shapes]
        longest = torch.nn.functional.pad(step[:, of_shapes], (0, 1)).abs().amax(-1) / _LONGEST
        if self.z is not None:
            gates = step[:, self.of_gates].unflatten(1, (self.n_gates, -1))
            logits = torch.matmul(gates, self._gate_features.mT).abs().amax((-2, -1))
            longest = torch.maximum(longest, logits / _LONGEST_LOGIT)
        return 1 / longest.clamp(min=1.0)

    @override
    def thinned(self, stride: int) -> SoftGates:
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
            exponent = self._routes(theta, rows).log_probability
            for number, each in enumerate(self.hazards):
                linear, shape = self._latents(number, theta, rows)
                times = each._part(rows).log_times
                exponent = exponent - self.tau * component_losses(each.family, times, linear, shape)
            weight = self._weight[:, rows]
            total += (weight * torch.where(weight > 0, -exponent.logsumexp(1) / self.tau, 0.0)).sum(-1)
        return total

    @override
    @torch.no_grad()
    def derivatives(self, theta: Tensor) -> tuple[Tensor, Tensor, Hessian]:
        layout, total = self._layout, theta.new_zeros(len(theta))
        gradient = theta.new_zeros(len(theta), layout.size)
        hessian = theta.new_zeros(len(theta), layout.size, layout.size)
        for rows in self._row_blocks:
            routes = self._routes(theta, rows)
            leaves = [self._losses(number, theta, rows) for number in range(len(self.hazards))]
            loss = torch.stack([each.loss for each in leaves]).sum(0)
            exponent, weight = routes.log_probability - self.tau * loss, self._weight[:, rows]
            normaliser = exponent.logsumexp(1, keepdim=True)
            total += (weight * torch.where(weight > 0, -normaliser.squeeze(1) / self.tau, 0.0)).sum(-1)
            share = torch.where(weight[:, None] > 0, (exponent - normaliser).exp(), 0.0)
            first, second = self._of_latents(leaves, routes, share, weight)
            self._add_rows(gradient, hessian, first, second, rows)
        gradient, hessian = layout.ordered(gradient, hessian)
        return total, gradient, Hessian.of(hessian)

    @torch.no_grad()
    def leaf_losses(self, theta: Tensor) -> Tensor:
        """Mean loss of each leaf over its share of the rows, all causes together, (K, L)."""
        total, count = (theta.new_zeros(len(theta), self.n_leaves) for _ in range(2))
        for rows in self._row_blocks:
            losses = [self._losses(number, theta, rows).loss for number in range(len(self.hazards))]
            loss, routes = torch.stack(losses).sum(0), self._routes(theta, rows).log_probability
            share = torch.softmax(routes - self.tau * loss, 1) * self._weight[:, None, rows]
            total += (share * loss).sum(-1)
            count += share.sum(-1)
        return total / count

    # ------------------------------------------------------------------ rows

    @property
    def _weight(self) -> Tensor:
        return self.hazards[0].weight

    @cached_property
    def _layout(self) -> _Layout:
        sizes = [(each.width, len(each.family.shape_names)) for each in self.hazards]
        width = 0 if self.z is None else 1 + self.z.shape[-1]
        return _Layout.of(sizes, self.n_leaves, len(self.own), self.n_gates, width, self._weight.device)

    @cached_property
    def _row_blocks(self) -> list[slice]:
        return row_blocks(self.n_rows, len(self._weight) * self._layout.n_latents**2, _ELEMENTS)

    @cached_property
    def _features(self) -> Tensor:
        """A one and the features of hazards, standardised, (K, n, p)."""
        first = self.hazards[0]
        centre, scale = first._units
        x = first.x.to_dense().to(centre)
        x = x if set(first.x.counts) == {1} else x[first.x.split]
        return torch.nn.functional.pad((x - centre[:, None]) / scale[:, None], (1, 0), value=1.0)

    @cached_property
    def _own_features(self) -> Tensor:
        """A one and the features with slopes of their own in leaves, (K, n, 1 + q)."""
        return self._features[..., torch.cat([self.own.new_zeros(1), 1 + self.own])].contiguous()

    @cached_property
    def _gate_features(self) -> Tensor:
        """A one and the features of gates, (K, n, 1 + Q); none where probabilities are given."""
        if self.z is None:
            return self._features[..., :0]
        return torch.nn.functional.pad(self.z, (1, 0), value=1.0)

    @cached_property
    def _bases(self) -> tuple[Tensor | None, ...]:
        """Functions of the times of rows that do not depend on parameters, by cause."""
        return tuple(each.family.basis(each.sample.log_time) for each in self.hazards)

    def _latents(self, number: int, theta: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        """Linear predictors (K, L, n) and shapes (K, L, 1, m) of a cause."""
        each, n_leaves = self.hazards[number], self.n_leaves
        part, p, q = theta[:, self.of_causes[number]], each.width, len(self.own)
        end = p + n_leaves * (1 + q)
        common = torch.matmul(self._features[:, rows], part[:, :p, None]).mT
        if each.offset is not None:
            common = common + each.offset[:, None, rows]
        level, slope = part[:, p : p + n_leaves], part[:, p + n_leaves : end].unflatten(1, (n_leaves, q))
        own = torch.cat([level[..., None], slope], -1)
        linear = common + torch.matmul(own, self._own_features[:, rows].mT)
        shapes = part[:, end:].unflatten(1, (len(each.family.shape_names), 1 + n_leaves))
        return linear, (shapes[..., :1] + shapes[..., 1:]).mT[:, :, None]

    def _routes(self, theta: Tensor, rows: slice) -> _Routes:
        if self.log_probability is not None:
            given = self.log_probability[..., rows]
            none = given.new_zeros(len(given), 0, given.shape[-1])
            return _Routes(given, none[:, None].expand(-1, self.n_leaves, -1, -1), none)
        gates = theta[:, self.of_gates].unflatten(1, (self.n_gates, -1))
        left, right = log_sigmoid_pair(torch.matmul(gates, self._gate_features[:, rows].mT))
        turns_left, turns_right = self.signs.clamp(min=0), (-self.signs).clamp(min=0)
        log_probability = torch.matmul(turns_left, left) + torch.matmul(turns_right, right)
        p_left, p_right = left.exp(), right.exp()
        slope = turns_left[..., None] * p_right[:, None] - turns_right[..., None] * p_left[:, None]
        return _Routes(log_probability, slope, p_left * p_right)

    def _losses(self, number: int, theta: Tensor, rows: slice) -> _Losses:
        each = self.hazards[number]
        family, sample = each.family, each._part(rows)
        times, (linear, shape) = sample.log_times, self._latents(number, theta, rows)
        if family.closed_form and times.log_entry is None and times.log_lower is None:
            basis = self._bases[number]
            basis = None if basis is None else basis[..., rows]
            loss, of_linear, of_shape = family.loss_and_gradient(*times[:2], linear, shape, basis)
            slopes = [of_linear, *of_shape]
            pairs = family.second_derivatives(*times[:2], linear, shape, basis)
        else:
            loss, slopes, pairs = derivatives_by_autograd(
                family, times, linear, shape, sample.weight[:, None]
            )
        counts = (sample.weight > 0)[:, None]

        def finite(part: Tensor) -> Tensor:
            """Derivatives of rows; a leaf that is impossible for a row has none of it."""
            return torch.where(counts & part.isfinite(), part, 0.0)

        first = torch.stack([finite(part).expand(loss.shape) for part in slopes], 2)
        second = {pair: finite(part) for pair, part in pairs.items()}
        return _Losses(torch.where(counts, loss, 0.0), first, second)

    # ------------------------------------------------------------------ sums over rows

    def _of_latents(
        self, leaves: Sequence[_Losses], routes: _Routes, share: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Weighted first (K, T, n) and second derivatives (K, T, T, n) of rows by their latents.

        The latents are the linear predictor of each cause and leaf, each shape of them, and the logit of each
        gate, whose second derivatives with the others stand in the upper block alone. With
        responsibilities R_l, first derivatives u of the losses and a of the log probabilities, the second
        derivatives are R_l L_l'' - tau (cov_R u), R_l u_l (a_l - mean a), and -(mean a' + cov_R a) / tau.
        """
        layout, tau = self._layout, self.tau
        own = torch.cat(
            [each.first[:, :, 0] for each in leaves]
            + [each.first[:, :, 1:].flatten(1, 2) for each in leaves],
            1,
        )
        counted, n_own = share * weight[:, None], own.shape[1]
        shared, weighted = share[:, layout.leaf] * own, counted[:, layout.leaf] * own
        second = own.new_empty(len(own), layout.n_latents, layout.n_latents, own.shape[-1])
        among = second[:, :n_own, :n_own]
        torch.addcmul(shared[:, None], layout.same_leaf, own[:, None], value=-1, out=among)
        among.mul_(tau * weighted[:, :, None])
        for number, each in enumerate(leaves):
            for (j, k), part in each.second.items():
                s, t = layout.latents(number, j), layout.latents(number, k)
                part = part * counted
                among[:, s, t] += part
                if j != k:
                    among[:, t, s] += part
        if not self.n_gates:
            return weighted, second
        slopes = share[:, :, None] * routes.slope
        mean = slopes.sum(1)  # (K, B, n)
        cross = weighted[:, :, None] * (routes.slope[:, layout.leaf] - mean[:, None])
        second[:, :n_own, n_own:] = cross
        moments = (slopes[:, :, :, None] * routes.slope[:, :, None]).sum(1)
        between = mean[:, :, None] * mean[:, None] - moments
        passed = torch.matmul(self.signs.abs().mT, share) * routes.curvature
        between.diagonal(dim1=1, dim2=2).add_(passed.transpose(1, 2))
        second[:, n_own:, n_own:] = between * (weight[:, None, None] / tau)
        return torch.cat([weighted, mean * (-weight[:, None] / tau)], 1), second

    def _add_rows(
        self, gradient: Tensor, hessian: Tensor, first: Tensor, second: Tensor, rows: slice
    ) -> None:
        """Add what rows give to gradient and Hessian by the pieces of the layout, in place."""
        layout, (n_causes, n_leaves) = self._layout, (len(self.hazards), self.n_leaves)
        linear = slice(0, n_causes * n_leaves)
        shapes = slice(linear.stop, layout.n_own)
        logits = slice(layout.n_own, layout.n_latents)
        common, own = self._features[:, rows], self._own_features[:, rows]
        gates = self._gate_features[:, rows]
        by_cause = first[:, linear].unflatten(1, (n_causes, n_leaves)).sum(2)
        gradient[:, layout.common] += torch.matmul(by_cause, common).flatten(1)
        gradient[:, layout.linear] += torch.matmul(first[:, linear], own).flatten(1)
        gradient[:, layout.shapes] += first[:, shapes].sum(-1)
        gradient[:, layout.gates] += torch.matmul(first[:, logits], gates).flatten(1)
        # By the part of the linear predictor that all leaves of a cause share.
        total = second[:, linear].unflatten(1, (n_causes, n_leaves)).sum(2)
        among = total[:, :, linear].unflatten(2, (n_causes, n_leaves)).sum(3)
        for row, column, part in (
            (layout.common, layout.common, _gram(common, common, among)),
            (layout.common, layout.linear, _gram(common, own, total[:, :, linear])),
            (
                layout.common,
                layout.shapes,
                torch.matmul(total[:, :, shapes], common[:, None]).mT.flatten(1, 2),
            ),
            (layout.common, layout.gates, _gram(common, gates, total[:, :, logits])),
            (layout.linear, layout.linear, _gram(own, own, second[:, linear, linear])),
            (
                layout.linear,
                layout.shapes,
                torch.matmul(second[:, linear, shapes], own[:, None]).mT.flatten(1, 2),
            ),
            (layout.linear, layout.gates, _gram(own, gates, second[:, linear, logits])),
            (layout.shapes, layout.shapes, second[:, shapes, shapes].sum(-1)),
            (layout.shapes, layout.gates, torch.matmul(second[:, shapes, logits], gates[:, None]).flatten(2)),
            (layout.gates, layout.gates, _gram(gates, gates, second[:, logits, logits])),
        ):
            hessian[:, row, column] += part


@dataclass(frozen=True)
class _Layout:
    """Pieces of the coefficients: common slopes, linear predictors of leaves, shapes of leaves, gates.

    A shape of a leaf is the sum of a constant and a deviation; derivatives by the constants are sums of those
    by deviations.
    """

    common: slice
    linear: slice  # level and own slopes of each cause and leaf
    shapes: slice  # deviations of each cause, leaf and shape
    gates: slice  # bias and weights of each gate
    constants: Tensor  # number of the constant of each deviation
    n_constants: int
    order: Tensor  # position among the coefficients of a problem of each piece, then of the constants
    leaf: Tensor  # of each latent that is not a logit
    same_leaf: Tensor  # whether two of them are of one leaf, (T, T, 1)
    n_own: int  # latents that are not logits
    n_latents: int
    n_leaves: int
    sizes: tuple[int, ...]  # shapes of each cause

    @classmethod
    def of(
        cls,
        sizes: Sequence[tuple[int, int]],
        n_leaves: int,
        n_own: int,
        n_gates: int,
        width: int,
        device: torch.device,
    ) -> _Layout:
        """Of causes with so many common coefficients and shapes, own slopes, gates and their coefficients."""
        count, n_constants, end = partial(torch.arange, device=device), 0, 0
        common: list[Tensor] = []
        linear, shapes, constants, numbers = ([*common] for _ in range(4))
        for p, m in sizes:
            own = count(n_leaves * (1 + n_own)) + end + p
            of_shapes = (count(m * (1 + n_leaves)) + end + p + len(own)).view(m, 1 + n_leaves)
            common.append(count(p) + end)
            of_slopes = own[n_leaves:].view(n_leaves, n_own)
            linear.append(torch.cat([own[:n_leaves, None], of_slopes], 1).flatten())
            shapes.append(of_shapes[:, 1:].mT.flatten())
            numbers.append((count(m) + n_constants).repeat(n_leaves))
            constants.append(of_shapes[:, 0])
            n_constants, end = n_constants + m, end + p + len(own) + of_shapes.numel()
        pieces = [*(torch.cat(each) for each in (common, linear, shapes)), count(n_gates * width) + end]
        ends = [0, *itertools.accumulate(map(len, pieces))]
        of_leaf = [count(n_leaves).repeat(len(sizes))]
        leaf = torch.cat(of_leaf + [count(n_leaves).repeat_interleave(m) for _, m in sizes])
        first, second, third, fourth = (slice(*pair) for pair in itertools.pairwise(ends))
        return cls(
            first,
            second,
            third,
            fourth,
            torch.cat(numbers),
            n_constants,
            torch.cat([*pieces, *constants]),
            leaf,
            (leaf[:, None] == leaf).double()[..., None],
            len(leaf),
            len(leaf) + n_gates,
            n_leaves,
            tuple(m for _, m in sizes),
        )

    @property
    def size(self) -> int:
        """Coefficients without the constants of shapes."""
        return int(self.gates.stop)

    def latents(self, cause: int, parameter: int) -> Tensor:
        """Numbers of the latents of all leaves: the linear predictor, parameter 0, or a shape, (L,)."""
        leaves = torch.arange(self.n_leaves, device=self.leaf.device)
        if parameter == 0:
            return cause * self.n_leaves + leaves
        first = self.n_leaves * (len(self.sizes) + sum(self.sizes[:cause]))
        return first + self.sizes[cause] * leaves + parameter - 1

    def ordered(self, gradient: Tensor, hessian: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient and Hessian of all coefficients, from those of the pieces, the upper blocks filled."""
        hessian = _symmetric(hessian)
        constants = torch.zeros(self.size, self.n_constants).to(gradient)
        constants[torch.arange(self.shapes.start, self.shapes.stop), self.constants] = 1.0
        across = torch.matmul(hessian, constants)
        corner = _symmetric(torch.matmul(constants.mT, across))
        hessian = torch.cat([torch.cat([hessian, across], 2), torch.cat([across.mT, corner], 2)], 1)
        gradient = torch.cat([gradient, torch.matmul(gradient, constants)], 1)
        back = torch.empty_like(self.order)
        back[self.order] = torch.arange(len(back), device=back.device)
        return gradient[:, back], hessian[:, back[:, None], back]


def _symmetric(matrix: Tensor) -> Tensor:
    """The matrices (K, D, D) that have the upper triangles of these."""
    return matrix.triu() + matrix.triu(1).mT


def _gram(left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
    """Sums of left x right over rows, by the weights of pairs of latents.

    Features (K, n, a) and (K, n, b), weights (K, V, U, n) -> (K, V a, U b).
    """
    (v, u), a, b = weight.shape[1:3], left.shape[-1], right.shape[-1]
    scaled = (weight[:, :, :, None] * right.mT[:, None, None]).flatten(1, 3)  # (K, V U b, n)
    found = torch.matmul(scaled, left).view(len(left), v, u, b, a)
    return found.permute(0, 1, 4, 2, 3).reshape(len(left), v * a, u * b)
