"""A trained soft tree: curves, incidences, likelihood and groups of encoded rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from sstorch import metrics
from sstorch._types import FloatArray, IntArray
from sstorch.base import CurveKind
from sstorch.checks import blocks, check_quantile, check_truncation
from sstorch.data import Preprocessor, SurvivalData
from sstorch.data.coded import RowFeatures
from sstorch.exceptions import ConfigError
from sstorch.fitted.incidence import (
    NODES,
    PLACES,
    WEIGHTS,
    cumulative_incidence,
    log_time_panels,
    panels_before,
    panels_from,
)
from sstorch.memory import at_once, check_room
from sstorch.nn import SoftTree, SurvivalDistribution
from sstorch.nn.hazards.numeric import invert
from sstorch.threads import threads_for

Prediction = Literal["hbp", "mixture"]
PREDICTIONS: tuple[Prediction, ...] = ("hbp", "mixture")
# The name of the only hazard where causes do not compete.
EVENT = "event"
# Elements of the largest intermediate of a prediction; rows are taken in chunks that stay below. Two MiB stay
# in the cache, which thirty do not.
_CHUNK_ELEMENTS = 2**18
# Of curves to be scored, of which a study asks for hundreds: freed arrays of this size stay with the process.
# Larger ones go back to the system, and having them again takes longer than computing the curves.
_SCORED_ELEMENTS = 2**16
# Of a prediction, below which a second thread gains nothing, chunks being small.
_FEW_ELEMENTS = 2**25
# What one row of a quantile or of a restricted mean counts: it takes 512 elements, but many small operations,
# which fewer rows at a time would repeat too often.
_QUANTILE_ELEMENTS = 32
# Times at which survival is averaged to order groups by prognosis, and the digits of the mean that count.
_PROGNOSIS_TIMES, PROGNOSIS_DIGITS = 32, 9
# Slopes of leaves that differ by less are the same.
_SAME_SLOPES = 1e-9
# Sums over no more times than this are taken term by term.
MOST_TERMS = 4096
# Beyond, so many pieces with so many nodes each: 512 terms.
_PIECES, _PIECE_NODES = 64, 8


@dataclass(frozen=True)
class FittedTree:
    """A trained soft tree with the preprocessing of its rows: all that predicting, reading and scoring need.

    Rows are passed as encoded features ``x``, shape (n, p), made by :meth:`encode`; times are in original
    units. Results are NumPy arrays of the tree's floating point type.

    With competing causes the likelihood is a product over causes, in each of which the events of the others
    are censored: so each cause has a hazard of its own under the same gates, and what a subject can expect is
    the cumulative incidence of a cause. Survival is then free of any event.

    Attributes:
        hazards: by cause the tree that has its hazard in the leaves, without batch dimension; all have the
            same gates. A single one, ``"event"``, where causes do not compete.
        preprocessor: fitted on the training rows.
        prediction: ``"hbp"``, one leaf per row, or ``"mixture"``, the average of all leaves.
        time_unit: of its times, as texts name it; None if unknown.
        time_varying: whether training subjects had several rows, so that one row does not determine survival
            from time zero: texts then say on what condition it holds.
        event_times: distinct training event times, increasing; incidences and restricted means of competing
            causes need them, and no quantile lies beyond the last one.
        groups: number of the group that each leaf is, from left to right, shape (L,): 1 for the longest
            survival. By default the order of the leaves.

    References:
        Prentice, Kalbfleisch, Peterson, Flournoy, Farewell and Breslow (1978), "The analysis of failure times
        in the presence of competing risks", Biometrics 34, 541-554.
    """

    hazards: Mapping[str, SoftTree]
    preprocessor: Preprocessor
    prediction: Prediction = "hbp"
    time_unit: str | None = None
    time_varying: bool = False
    event_times: FloatArray = field(default_factory=lambda: np.empty(0))
    groups: IntArray | None = None

    @property
    def module(self) -> SoftTree:
        """The tree of the first cause, whose gates are those of all."""
        return next(iter(self.hazards.values()))

    @property
    def causes(self) -> tuple[str, ...]:
        """Names of the causes; ``("event",)`` where they do not compete."""
        return tuple(self.hazards)

    @property
    def competing(self) -> bool:
        """Whether causes compete."""
        return self.causes != (EVENT,)

    @property
    def can_rise(self) -> bool:
        """Whether a survival curve can rise."""
        return any(module.family.can_rise for module in self.hazards.values())

    @property
    def group_numbers(self) -> IntArray:
        """Number of the group that each leaf is, shape (L,)."""
        return np.arange(1, self._n_leaves + 1) if self.groups is None else self.groups

    def of_cause(self, cause: str) -> FittedTree:
        """The tree with the hazard of one cause alone, as if the others did not exist."""
        return replace(self, hazards={EVENT: self.hazards[cause]})

    def encode(self, frame: pd.DataFrame) -> RowFeatures:
        """Encoded features of rows, (n, p), on the device of the tree."""
        like = self.module.log_time_scale
        return self.preprocessor.encode(frame).to(device=like.device, dtype=like.dtype)

    # ------------------------------------------------------------------ predict

    def curves(
        self,
        x: RowFeatures,
        times: FloatArray,
        kind: CurveKind | Literal["log_hazard"] = "survival",
    ) -> FloatArray:
        """Curves of rows.

        Args:
            x: encoded features, shape (n, p).
            times: shape (n_times,), or (n, n_times) if every row has its own.
            kind: of the curves.

        Returns:
            shape (n, n_times).
        """
        function, at = self.function(kind), torch.as_tensor(times, device=x.device)
        rows = (x, at) if at.ndim == 2 else (x,)
        return self._by_chunk(lambda x, at=at: function(x, at), at.shape[-1], *rows)

    def falling_curves(self, x: RowFeatures, times: FloatArray) -> FloatArray:
        """Survival curves of one event as scores read them.

        Curves that rise, as those of unconstrained splines can, are replaced by their running minimum. All
        rows enter the matrix products at once, which round differently with another number of rows.

        Args:
            x: encoded features, shape (n, p).
            times: increasing, shape (n_times,).

        Returns:
            shape (n, n_times), float64 in Fortran order; scores compare all rows at a time.
        """
        check_room(len(x), len(times))
        out, at = np.empty((len(times), len(x))), torch.as_tensor(times, device=x.device)
        width = len(x) * (self._n_leaves if self.prediction == "mixture" else 1)
        with torch.no_grad():
            distribution = self.distributions(x)[0]
            for some in blocks(len(times), width, _SCORED_ELEMENTS):
                out[some] = distribution.survival(at[some, None], rows_last=True).cpu().numpy()
        if self.can_rise:
            np.minimum.accumulate(out, axis=0, out=out)
        return out.T

    def distributions(self, x: RowFeatures) -> list[SurvivalDistribution]:
        """Distribution of the time to each cause, as if the others did not exist."""
        if self.prediction == "hbp":
            return [module.most_probable(x) for module in self.hazards.values()]
        return [module(x) for module in self.hazards.values()]

    def function(self, kind: CurveKind | Literal["log_hazard"]) -> Callable[[RowFeatures, Tensor], Tensor]:
        """Curves of encoded rows at times, (T,) or (n, T); of competing causes those of any event."""
        return lambda x, at: _of_any_event(self.distributions(x), at, kind)

    def incidence(self, x: RowFeatures, times: FloatArray, after: float = 0.0) -> FloatArray:
        """Cumulative incidence of each cause, F_k(t), the integral of h_k S from 0 to t.

        S is the survival function of any event. Between two times the causes share what S loses, as their
        integrals do, so that incidences and S sum to one whatever the quadrature, and its error, below 1e-8
        with every family (tests/fitted/test_incidence.py), acts on the shares alone.

        Args:
            x: encoded features, shape (n, p).
            times: shape (n_times,), >= 0, in any order, counted from `after`.
            after: time until which the rows are event-free, >= 0.

        Returns:
            shape (n, K, n_times), in [0, 1], rising with t.
        """
        at = torch.as_tensor(after + times, device=x.device)
        edges = panels_before(panels_from(self.panels, after), after + float(times.max(initial=0.0)))

        def chunk(x: RowFeatures) -> Tensor:
            incidence, _ = self.incidence_and_survival(x, at, torch.as_tensor(edges, device=x.device), after)
            return incidence

        return self._by_chunk(chunk, len(self.hazards) * (len(edges) + len(times)) * NODES, x)

    def incidence_and_survival(
        self, x: RowFeatures, times: Tensor, edges: Tensor, after: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Incidences (n, K, n_times) and survival (n, n_times) as tensors; see :meth:`incidence`.

        Args:
            x: encoded features, shape (n, p).
            times: shape (n_times,), >= `after`, from time zero.
            edges: those of `panels`, from `after` on, before the largest time.
            after: time until which the rows are event-free, >= 0.
        """
        causes = self.distributions(x)

        def curves(at: Tensor) -> tuple[Tensor, Tensor]:
            log_hazards = torch.stack([cause.log_hazard(at[None]) for cause in causes], 1)
            return log_hazards, _of_any_event(causes, at, "cumulative_hazard")

        return cumulative_incidence(curves, times, edges, after)

    @cached_property
    def panels(self) -> FloatArray:
        """Log times between which the hazards are smooth, the edges of a quadrature over time."""
        # Families without constants know no device.
        bends = [
            module.family.corners().detach().cpu() + module.log_time_scale.detach().cpu()
            for module in self.hazards.values()
        ]
        corners = np.concatenate([each.double().exp().numpy().ravel() for each in bends])
        return log_time_panels(self.event_times, corners)

    def risk(self, x: RowFeatures, times: FloatArray) -> FloatArray:
        """Sum of the cumulative hazard over some times, shape (n,); over very many by :func:`sum_rule`."""
        nodes, weights = sum_rule(times)
        at, weight = torch.as_tensor(nodes, device=x.device), torch.as_tensor(weights).to(x.device, x.dtype)
        cumulative = self.function("cumulative_hazard")

        def total(x: RowFeatures) -> Tensor:
            hazard = cumulative(x, at)
            return hazard.sum(-1) if nodes is times else hazard @ weight

        return self._by_chunk(total, len(at), x)

    def log_likelihood(self, x: RowFeatures, rows: SurvivalData) -> float:
        """Weighted mean log-likelihood per row, c log h(t | x) - H(t | x) + H(entry | x).

        Of an event within an interval it is log(S(lower | x) - S(upper | x)) + H(entry | x); of competing
        causes the sum over causes.

        Args:
            x: encoded features of the rows, shape (n, p).
            rows: their outcome and weights.
        """
        if self.competing:
            return sum(self.of_cause(name).log_likelihood(x, rows.of_cause(name)) for name in self.causes)
        time, intervals = rows.nominal_time, rows.intervals
        within = np.zeros(len(time), dtype=bool) if intervals is None else intervals.censored
        start = time if intervals is None else np.where(within, intervals.lower, time)
        hazard = self.curves(x, start[:, None], "cumulative_hazard")[:, 0]
        log_hazard = self.curves(x, time[:, None], "log_hazard")[:, 0]
        if intervals is not None and within.any():
            end = self.curves(x[torch.as_tensor(within)], intervals.upper[within, None], "cumulative_hazard")
            # Whoever lived until the lower bound has the event by the upper one.
            chance = -np.expm1(hazard[within] - np.maximum(end[:, 0], hazard[within]))
            with np.errstate(divide="ignore"):  # a curve that is flat between the bounds: -inf
                log_hazard[within] = np.log(chance)
        if rows.begin.any():
            hazard = hazard - self.curves(x, rows.begin[:, None], "cumulative_hazard")[:, 0]
        return metrics.log_likelihood(rows.event, hazard, log_hazard, sample_weight=rows.uneven_weight)

    def leaf_probability(self, x: RowFeatures) -> FloatArray:
        """Probability of each group, shape (n, L), in the order of their numbers."""
        found = self._by_chunk(lambda x: self.module.log_leaf_probability(x).exp().mT, self._n_leaves, x)
        return np.asarray(found[:, self.group_numbers.argsort()])

    def leaf(self, x: RowFeatures) -> IntArray:
        """Leaf of each row's most probable path, 0 .. L - 1 from left to right, shape (n,)."""
        return self._by_chunk(self.module.apply_leaf, self._n_leaves, x).astype(np.int64)

    def apply(self, x: RowFeatures) -> IntArray:
        """Group of each row, the number of the leaf of its most probable path, 1 .. L, shape (n,)."""
        return self.group_numbers[self.leaf(x)]

    def group_of(self, frame: pd.DataFrame) -> IntArray:
        """:meth:`apply` to rows that were read and are not encoded yet."""
        return self.apply(self.encode(frame))

    def numbered(self, x: RowFeatures, weight: FloatArray, end: float) -> FittedTree:
        """The tree with its groups numbered by prognosis, 1 for the longest survival.

        That is the weighted mean over the rows of a group of :meth:`mean_survival`; groups without rows come
        last, and those of like survival in the order of the leaves.

        Args:
            x: encoded features of the training rows, shape (n, p).
            weight: of the rows, >= 0, shape (n,).
            end: of the follow-up, > 0.
        """
        if self._n_leaves == 1:
            return replace(self, groups=np.ones(1, dtype=np.int64))
        leaf, weight = self.leaf(x), weight / weight.max()  # sums of the largest weights are not finite
        mean = self.mean_survival(x, end)
        total, count = (np.bincount(leaf, part, self._n_leaves) for part in (weight * mean, weight))
        level = np.where(count > 0, total / np.where(count > 0, count, 1.0), -1.0)
        groups = np.empty(self._n_leaves, dtype=np.int64)
        groups[np.argsort(-level.round(PROGNOSIS_DIGITS), kind="stable")] = np.arange(1, self._n_leaves + 1)
        return replace(self, groups=groups)

    def mean_survival(self, x: RowFeatures, end: float) -> FloatArray:
        """Mean of each row's predicted (event-free) survival from zero to a time, > 0, shape (n,)."""
        times = end * (np.arange(_PROGNOSIS_TIMES) + 0.5) / _PROGNOSIS_TIMES
        return np.asarray(self.curves(x, times).astype(np.float64).mean(axis=1))

    def quantile(
        self, x: RowFeatures, q: float, after: FloatArray | None = None, extrapolate: bool = False
    ) -> FloatArray:
        """Time by which a share ``q`` has had the event, shape (n,); +inf if that is never so.

        With ``after`` (n,) it is counted from there, of those who are alive then. A time beyond the last
        training event is +inf unless ``extrapolate``.
        """
        rows = (x,) if after is None else (x, torch.as_tensor(after).to(x.device, x.dtype))
        time = self._by_chunk(lambda x, after=None: self.quantiles(x, q, after), _QUANTILE_ELEMENTS, *rows)
        if extrapolate or not self.event_times.size:
            return time
        last = self.event_times[-1] * (1 + 8 * np.finfo(time.dtype).eps)  # an inverse rounds
        return np.where(time + (0.0 if after is None else after) > last, np.inf, time)

    def quantiles(self, x: RowFeatures, q: float, after: Tensor | None = None) -> Tensor:
        """:meth:`quantile` as a tensor, with a graph."""
        if len(self.hazards) == 1:
            return self.distributions(x)[0].quantile(q, after=after)
        return self._quantile_of_any(x, check_quantile(q), after)

    def _quantile_of_any(self, x: RowFeatures, q: float, after: Tensor | None) -> Tensor:
        """Of the time to any of several events."""
        causes, scale = self.distributions(x), self.module.log_time_scale

        def curve(kind: Literal["cumulative_hazard", "log_hazard"], time: Tensor) -> Tensor:
            return _of_any_event(causes, time, kind)

        target = torch.full((len(x), 1), -math.log1p(-q), device=x.device, dtype=x.dtype)
        if after is not None:
            target = target + curve("cumulative_hazard", after[:, None])
        log_time = invert(
            lambda y: curve("cumulative_hazard", (y + scale).exp()),
            lambda y: curve("log_hazard", (y + scale).exp()) + scale,
            target,
        )
        for module in self.hazards.values():
            horizon = module.family.horizon(log_time)
            if horizon is not None:
                log_time = torch.where(log_time > horizon, torch.inf, log_time)
        time = torch.exp(log_time + scale).squeeze(-1)
        return time if after is None else (time - after).clamp(min=0)

    def restricted_mean(self, x: RowFeatures, tau: float, after: FloatArray | None = None) -> FloatArray:
        """Area under the survival curve from 0 to ``tau``, shape (n,); +inf if the mean does not exist.

        With ``after`` (n,) it is that of the time left to those who are alive then.
        """
        rows = (x,) if after is None else (x, torch.as_tensor(after).to(x.device, x.dtype))
        elements = _QUANTILE_ELEMENTS
        if len(self.hazards) > 1:
            last = check_truncation(tau) + (0.0 if after is None else float(after.max(initial=0.0)))
            elements = len(panels_before(self.panels, last)) * NODES
        return self._by_chunk(lambda x, after=None: self.restricted_means(x, tau, after), elements, *rows)

    def restricted_means(self, x: RowFeatures, tau: float, after: Tensor | None = None) -> Tensor:
        """:meth:`restricted_mean` as a tensor, with a graph."""
        if len(self.hazards) == 1:
            return self.distributions(x)[0].restricted_mean(tau, after=after)
        if math.isinf(check_truncation(tau)):
            raise ConfigError("the mean of the time to any of several causes needs a finite tau")
        last = tau + (0.0 if after is None else float(after.max()) if len(after) else 0.0)
        edges = torch.as_tensor(np.r_[0.0, np.exp(panels_before(self.panels, last)), last]).to(
            x.device, x.dtype
        )
        points, weights = (torch.as_tensor(part).to(x.device, x.dtype) for part in (PLACES, WEIGHTS))
        start = edges.new_zeros(len(x), 1) if after is None else after[:, None]
        own = edges.clamp(min=start, max=start + tau)  # panels outside a row's window have no width
        half = own.diff(dim=1) / 2
        at = (own[:, :-1, None] + half[..., None] * (1 + points)).flatten(1)
        curves = self.function("survival")(x, torch.cat([start, at], 1))
        area: Tensor = (curves[:, 1:].unflatten(1, (-1, NODES)) @ weights * half).sum(1)
        return area / curves[:, 0]

    @property
    def _n_leaves(self) -> int:
        return len(self.module.topology.leaves)

    def _by_chunk(
        self, function: Callable[..., Tensor], row_elements: int, *rows: RowFeatures
    ) -> npt.NDArray[Any]:
        """Apply a function of tensors of the same rows chunk by chunk, within the memory budget."""
        x = rows[0]
        if self.prediction == "mixture":
            row_elements *= self._n_leaves
        size = at_once(max(row_elements, x.shape[1]), _CHUNK_ELEMENTS)
        out = np.empty(0)
        with torch.no_grad(), threads_for(len(x) * row_elements, _FEW_ELEMENTS):
            for start in range(0, max(1, len(x)), size):
                part = function(*(tensor[start : start + size] for tensor in rows)).cpu().numpy()
                if start == 0:
                    check_room(len(x), part[0].size if len(part) else 0)
                    # The result is filled in place: a list of parts would need its memory twice.
                    out = np.empty((len(x), *part.shape[1:]), dtype=part.dtype)
                out[start : start + size] = part
        return out

    def shares_slopes(self, leaves: Sequence[int] | None = None) -> bool:
        """Whether some leaves, all by default, have the same slopes, those of the shapes included.

        Args:
            leaves: by node.
        """
        for module in self.hazards.values():
            parameters = module.leaf_parameters(leaves)
            # Leaves come before the features, and before the shapes of which each has slopes.
            for slopes, axis in ((parameters.slope, -2), (parameters.shape_slope, -3)):
                values = slopes.detach().cpu().double().numpy()
                if values.size and np.ptp(values, axis=axis).max() > _SAME_SLOPES:
                    return False
        return True


