"""The regression of one leaf at the maximum of its likelihood: scores of its rows, and draws from it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import counted, rows_text
from sstorch.data import Surv, SurvivalData
from sstorch.exceptions import DataError
from sstorch.fitted.tree import FittedTree
from sstorch.memory import at_once
from sstorch.metrics.censoring import censoring_distribution
from sstorch.nn import HazardFamily

# Eigenvalues of a matrix of unit diagonal below this share of the largest are directions that the rows do not
# determine, such as that of a constant added to all categories and taken off the intercept.
_RANK = 1e-8
# Scores below this share of the root mean square of a parameter's design are rounding errors of zero.
_NO_SCORE = 1e-6
# Newton steps to a maximum of the likelihood. There it could rise by half of _CONVERGED, the next step moves
# the predictor by at most _MOVED, and the information on it has the rank of the design. Towards a maximum at
# infinity the likelihood rises less and less, too, but each step moves some row by about one, until the
# information there underflows. Shapes may end at infinity, such as a spline without a slope between two ties.
_MOST_STEPS = 50
_CONVERGED = 1e-9
_MOVED = 1e-2
# Times at which the curve of each row is inverted, from this share of the smallest time on.
_GRID = 512
_EARLIEST = 1e-4
# Elements of the largest intermediate, (draws, rows, shapes, parameters).
_ELEMENTS = 2**21


class NoMaximumError(DataError):
    """The likelihood of some rows has no maximum, such as that of rows without an event."""


class _Maximum(NamedTuple):
    """Maxima of the likelihood of b outcomes of n rows."""

    numbers: FloatArray  # predictor and shapes of each row, (b, n, q)
    scores: FloatArray  # of the rows there, (b, n, d), with sums of zero; zeros without a maximum
    exists: BoolArray  # whether Newton's method reaches a maximum, (b,)


class LeafLikelihood(NamedTuple):
    """The regression of a leaf at the maximum of the likelihood of its n rows, with d parameters."""

    family: HazardFamily  # with its constants, for one problem
    log_time_scale: float  # log of the time unit of the model
    numbers: FloatArray  # predictor and shapes of each row, (n, q)
    design: FloatArray  # their derivatives in the parameters, in the unit of the scores, (n, q, d)
    is_level: BoolArray  # marks intercept and shapes, (d,)
    data: SurvivalData  # time, event, entry and weight of the rows

    @classmethod
    def of(cls, tree: FittedTree, x: Tensor, data: SurvivalData, group: int) -> LeafLikelihood:
        """Of a group of a trained tree, for rows with encoded features x (n, p), by Newton's method.

        Penalties, soft gates, slopes shared with other leaves and other rows than those of training leave
        scores with a sum, and so with a drift along every column that is correlated with the features.

        Raises:
            DataError: the likelihood overflows.
            NoMaximumError: it has no maximum that Newton's method reaches.
        """
        module = copy.deepcopy(tree.module).to("cpu", torch.float64)
        place = int(np.flatnonzero(tree.group_numbers == group)[0])
        parameters = module.leaf_parameters([module.topology.leaves[place]])
        x = parameters.features(x.detach().to("cpu", torch.float64))
        with torch.no_grad():
            linear, shape = parameters.linear_predictor(x)[0], parameters.shape_parameters(x)[0]
        shape = shape.expand(len(x), shape.shape[-1])
        numbers = torch.cat([linear[:, None], shape], dim=-1).detach().numpy()
        design, is_level = _design(x.numpy(), shape.shape[-1], parameters.shape_slope.shape[-2] > 0)
        family, scale = module.family.expand((1,)), float(module.log_time_scale)
        leaf = cls(family, scale, numbers, design, is_level, data)
        time, event = data.time[None], data.event[None]
        finite = _finite_rows(leaf._derivatives(time, event, numbers[None]))[0]
        if not finite.all():
            bad: BoolArray = ~finite
            raise DataError(
                f"of the rows in group {group} the likelihood overflows in {rows_text(bad)}; leave them out"
            )
        maximum = leaf.maximum(time, event)
        if not maximum.exists[0]:
            raise NoMaximumError(
                f"the likelihood of the {len(x)} rows in group {group} has no maximum "
                f"({counted(data.n_events, 'event')}); test a leaf of fewer parameters or with more events"
            )
        size = np.sqrt((maximum.scores[0] ** 2).mean(axis=0))
        usual = np.sqrt((design**2).mean(axis=(0, 1)))
        unit = np.divide(1, size, out=np.zeros_like(size), where=size > _NO_SCORE * usual)
        return leaf._replace(numbers=maximum.numbers[0], design=design * unit)

    def maximum(self, time: FloatArray, event: BoolArray) -> _Maximum:
        """Maximum of the likelihood of b outcomes of the rows, (b, n), from ``numbers``."""
        (b, n), d = time.shape, self.design.shape[-1]
        found = _Maximum(np.tile(self.numbers, (b, 1, 1)), np.zeros((b, n, d)), np.zeros(b, dtype=bool))
        running = np.flatnonzero(event.any(axis=1))  # without an event there is none
        parts = self._derivatives(time[running], event[running], found.numbers[running])
        flat = self.design.reshape(-1, d)
        n_free = self._rank_of_predictor(np.ones((1, n)))
        for _ in range(_MOST_STEPS):
            keep = _finite_rows(parts).all(axis=1)
            running, (loss, first, second) = running[keep], [part[keep] for part in parts]
            if not len(running):
                break
            scores = -(first[:, :, None, :] @ self.design)[:, :, 0]
            total = scores.sum(axis=1)
            root, convex = _newton_root(flat.T @ (second @ self.design).reshape(len(running), -1, d))
            step = (root @ (root.swapaxes(1, 2) @ total[:, :, None]))[:, :, 0]
            gain = (total * step).sum(axis=1)
            move = np.einsum("nqd,bd->bnq", self.design, step)
            done = (gain <= _CONVERGED) & (np.abs(move[:, :, 0]).max(axis=1) <= _MOVED)
            whole = done & convex & (self._rank_of_predictor(second[:, :, 0, 0]) == n_free)
            found.scores[running[whole]], found.exists[running[whole]] = scores[whole], True
            if done.all():
                break
            running, move, gain = running[~done], move[~done], gain[~done]
            parts = loss[~done], first[~done], second[~done]
            before, losses = found.numbers[running], parts[0].sum(axis=1)
            length, trying = np.ones(len(running)), np.arange(len(running))
            while len(trying):  # halve the steps after which the loss has not fallen
                numbers = before[trying] + length[trying, None, None] * move[trying]
                ahead = self._derivatives(time[running[trying]], event[running[trying]], numbers)
                falls = ahead[0].sum(axis=1) < losses[trying]
                taken = falls | (length[trying] * gain[trying] < _CONVERGED)
                found.numbers[running[trying[taken]]] = numbers[taken]
                for part, new in zip(parts, ahead, strict=True):
                    part[trying[taken]] = new[taken]
                trying = trying[~taken]
                length[trying] /= 2
        return found

    def _rank_of_predictor(self, curvature: FloatArray) -> IntArray:
        """Rank (b,) of the information on the predictor, given its curvature in each row, (b, n)."""
        x = self.design[:, 0]
        scaled, _ = _at_unit_diagonal(x.T @ (curvature[:, :, None] * x))
        scale = _root_scale(np.asarray(np.linalg.eigvalsh(scaled)))
        return np.asarray((scale > 0).sum(axis=1))

    def _derivatives(
        self, time: FloatArray, event: BoolArray, numbers: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Weighted loss (b, n) and both derivatives in the ``numbers`` (b, n, q)."""
        weight = self.data.sample_weight / self.data.sample_weight.mean()
        parts = self._from_zero(time, event, numbers)
        entry = self.data.entry
        if (late := entry > 0).any():  # less H(entry), the loss of a row that leaves there without an event
            at_entry = np.where(late, entry, time)
            before = self._from_zero(at_entry, np.zeros_like(event), numbers)
            with np.errstate(invalid="ignore"):  # a long step can overflow: callers ask what is finite
                for part, less in zip(parts, before, strict=True):
                    part[:, late] -= less[:, late]
        loss, first, second = parts
        return loss * weight, first * weight[:, None], second * weight[:, None, None]

    def _from_zero(
        self, time: FloatArray, event: BoolArray, numbers: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Derivatives of rows without weight, observed from time zero."""
        (b, n), q = time.shape, numbers.shape[-1]
        flat = torch.as_tensor(numbers.reshape(b * n, q))[None, None]
        log_time = torch.as_tensor(np.log(time.ravel()) - self.log_time_scale)[None, None]
        rows = (
            log_time,
            torch.as_tensor(event.ravel().astype(np.float64))[None, None],
            flat[..., 0],
            flat[..., 1:],
        )
        loss, slope, others = self.family.loss_and_gradient(*rows)
        first = torch.stack([slope, *others], dim=-1)[0, 0].numpy()
        second = np.zeros((b * n, q, q))
        for (j, k), part in self.family.second_derivatives(*rows).items():
            second[:, j, k] = second[:, k, j] = part[0, 0].numpy()
        return loss[0, 0].numpy().reshape(b, n), first.reshape(b, n, q), second.reshape(b, n, q, q)

    def draws(self, count: int, seed: int) -> Iterator[tuple[FloatArray, BoolArray]]:
        """The observed outcome, then ``count`` drawn from this regression: times and events, (b, n) in all.

        Times are drawn from the curve of each row, given that the row had entered. A censored row is followed
        as long as it was; a row with an event as long as Kaplan-Meier has it for rows that are followed so
        long, at most to the last time of all.
        """
        data, n = self.data, len(self.data)
        first, last = data.time.min() * _EARLIEST, data.time.max()
        log_grid = np.linspace(np.log(first), np.log(last), _GRID)
        on_grid, at_entry = self._log_hazard(log_grid), np.zeros(n)
        if (data.entry > 0).any():
            entry = np.maximum(data.entry, first)
            at_entry = np.where(data.entry > 0, np.exp(self._log_hazard(np.log(entry)[:, None])[:, 0]), 0.0)
        g = censoring_distribution(Surv(data.time, data.event, entry=data.entry))
        kept, falling = g.at(data.time), -g.values
        rng = np.random.default_rng(seed)
        step = at_once(self.design.size, _ELEMENTS)
        yield data.time[None], data.event[None]
        for start in range(0, count, step):
            u, v = np.moveaxis(rng.random((min(step, count - start), n, 2)), 2, 0)
            target = np.log(at_entry - np.log1p(-u))
            time = np.column_stack(
                [np.interp(target[:, i], on_grid[i], log_grid, right=np.inf) for i in range(n)]
            )
            followed = np.append(g.times, last)[np.searchsorted(falling, -kept * v)]
            followed = np.where(data.event, followed, data.time)
            time = np.maximum(np.exp(time), data.entry)
            yield np.minimum(time, followed), time <= followed

    def _log_hazard(self, log_time: FloatArray) -> FloatArray:
        """Logarithm of H of each row at log times, (G,) or (n, G) -> (n, G)."""
        numbers = torch.as_tensor(self.numbers)
        at = torch.as_tensor(
            np.broadcast_to(log_time, (len(numbers), log_time.shape[-1])) - self.log_time_scale
        )
        with torch.no_grad():
            hazards = [
                self.family.cumulative_hazard(
                    row[None, None], number[:1].expand(1, 1, len(row)), number[None, None, None, 1:]
                )
                for row, number in zip(at, numbers, strict=True)
            ]
        return np.asarray(torch.cat(hazards)[:, 0].log().numpy())


def _finite_rows(parts: tuple[FloatArray, ...]) -> BoolArray:
    """Where loss and derivatives (b, n, ...) are finite, (b, n)."""
    finite = [np.isfinite(part).all(axis=tuple(range(2, part.ndim))) for part in parts]
    return np.asarray(np.logical_and.reduce(finite))


def _design(x: FloatArray, n_shape: int, linear_shapes: bool) -> tuple[FloatArray, BoolArray]:
    """Derivatives of predictor and shapes in the parameters, as `LeafParameters.flatten` has them."""
    n, p = x.shape
    ends = p + 1 + n_shape
    design = np.zeros((n, 1 + n_shape, ends + linear_shapes * n_shape * p))
    design[:, 0, :p], design[:, 0, p] = x, 1.0
    for k in range(n_shape):
        design[:, 1 + k, p + 1 + k] = 1.0
        if linear_shapes:
            design[:, 1 + k, ends + k * p : ends + (k + 1) * p] = x
    place = np.arange(design.shape[-1])
    return design, (place >= p) & (place < ends)


def _at_unit_diagonal(information: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Information (b, d, d) in units of the parameters (b, d) that make its diagonal one, and these units."""
    size = np.sqrt(np.abs(np.diagonal(information, axis1=1, axis2=2)))
    unit = np.divide(1, size, out=np.zeros_like(size), where=size > 0)
    return information * unit[:, :, None] * unit[:, None, :], unit


def _newton_root(information: FloatArray) -> tuple[FloatArray, BoolArray]:
    """R with R R' the inverse of information (b, d, d) for Newton steps, and whether it is nowhere negative.

    Negative curvature, as it occurs far from a maximum, is taken as positive: steps lead away from saddle
    points. Directions without curvature, at unit diagonal, are left out.
    """
    scaled, unit = _at_unit_diagonal(information)
    values, vectors = np.linalg.eigh(scaled)
    scale = _root_scale(np.abs(values))
    convex = np.asarray(((values >= 0) | (scale == 0)).all(axis=1))
    return unit[:, :, None] * vectors * scale[:, None], convex


def inverse_root(matrices: FloatArray) -> FloatArray:
    """R with R R' the pseudo-inverse of symmetric matrices (b, d, d), zero if these are not positive."""
    values, vectors = np.linalg.eigh(matrices)
    return np.asarray(vectors * _root_scale(values)[:, None])


def _root_scale(values: FloatArray) -> FloatArray:
    """1 / sqrt of eigenvalues (b, d), zero where they do not count, see ``_RANK``."""
    kept = values > _RANK * np.maximum(values.max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    return np.where(kept, 1 / np.sqrt(np.where(kept, values, 1.0)), 0.0)
