"""The soft survival tree: soft gates above, a hazard family in the leaves."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from functools import partial
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn

from sstorch.checks import check_choice
from sstorch.data.design_matrix import RowFeatures
from sstorch.exceptions import ConfigError
from sstorch.nn.distribution import SurvivalDistribution
from sstorch.nn.hazards.base import HazardFamily
from sstorch.nn.heads import DistributionModule, without_autocast
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


class SoftTree(DistributionModule):
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
        super().__init__(in_features, family, batch_shape, device, dtype)
        self.n_gate_features = in_features if n_gate_features is None else n_gate_features
        # Some of the features that were given for gates alone may be those of leaves, too.
        self._most_features = in_features + (n_gate_features or 0)
        self.router, self._topology = router, Topology(depth)
        kind: dict[str, Any] = {"device": self.log_time_scale.device, "dtype": self.log_time_scale.dtype}
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
        x = self._features(x, max(self.in_features, self.n_gate_features), self._most_features)
        with without_autocast(x.device.type):
            leaves = self.leaf_parameters()
            if self.router is not None:
                return self._distribution(self._routed(x), leaves, x)
            logits = self.gate_logits(x)
            log_weight = partial(log_path_probability, self.topology, logits)
            component = partial(most_probable_leaf, self.topology, logits)
            return self._distribution(log_weight, leaves, x, component)

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
