"""The soft survival tree: soft gates above, a hazard family in the leaves."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal, Self, TypeVar, cast, get_args

import torch
from torch import Tensor, nn

from sstorch.checks import check_choice, check_integer
from sstorch.data.design_matrix import DesignMatrix, RowFeatures
from sstorch.exceptions import ConfigError, DataError
from sstorch.nn.distribution import SurvivalDistribution
from sstorch.nn.functional import check_values
from sstorch.nn.hazards.base import HazardFamily
from sstorch.nn.hazards.registry import make_family
from sstorch.nn.leaves import Leaf, LeafParameters
from sstorch.nn.routing import (
    Gate,
    GateParameters,
    Topology,
    log_path_probability,
    most_probable_leaf,
    visits,
)

Start = Literal["random", "zeros"]
RowFeaturesT = TypeVar("RowFeaturesT", Tensor, DesignMatrix, RowFeatures)


class SoftTree(nn.Module):
    """Full binary tree of soft multivariate splits with parametric hazards in the leaves.

    It maps features of rows to a :class:`SurvivalDistribution`: the mixture of the leaves, weighted by the
    probabilities of their paths. Every parameter has the leading ``batch_shape``; an element of the batch is
    called a *problem*. There is one module per node; ``requires_grad_`` selects the trained nodes.

    Args:
        in_features: p, number of features of the leaves, the last of the given features.
        depth: 0 (one leaf, a plain parametric model) to 6.
        family: name of a hazard family, or a family. It lacks constants of training rows, such as knots,
            until :meth:`initialize`.
        router: module that maps features, shape (N, p), to log weights of the leaves, shape (N, L), instead
            of linear gates; constants a row do not matter, as before a softmax. ``depth`` has no effect then,
            and there are as many leaves as weights. What needs linear gates is not supported: training by
            decomposition, rules, code.
        batch_shape: leading shape of all parameters.
        device: device of the parameters.
        dtype: dtype of the parameters; None for torch's default.
        n_gate_features: number of features of the gates, the first of the given features; None for p.
        start: ``"random"`` draws gates and slopes (:meth:`reset_parameters`); ``"zeros"`` is for callers that
            set all parameters: gates of zero between equal leaves have no gradient and would stay.

    Features are given as a tensor, shape (N, q) if shared by all problems or (*batch_shape, N, q), or as a
    :class:`DesignMatrix`. Gates and leaves use the same features, q = p, or some of them. Times are in
    original units; internally, log time is shifted by ``log_time_scale``.

    Raises:
        ConfigError: an argument is out of range, or the router does not map (N, p) to (N, L).

    References:
        Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis".

    >>> tree = SoftTree(4, depth=2, family="weibull")
    >>> x, time = torch.rand(32, 4), torch.rand(32) + 0.1
    >>> optimizer = torch.optim.Adam(tree.initialize(time, torch.ones(32)).parameters(), 0.02)
    >>> loss = tree(x).nll(time, torch.ones(32))
    >>> loss.backward()
    >>> tree(x).quantile(0.5).shape
    torch.Size([32])
    """

    log_time_scale: Tensor  # log of the unit of model time, (*batch_shape,)

    def __init__(
        self,
        in_features: int,
        depth: int = 2,
        family: str | HazardFamily = "log_logistic",
        *,
        router: nn.Module | None = None,
        batch_shape: tuple[int, ...] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        n_gate_features: int | None = None,
        start: Start = "random",
    ) -> None:
        check_choice(start, "start", get_args(Start))
        super().__init__()
        self.in_features = check_integer("in_features", in_features, 0)
        self.batch_shape = tuple(batch_shape)
        scale = torch.zeros(self.batch_shape, device=device, dtype=dtype)
        self.family = make_family(family).expand(self.batch_shape).to(device=scale.device, dtype=scale.dtype)
        self.register_buffer("log_time_scale", scale)
        self.n_gate_features = in_features if n_gate_features is None else n_gate_features
        # Some of the features that were given for gates alone may be those of leaves, too.
        self._most_features = in_features + (n_gate_features or 0)
        self.router, self._topology = router, Topology(depth)
        kind: dict[str, Any] = {"device": scale.device, "dtype": scale.dtype}
        branches, leaves = self._topology.branches, self._topology.leaves
        if router is not None:
            branches, leaves = range(0), range(1, self._n_weights(router) + 1)
        gates = {str(n): Gate(self.n_gate_features, self.batch_shape, **kind) for n in branches}
        self.gates = nn.ModuleDict(gates)
        self.leaves = nn.ModuleDict(
            {str(n): Leaf(in_features, self.family, self.batch_shape, **kind) for n in leaves}
        )
        if start == "random":
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw gates and slopes as :class:`torch.nn.Linear` does; intercepts and shapes are 0.

        A router and a family keep parameters of their own.
        """
        for node in (*self.gates.values(), *self.leaves.values()):
            cast(Gate | Leaf, node).reset_parameters()

    @torch.no_grad()
    def initialize(
        self, time: Tensor, event: Tensor, *, entry: Tensor | None = None, weight: Tensor | None = None
    ) -> Self:
        """Set what rows determine: the unit of time, constants of the family, intercepts and shapes.

        The unit is the weighted geometric mean of the times. Constants are knots, breakpoints or ends of
        intervals. Intercepts and shapes of all leaves are those of maximum likelihood without covariates,
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

    @property
    def topology(self) -> Topology:
        """Numbers of the nodes.

        Raises:
            ConfigError: a router takes the place of the gates.
        """
        if self.router is not None:
            raise ConfigError(
                f"the tree must have linear gates for this, got the router {type(self.router).__name__}: use "
                "router=None, or train it by a torch optimizer"
            )
        return self._topology

    def forward(self, x: RowFeatures) -> SurvivalDistribution:
        """Mixture of the leaves, each at the probability of its path.

        Args:
            x: features, shape (N, p) or (*batch_shape, N, p).

        Raises:
            ConfigError: ``x`` has another shape or dtype, or the family needs :meth:`initialize`.
        """
        x = self._features(x)
        device = x.device.type
        with torch.autocast(device, enabled=False) if _autocasts(device) else nullcontext():
            family, leaves = self.prepared_family, self.leaf_parameters()
            linear, shape = leaves.linear_predictor(x), leaves.shape_parameters(x)
            given = linear, shape, self.log_time_scale
            if not len(self.gates):
                weight = torch.zeros_like(linear) if self.router is None else self._routed(x)
                return SurvivalDistribution(family, weight, *given)
            logits = self.gate_logits(x)
            log_weight = partial(log_path_probability, self.topology, logits)
            component = partial(most_probable_leaf, self.topology, logits)
            return SurvivalDistribution(family, log_weight, *given, component=component)

    def _features(self, x: RowFeaturesT) -> RowFeaturesT:
        """Features of rows in the precision of the module, checked."""
        least, most = max(self.in_features, self.n_gate_features), self._most_features
        if not isinstance(x, Tensor | DesignMatrix) or len(x.shape) < 2 or not least <= x.shape[-1] <= most:
            width = least if least == most else f"{least} to {most}"
            shape = tuple(getattr(x, "shape", ()))
            raise ConfigError(
                f"`x` must be a tensor of rows with {width} features, got {type(x).__name__} of shape {shape}"
            )
        wanted = self.log_time_scale.dtype
        if x.dtype != wanted and not _autocasts(x.device.type):
            raise ConfigError(
                f"`x` must be {wanted}, as the module is, got {x.dtype}: use x.to({wanted}) or "
                f"module.to({x.dtype})"
            )
        return x if x.dtype == wanted else x.to(x.device, wanted)

    def _routed(self, x: RowFeatures) -> Tensor:
        """Log weights of the leaves by the router, (*batch_shape, L, N)."""
        assert self.router is not None
        if not isinstance(x, Tensor) or x.ndim != 2:
            raise ConfigError(
                f"`x` must be a tensor (N, {self.in_features}) for a router, got {type(x).__name__}"
            )
        weight: Tensor = self.router(x)
        return weight.to(self.log_time_scale.dtype).log_softmax(-1).mT.expand(*self.batch_shape, -1, -1)

    # ------------------------------------------------------------------ nodes

    def gate(self, node: int) -> Gate:
        """The gate of branch node ``node``."""
        return cast(Gate, self.gates[str(node)])

    def leaf(self, node: int) -> Leaf:
        """The leaf module of leaf ``node``, numbered in heap order; with a router from 1."""
        return cast(Leaf, self.leaves[str(node)])

    def gate_parameters(self, nodes: Iterable[int] | None = None) -> GateParameters:
        """Parameters of gates, all by default, in the order of ``nodes``."""
        gates = [self.gate(n) for n in (self.topology.branches if nodes is None else nodes)]
        if not gates:
            none = self.log_time_scale.new_zeros(*self.batch_shape, 0)
            return GateParameters(none[..., None].expand(*none.shape, self.n_gate_features), none)
        return GateParameters(
            torch.stack([gate.weight for gate in gates], -2), torch.stack([gate.bias for gate in gates], -1)
        )

    def leaf_parameters(self, nodes: Iterable[int] | None = None) -> LeafParameters:
        """Parameters of leaves, all by default, in the order of ``nodes``."""
        return LeafParameters.stack(self._leaves() if nodes is None else [self.leaf(n) for n in nodes])

    @torch.no_grad()
    def set_gates(self, gates: GateParameters) -> None:
        """Set the parameters of all gates, in the form of :meth:`gate_parameters`, in place."""
        for place, node in enumerate(self.topology.branches):
            gate = self.gate(node)
            gate.weight.copy_(gates.weight[..., place, :])
            gate.bias.copy_(gates.bias[..., place])

    @torch.no_grad()
    def set_leaves(self, leaves: LeafParameters) -> None:
        """Set the parameters of all leaves, in the form of :meth:`leaf_parameters`, in place.

        Slopes of shapes that are not given are zero.
        """
        for place, leaf in enumerate(self._leaves()):
            leaf.reset(leaves.intercept[..., place], leaves.shape[..., place, :])
            leaf.slope.copy_(leaves.slope[..., place, :])
            if leaf.shape_slope is not None and leaves.shape_slope.shape[-2]:
                leaf.shape_slope.copy_(leaves.shape_slope[..., place, :, :])

    # ------------------------------------------------------------------ scores

    def gate_logits(self, x: RowFeatures, nodes: Iterable[int] | None = None) -> Tensor:
        """Logits of gates, all by default, shape (*batch_shape, len(nodes), N)."""
        return self.gate_parameters(nodes).logits(x)

    def log_leaf_probability(self, x: RowFeatures, node: int = 1) -> Tensor:
        """Log probability of each leaf under ``node`` given the row is there, (*batch_shape, L', N)."""
        if self.router is not None and node == 1:
            return self._routed(x)
        logits = self.gate_logits(x, self.topology.branches_under(node))
        return log_path_probability(self.topology, logits, node)

    def apply_leaf(self, x: RowFeatures) -> Tensor:
        """Leaf on the path of highest branch probability of each row: 0 .. L - 1, (*batch_shape, N)."""
        if self.router is not None:
            return self._routed(x).argmax(-2)
        return most_probable_leaf(self.topology, self.gate_logits(x))

    def visits(self, x: RowFeatures, node: int) -> Tensor:
        """True if the path of highest branch probability of a row includes ``node``, (*batch_shape, N)."""
        return visits(self.topology, self.apply_leaf(x), node)

    # ------------------------------------------------------------------ problems of a batch

    def blank(self, depth: int, family: HazardFamily, batch_shape: tuple[int, ...]) -> SoftTree:
        """A tree with parameters of zero for the same features, on the same device and in the same dtype."""
        return SoftTree(
            self.in_features,
            depth,
            family,
            batch_shape=batch_shape,
            device=self.log_time_scale.device,
            dtype=self.log_time_scale.dtype,
            n_gate_features=self.n_gate_features,
            start="zeros",
        )

    @torch.no_grad()
    def select(self, problems: Tensor | int) -> SoftTree:
        """Copy of some problems of a one-dimensional batch: positions (K,), or one, without batch."""
        batch_shape = () if isinstance(problems, int) else (len(problems),)
        chosen = self.blank(self.topology.depth, self.family.select(problems), batch_shape)
        for own, source in zip(chosen.node_parameters(), self.node_parameters(), strict=True):
            own.copy_(source[problems])
        chosen.log_time_scale.copy_(self.log_time_scale[problems])
        return chosen

    @torch.no_grad()
    def assign(self, problems: Tensor, source: SoftTree, theirs: Tensor | None = None) -> None:
        """Write the parameters of `theirs` (K,), or all, of another batch into problems at positions (K,)."""
        for own, values in zip(self.node_parameters(), source.node_parameters(), strict=True):
            own[problems] = values if theirs is None else values[theirs]

    def node_parameters(self) -> list[nn.Parameter]:
        """Parameters of gates and leaves, without those that a family shares among all problems."""
        return [*self.gates.parameters(), *self.leaves.parameters()]

    # ------------------------------------------------------------------ internals

    def extra_repr(self) -> str:
        """Settings shown by ``repr``."""
        depth = "" if self.router is not None else f"depth={self.topology.depth}, "
        settings = f"in_features={self.in_features}, {depth}family={self.family.name}"
        return f"{settings}, batch_shape={self.batch_shape}"

    def _leaves(self) -> list[Leaf]:
        return [cast(Leaf, leaf) for leaf in self.leaves.values()]

    def _n_weights(self, router: nn.Module) -> int:
        """Number of weights that a router gives two rows of zeros, as in prediction."""
        like = next(router.parameters(), self.log_time_scale)
        with torch.no_grad():  # of a copy, since an untrained router must not learn these rows
            weight = copy.deepcopy(router).eval()(like.new_zeros(2, self.in_features))
        if not isinstance(weight, Tensor) or weight.ndim != 2 or len(weight) != 2:
            raise ConfigError(
                f"`router` must map features (N, {self.in_features}) to log weights (N, L), got "
                f"{tuple(getattr(weight, 'shape', ()))} for 2 rows"
            )
        return weight.shape[1]

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *others: Any) -> None:
        # The family first: its constants decide how many shape parameters leaves have.
        self.family._load_from_state_dict(state_dict, f"{prefix}family.", {}, True, [], [], [])
        for leaf in self._leaves():
            leaf.resize(len(self.family.shape_names))
        super()._load_from_state_dict(state_dict, prefix, *others)