def sum_rule(times: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights (n_nodes,) that sum a smooth function over increasing times > 0, (n_times,).

    Up to 4096 times they are the times themselves, of weight one. Beyond, the times are cut into 64 pieces of
    equal numbers, and on each the function is replaced by the polynomial of degree 7 in log t through eight
    Chebyshev nodes; the weights are the sums of its Lagrange polynomials over the times of the piece, so that
    these polynomials are summed exactly. Cumulative hazards of smooth families are summed to about seven
    digits so, those of the families with steps to four (``tests/fitted/test_sum_rule.py``).

    References:
        Trefethen (2019), Approximation Theory and Approximation Practice, chapter 5.

    >>> import numpy as np
    >>> times = np.linspace(0.01, 3.0, 100_000)
    >>> nodes, weights = sum_rule(times)
    >>> nodes.size, bool(abs(np.sqrt(nodes) @ weights / np.sqrt(times).sum() - 1) < 1e-7)
    (512, True)
    """
    if times.size <= MOST_TERMS:
        return times, np.ones_like(times)
    angles = (2 * np.arange(_PIECE_NODES) + 1) * np.pi / (2 * _PIECE_NODES)
    # Inverse of the values of the Chebyshev polynomials at their nodes, by their discrete orthogonality.
    inverse = np.cos(np.outer(angles, np.arange(_PIECE_NODES))) * (2 / _PIECE_NODES)
    inverse[:, 0] /= 2
    nodes, weights = [], []
    for piece in np.array_split(np.log(times), _PIECES):
        middle, half = (
            0.5 * (piece[-1] + piece[0]),
            0.5 * (piece[-1] - piece[0]) or 1.0,
        )  # logarithms may be equal
        place = np.arccos(np.clip((piece - middle) / half, -1.0, 1.0))
        sums = np.cos(np.arange(_PIECE_NODES)[:, None] * place).sum(axis=1)
        nodes.append(np.exp(middle + half * np.cos(angles)))
        weights.append(inverse @ sums)
    order = np.argsort(joined := np.concatenate(nodes))
    return joined[order], np.concatenate(weights)[order]


def _of_any_event(
    causes: list[SurvivalDistribution], at: Tensor, kind: CurveKind | Literal["log_hazard"]
) -> Tensor:
    """Curves of any event, to which the hazards of causes add up, at times (T,) or (n, T)."""
    # As (1, T) it is a grid whatever the number of rows.
    at = at[None] if at.ndim == 1 else at
    if len(causes) == 1:
        curves: Tensor = getattr(causes[0], kind)(at)
        return curves
    part = "hazard" if "hazard" in kind and kind != "cumulative_hazard" else "cumulative_hazard"
    summed = torch.stack([getattr(cause, part)(at) for cause in causes]).sum(0)
    if kind == "survival":
        return torch.exp(-summed)
    return summed.log() if kind == "log_hazard" else summed
