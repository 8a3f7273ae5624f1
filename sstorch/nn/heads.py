"""Modules that return distributions of event times: their common base, and the head of a network."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn

from sstorch.checks import check_integer
from sstorch.data.design_matrix import DesignMatrix, RowFeatures
from sstorch.exceptions import ConfigError, DataError
from sstorch.nn.distribution import SurvivalDistribution
from sstorch.nn.functional import check_values
from sstorch.nn.hazards.base import HazardFamily
from sstorch.nn.hazards.registry import make_family
from sstorch.nn.leaves import Leaf, LeafParameters

RowFeaturesT = TypeVar("RowFeaturesT", Tensor, DesignMatrix, RowFeatures)


class DistributionModule(nn.Module, ABC):
    """Base of modules that map features of rows to a :class:`SurvivalDistribution`.

    `family` lacks constants of training rows, such as knots, until :meth:`initialize`.
    """

    log_time_scale: Tensor  # log of the unit of model time, (*batch_shape,)

    def __init__(
        self,
        in_features: int,
        family: str | HazardFamily,
        batch_shape: tuple[int, ...],
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.in_features = check_integer("in_features", in_features, 0)
        self.batch_shape = tuple(batch_shape)
        scale = torch.zeros(self.batch_shape, device=device, dtype=dtype)
        self.family = make_family(family).expand(self.batch_shape).to(device=scale.device, dtype=scale.dtype)
        self.register_buffer("log_time_scale", scale)

    @abstractmethod
    def _leaves(self) -> Iterable[Leaf]:
        """Modules with the parameters of components."""

    @torch.no_grad()
    def initialize(
        self, time: Tensor, event: Tensor, *, entry: Tensor | None = None, weight: Tensor | None = None
    ) -> Self:
        """Set what rows determine: the unit of time, constants of the family, intercepts and shapes.

        The unit is the weighted geometric mean of the times. Constants are knots, breakpoints or ends of
        intervals. Intercepts and shapes of all components are those of maximum likelihood without covariates,
        or of a life table (``logistic_hazard``). Gates and slopes keep their values. Parameters stay the same
        objects, but can change in size: there are no more intervals than distinct event times.

        Arguments have shape (N,), as in :meth:`SurvivalDistribution.nll`. Returns the module itself.

        Raises:
            DataError: shapes differ, or values are out of range.
        """
        time = torch.as_tensor(time)
        begin = torch.zeros_like(time) if entry is None else entry
        weights = torch.ones_like(time) if weight is None else weight
        given = {"time": time, "event": event, "entry": begin, "weight": weights}
        # In double precision on the CPU, which places knots and checks values.
        rows = {name: torch.as_tensor(value).to("cpu", torch.float64) for name, value in given.items()}
        for name, own in rows.items():
            if own.ndim != 1 or own.shape != rows["time"].shape:
                raise DataError(f"`{name}` must have one value a row, like `time`, got {tuple(own.shape)}")
            check_values(own, (own >= 0) & own.isfinite(), name, "finite and at least 0")
        check_values(rows["event"], rows["event"] <= 1, "event", "0 or 1")
        # Rows without weight or follow-up determine nothing.
        counts = (rows["weight"] > 0) & (rows["time"] > rows["entry"])
        if not bool(counts.any()):
            raise DataError("`time` must be above 0 and `entry` in some row with weight, got none")
        last, events, begin, weights = (part[counts][None] for part in rows.values())
        scale = (weights * last.log()).sum(-1) / weights.sum()
        log_entry = None if entry is None else begin.log() - scale
        family = copy.deepcopy(self.family).to("cpu", torch.float64)
        family = family.prepare(last.log() - scale, events, weights, scale)
        intercept, shape = family.start(last.log() - scale, events, weights, log_entry)
        like = self.log_time_scale
        constants = {name: value.to(like) for name, value in family.select(0).constants().items()}
        self.family = self.family.with_constants(constants, ()).expand(self.batch_shape)
        self.log_time_scale.copy_(scale[0])
        for leaf in self._leaves():
            leaf.resize(shape.shape[-1])
            leaf.intercept.copy_(intercept[0])
            leaf.shape.copy_(shape[0])
        return self

    @property
    def initialized(self) -> bool:
        """False as long as the unit of time, intercepts and shapes are those of the constructor, zero."""
        leaves = [part for leaf in self._leaves() for part in (leaf.intercept, leaf.shape)]
        return any(bool(part.any()) for part in [self.log_time_scale, *leaves])

    @property
    def n_problems(self) -> int:
        """Number of problems in the batch."""
        return math.prod(self.batch_shape)

    @property
    def prepared_family(self) -> HazardFamily:
        """The family; ConfigError if it needs constants of training rows and has none."""
        if not self.family.prepared:
            raise ConfigError(
                f"{self.family.name} must have constants of training rows, such as knots, got none: call "
                "initialize(time, event) of the module before training"
            )
        return self.family

    def _features(self, x: RowFeaturesT, least: int, most: int | None = None) -> RowFeaturesT:
        """Features of rows in the precision of the module, checked: `least` to `most` of them."""
        most = most or least
        if not isinstance(x, Tensor | DesignMatrix) or len(x.shape) < 2 or not least <= x.shape[-1] <= most:
            width = least if least == most else f"{least} to {most}"
            shape = tuple(getattr(x, "shape", ()))
            raise ConfigError(
                f"`x` must be a tensor of rows with {width} features, got {type(x).__name__} of shape {shape}"
            )
        wanted = self.log_time_scale.dtype
        if x.dtype == wanted:
            return x
        if isinstance(without_autocast(x.device.type), nullcontext):
            raise ConfigError(
                f"`x` must be {wanted}, as the module is, got {x.dtype}: use x.to({wanted}) or "
                f"module.to({x.dtype})"
            )
        return x.to(x.device, wanted)

    def _distribution(
        self,
        log_weight: Tensor | Callable[[], Tensor],
        leaves: LeafParameters,
        x: RowFeatures,
        component: Callable[[], Tensor] | None = None,
    ) -> SurvivalDistribution:
        family, scale = self.prepared_family, self.log_time_scale
        linear, shape = leaves.linear_predictor(x), leaves.shape_parameters(x)
        return SurvivalDistribution(family, log_weight, linear, shape, scale, component=component)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *others: Any) -> None:
        # The family first: its constants decide how many shape parameters leaves have.
        self.family._load_from_state_dict(state_dict, f"{prefix}family.", {}, True, [], [], [])
        for leaf in self._leaves():
            leaf.resize(len(self.family.shape_names))
        super()._load_from_state_dict(state_dict, prefix, *others)


def without_autocast(device_type: str) -> AbstractContextManager[None]:
    """A context in which products of a likelihood keep their digits."""
    if torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()


class HazardHead(DistributionModule):
    """Last layer of a network: hazards linear in features z, as a :class:`SurvivalDistribution`.

    Each component has a linear predictor g, linear in z, and shape parameters, constant or linear in z as the
    family says (``ancillary``). Log weights of several components are linear in z, normalised by softmax.

    Args:
        in_features: k, number of features.
        family: name of a hazard family, or a family.
        n_components: number of components, L.
        device: device of the parameters.
        dtype: dtype of the parameters; None for torch's default.

    Attributes:
        leaf: parameters of the components, with leading dimension L.
        gate: layer of the log weights; None for one component.

    Raises:
        ConfigError: an argument is out of range.

    >>> head = HazardHead(16, "log_logistic", n_components=3)
    >>> head(torch.zeros(5, 16)).survival(torch.tensor([1.0, 2.0])).shape
    torch.Size([5, 2])
    """

    def __init__(
        self,
        in_features: int,
        family: str | HazardFamily = "weibull",
        n_components: int = 1,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, family, (), device, dtype)
        n = check_integer("n_components", n_components, 1)
        self.leaf = Leaf(in_features, self.family, (n,), device=device, dtype=dtype)
        self.gate = nn.Linear(in_features, n, device=device, dtype=dtype) if n > 1 else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw slopes and gates as :class:`torch.nn.Linear` does; intercepts and shapes are 0."""
        self.leaf.reset_parameters()
        if self.gate is not None:
            self.gate.reset_parameters()

    def forward(self, z: Tensor) -> SurvivalDistribution:
        """Distribution of rows by their features, shape (N, k).

        Raises:
            ConfigError: ``z`` has another shape or dtype, or the family needs :meth:`initialize`.
        """
        z = self._features(z, self.in_features)
        with without_autocast(z.device.type):
            logits = z.new_zeros(len(z), 1) if self.gate is None else self.gate(z)
            log_weight = logits.log_softmax(-1).mT
            return self._distribution(log_weight, LeafParameters.of(self.leaf), z)

    def _leaves(self) -> Iterable[Leaf]:
        return (self.leaf,)

    def extra_repr(self) -> str:
        """Settings shown by ``repr``."""
        n_components = len(self.leaf.intercept)
        return f"in_features={self.in_features}, family={self.family.name}, n_components={n_components}"