def _autocasts(device_type: str) -> bool:
    """Whether products would lose digits that a likelihood needs."""
    return torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)


class HazardHead(SoftTree):
    """Last layer of a network: hazards linear in features z, as a :class:`SurvivalDistribution`.

    Each component has a linear predictor g, linear in z, and shape parameters, constant or linear in z as the
    family says (``ancillary``). Log weights of several components are linear in z, normalised by softmax: a
    :class:`SoftTree` with a linear router.

    Args:
        in_features: k, number of features.
        family: name of a hazard family, or a family.
        n_components: number of components, L.
        device: device of the parameters.
        dtype: dtype of the parameters; None for torch's default.

    Attributes:
        leaves: parameters of all components, with leading dimension L, in one module, ``leaf(1)``.
        router: layer of the log weights; None for one component.

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
        n = check_integer("n_components", n_components, 1)
        sizes = check_integer("in_features", in_features, 0), n
        router = nn.Linear(*sizes, device=device, dtype=dtype) if n > 1 else None
        super().__init__(in_features, 0, family, router=router, device=device, dtype=dtype, start="zeros")
        leaf = Leaf(in_features, self.family, (n,), device=device, dtype=dtype)
        self.leaves = nn.ModuleDict({"1": leaf})
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw slopes and log weights as :class:`torch.nn.Linear` does; intercepts and shapes are 0."""
        super().reset_parameters()
        if isinstance(self.router, nn.Linear):
            self.router.reset_parameters()

    def leaf_parameters(self, nodes: Iterable[int] | None = None) -> LeafParameters:
        """Parameters of all components."""
        return LeafParameters.of(self.leaf(1))

    def extra_repr(self) -> str:
        """Settings shown by ``repr``."""
        n_components = len(self.leaf(1).intercept)
        return f"in_features={self.in_features}, family={self.family.name}, n_components={n_components}"
