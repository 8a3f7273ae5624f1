"""Predictions of trees and modules that return distributions of event times, one for each cause."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from typing_extensions import override

from sstorch._types import FloatArray
from sstorch.base import CurveKind
from sstorch.checks import check_share, check_truncation, rows_text
from sstorch.data import SurvivalData
from sstorch.exceptions import ConfigError, DataError
from sstorch.fitted.incidence import (
    NODES,
    PLACES,
    WEIGHTS,
    cumulative_incidence,
    log_time_panels,
    panels_before,
    panels_from,
)
from sstorch.memory import check_room
from sstorch.nn import HazardFamily, SurvivalDistribution, competing_nll
from sstorch.nn.hazards.numeric import invert

# The name of the only hazard where causes do not compete.
EVENT = "event"
# What one row of a quantile or of a restricted mean counts: it takes 512 elements, but many small operations,
# which fewer rows at a time would repeat too often.
_QUANTILE_ELEMENTS = 32
# Sums over more times than the first are taken at two nodes in each of so many parts, equal in log time.
MOST_TERMS, _PARTS = 4096, 256

Outcome = dict[str, Tensor]
Kind = CurveKind | Literal["log_hazard"]


def outcome_of_rows(data: SurvivalData, device: torch.device) -> Outcome:
    """Arguments of ``nll`` or ``competing_nll`` for rows, (n,) each."""
    begin = data.begin
    parts: dict[str, npt.NDArray[Any]] = {"time": data.nominal_time, "event": data.event}
    if data.intervals is not None:
        begin, parts = data.entry, {"lower": data.intervals.lower, "upper": data.intervals.upper}
    elif data.causes is not None:
        parts = {"time": data.nominal_time, "cause": data.cause}
    if begin.any():
        parts["entry"] = begin
    return {name: torch.as_tensor(part, device=device) for name, part in parts.items()}


def in_chunks(function: Callable[..., Tensor], size: int, *rows: Any) -> npt.NDArray[Any]:
    """Apply a function of tensors of the same rows to ``size`` rows at a time, without a graph."""
    n_rows, out = len(rows[0]), np.empty(0)
    with torch.no_grad():
        for start in range(0, max(1, n_rows), size):
            part = function(*(each[start : start + size] for each in rows)).cpu().numpy()
            if np.isnan(part).any():
                raise DataError("predictions are NaN: check the parameters of the model and X")
            if start == 0:
                check_room(n_rows, part[0].size if len(part) else 0)
                # The result is filled in place: a list of parts would need its memory twice.
                out = np.empty((n_rows, *part.shape[1:]), dtype=part.dtype)
            out[start : start + size] = part
    return out


class FittedModel(ABC):
    """Predictions for encoded rows ``x`` (n, ...) from one distribution of event times for each cause."""

    # Times are in original units. The likelihood is a product over causes, in each of which events of the
    # others are censored (Prentice et al., 1978, Biometrics 34, 541-554).

    event_times: FloatArray
    causes: tuple[str, ...]  # names; ``("event",)`` where causes do not compete
    like: Tensor  # on the device and of the type of the parameters

    @abstractmethod
    def distributions(self, x: Any) -> list[SurvivalDistribution]:
        """Distribution of the time to each cause, as if the others did not exist."""

    @abstractmethod
    def _by_chunk(self, function: Callable[..., Tensor], row_elements: int, *rows: Any) -> npt.NDArray[Any]:
        """Apply a function of tensors of the same rows :func:`in_chunks`."""

    @property
    def competing(self) -> bool:
        """Whether causes compete."""
        return self.causes != (EVENT,)

    def curves(self, x: Any, times: FloatArray, kind: Kind = "survival") -> FloatArray:
        """Curves of any event of rows (n, ...) at times (n_times,), or (n, n_times) with a row for each."""
        at = torch.as_tensor(times, device=self.like.device)
        rows = (x, at) if at.ndim == 2 else (x,)
        return self._by_chunk(lambda x, at=at: self.function(kind)(x, at), at.shape[-1], *rows)

    def function(self, kind: Kind) -> Callable[[Any, Tensor], Tensor]:
        """Curves of encoded rows at times, (T,) or (n, T); of competing causes those of any event."""
        return lambda x, at: _of_any_event(self.distributions(x), at, kind)

    def incidence(self, x: Any, times: FloatArray, after: float = 0.0) -> FloatArray:
        """Cumulative incidence of each of K >= 1 causes, (n, K, n_times), by times counted from `after`."""
        if not self.competing and not after:
            return 1.0 - self.curves(x, times)[:, None]
        if not self.competing:
            hazard = self.curves(x, np.append(0.0, times) + after, "cumulative_hazard")[:, None]
            return -np.expm1(hazard[..., :1] - hazard[..., 1:])
        at = torch.as_tensor(after + times, device=self.like.device)
        edges = panels_before(panels_from(self.panels_for(x), after), after + float(times.max(initial=0.0)))

        panels = torch.as_tensor(edges, device=at.device)
        elements = len(self.causes) * (len(edges) + len(times)) * NODES
        return self._by_chunk(lambda x: self.incidence_and_survival(x, at, panels, after)[0], elements, x)

    def incidence_and_survival(
        self, x: Any, times: Tensor, edges: Tensor, after: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Incidences (n, K, n_times) and survival (n, n_times) as tensors: :func:`cumulative_incidence`."""
        causes = self.distributions(x)

        def curves(at: Tensor) -> tuple[Tensor, Tensor]:
            log_hazards = torch.stack([cause.log_hazard(at[None]) for cause in causes], 1)
            return log_hazards, _of_any_event(causes, at, "cumulative_hazard")

        return cumulative_incidence(curves, times, edges, after)

    def losses(self, x: Any, outcome: Outcome) -> Tensor:
        """Negative log-likelihood of encoded rows, (n,), in original units."""
        parts = self.distributions(x)
        if self.competing:
            return competing_nll(dict(enumerate(parts, 1)), **outcome, reduction="none")
        return parts[0].nll(**outcome, reduction="none")

    def log_likelihood(self, x: Any, rows: SurvivalData) -> float:
        """Weighted mean log-likelihood per row, in original units."""
        outcome = outcome_of_rows(rows, self.like.device)

        def losses(x: Any, *parts: Tensor) -> Tensor:
            return self.losses(x, dict(zip(outcome, parts, strict=True)))

        found, weight = self._by_chunk(losses, 1, x, *outcome.values()), rows.sample_weight
        weight = weight / weight.max()  # sums of the largest ones are not finite
        return -float(weight @ np.where(weight > 0, found, 0.0) / weight.sum())

    @abstractmethod
    def panels_for(self, x: Any) -> FloatArray:
        """Log times between which the hazards of rows are smooth, the edges of a quadrature over time."""

    def risk(self, x: Any, times: FloatArray) -> FloatArray:
        """Sum of the cumulative hazard over increasing times > 0, (n,); over many to about six digits."""
        nodes, sizes = times, np.ones_like(times)
        if times.size > MOST_TERMS:
            ends = np.geomspace(times[0], times[-1], _PARTS)[1:]
            parts = np.split(times, np.unique(np.searchsorted(times, ends)))
            # Two nodes with the mean and the variance of the times of a part.
            mean, error, half = np.array([(part.mean(), part.std(), part.size / 2) for part in parts]).T
            nodes = np.concatenate([np.maximum(mean - error, times[0]), mean + error])
            sizes = np.concatenate([half, half])
        at, weight = torch.as_tensor(nodes, device=self.like.device), torch.as_tensor(sizes).to(self.like)
        return self._by_chunk(lambda x: self.function("cumulative_hazard")(x, at) @ weight, len(at), x)

    def quantile(
        self, x: Any, q: float, after: FloatArray | None = None, extrapolate: bool = False
    ) -> FloatArray:
        """Time from ``after`` (n,) by which a share ``q`` has had the event, (n,); +inf if never."""
        rows = (x,) if after is None else (x, torch.as_tensor(after).to(self.like))
        time = self._by_chunk(lambda x, after=None: self.quantiles(x, q, after), _QUANTILE_ELEMENTS, *rows)
        if extrapolate or not self.event_times.size:
            return time
        last = self.event_times[-1] * (1 + 8 * np.finfo(time.dtype).eps)  # an inverse rounds
        return np.where(time + (0.0 if after is None else after) > last, np.inf, time)

    def quantiles(self, x: Any, q: float, after: Tensor | None = None) -> Tensor:
        """:meth:`quantile` as a tensor, with a graph."""
        causes = self.distributions(x)
        if len(causes) == 1:
            return causes[0].quantile(q, after=after)
        target = torch.full_like(causes[0].linear[0, :, None], -math.log1p(-check_share(q, "q")))
        scale = causes[0].log_time_scale

        def curve(kind: Literal["cumulative_hazard", "log_hazard"], time: Tensor) -> Tensor:
            return _of_any_event(causes, time, kind)

        if after is not None:
            target = target + curve("cumulative_hazard", after[:, None])

        def terms(y: Tensor) -> tuple[Tensor, Tensor]:
            time = (y + scale).exp()
            return curve("cumulative_hazard", time), curve("log_hazard", time) + scale

        log_time = invert(terms, target)
        time = torch.exp(log_time + scale).squeeze(-1)
        return time if after is None else (time - after).clamp(min=0)

    def restricted_mean(self, x: Any, tau: float, after: FloatArray | None = None) -> FloatArray:
        """Area under the survival curve from 0 to ``tau``, (n,), or from ``after`` (n,); +inf if infinite."""
        end = check_truncation(tau) + (0.0 if after is None else float(after.max(initial=0.0)))
        rows: tuple[Any, ...] = (x,)
        same = given = None if after is None else torch.as_tensor(after).to(self.like)
        if given is not None and len(given):
            rows, same = ((x,), given[:1]) if bool((given == given[0]).all()) else ((x, given), None)
        summed = math.isfinite(end) and (len(rows) == 1 or self.competing)
        elements = len(panels_before(self.panels_for(x), end)) * NODES if summed else _QUANTILE_ELEMENTS
        return self._by_chunk(lambda x, after=same: self.restricted_means(x, tau, after), elements, *rows)

    def restricted_means(self, x: Any, tau: float, after: Tensor | None = None) -> Tensor:
        """:meth:`restricted_mean` as a tensor, with a graph; ``after`` (1,) is that of all rows."""
        # Sums over times that all rows share have an error below 1e-9, or 1e-7 if few are alive at `after`.
        causes = self.distributions(x)
        shared = math.isfinite(check_truncation(tau)) and (after is None or len(after) == 1)
        if len(causes) == 1 and not shared:
            return causes[0].restricted_mean(tau, after=None if after is None else after.expand(len(x)))
        if math.isinf(tau):
            raise ConfigError("the mean of the time to any of several causes needs a finite tau")
        last = tau + (0.0 if after is None else float(after.max()) if len(after) else 0.0)
        first = float(after) if after is not None and len(after) == 1 else 0.0
        inner = np.exp(panels_before(panels_from(self.panels_for(x), first), last))
        edges = torch.as_tensor(np.r_[first, inner, last]).to(self.like)
        points, weights = (torch.as_tensor(part).to(self.like) for part in (PLACES, WEIGHTS))
        start = edges.new_zeros(1, 1) if after is None else after[:, None]
        own = edges.clamp(min=start, max=start + tau)  # panels outside a row's window have no width
        half = own.diff(dim=1) / 2
        at = torch.cat([start, (own[:, :-1, None] + half[..., None] * (1 + points)).flatten(1)], 1)
        curves = _of_any_event(causes, at, "survival")
        area: Tensor = (curves[:, 1:].unflatten(1, (-1, NODES)) @ weights * half).sum(1)
        return area / curves[:, 0]


@dataclass(frozen=True)
class FittedModule(FittedModel):
    """A trained module; its rows ``x`` are tensors or arrays (n, ...)."""

    module: nn.Module
    causes: tuple[str, ...]
    event_times: FloatArray
    batch_size: int
    like: Tensor

    @override
    def panels_for(self, x: Any) -> FloatArray:
        with torch.no_grad():
            found = self.distributions(x[:1])
        return panels_of(((each.family, each.log_time_scale) for each in found), self.event_times)

    @override
    def distributions(self, x: Any) -> list[SurvivalDistribution]:
        found = self.module(self._tensor(x))
        parts = [found]
        if self.competing:  # by name, or by number
            given = {str(key): part for key, part in found.items()} if isinstance(found, Mapping) else {}
            keys = [name if name in given else str(number) for number, name in enumerate(self.causes, 1)]
            parts = [given.get(key) for key in keys] if given.keys() == set(keys) else [None]
        if not all(isinstance(part, SurvivalDistribution) for part in parts):
            each = f" for each cause, {', '.join(self.causes)}, by name" if self.competing else ""
            got = [*found] if isinstance(found, Mapping) else type(found).__name__
            raise ConfigError(
                f"module must return a SurvivalDistribution{each}, got {got}: end it with HazardHead or "
                "SoftTree"
            )
        for part in parts:
            if part.batch_shape or part.n_rows != len(x):
                raise ConfigError(f"module must return distributions of the {len(x)} given rows, got {part}")
        return parts

    def _tensor(self, x: Any) -> Tensor:
        """Rows on the device, floating point values in the dtype of the module."""
        tensor = x if isinstance(x, Tensor) else torch.tensor(np.asarray(x))
        if not tensor.is_floating_point():
            return tensor.to(self.like.device)
        if not bool((finite := tensor.isfinite()).all()):
            bad = ~finite.reshape(len(finite), -1).all(1).cpu().numpy()
            raise DataError(f"X must be finite, got NaN or infinity in {rows_text(bad)} of a batch")
        return tensor.to(self.like)

    @override
    def _by_chunk(self, function: Callable[..., Tensor], row_elements: int, *rows: Any) -> npt.NDArray[Any]:
        return in_chunks(function, self.batch_size, *rows)


def panels_of(parts: Iterable[tuple[HazardFamily, Tensor]], event_times: FloatArray) -> FloatArray:
    """Edges of the panels, log times, between which hazards of families at log time scales are smooth."""
    # Families without constants know no device.
    bends = [family.corners().detach().cpu() + scale.detach().cpu() for family, scale in parts]
    corners = np.concatenate([each.double().exp().numpy().ravel() for each in bends])
    return log_time_panels(event_times, corners)


def _of_any_event(causes: list[SurvivalDistribution], at: Tensor, kind: Kind) -> Tensor:
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
