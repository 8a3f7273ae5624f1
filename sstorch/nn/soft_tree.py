"""The soft survival tree: soft gates above, a hazard family in the leaves."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from sstorch.checks import check_choice, check_quantile, check_truncation
from sstorch.data.coded import CodedMatrix, RowFeatures
from sstorch.exceptions import ConfigError
from sstorch.nn.design_matrix import DesignMatrix, Features
from sstorch.nn.functional import survival_of
from sstorch.nn.hazards import HazardFamily, make_family
from sstorch.nn.hazards.numeric import invert, log_time_limit
from sstorch.nn.leaves import Leaf, LeafParameters
from sstorch.nn.routing import (
    Gate,
    GateParameters,
    Topology,
    leaf_of_rows,
    log_path_probability,
    most_probable_leaf,
    path_is_faster,
    visits,
)

Prediction = Literal["hbp", "mixture"]
PREDICTIONS: tuple[Prediction, ...] = ("hbp", "mixture")
# Largest share that time beyond the horizon of a family may have in a mean that exists.
_BEYOND = 1e-3


class LeafScores(NamedTuple):
    """What the curves of rows depend on at every time, broadcastable to (*batch_shape, L', N, 1).

    L' is 1 for the highest-branch-probability path, each row with its own leaf at weight one.

    Attributes:
        log_p: log weight of each leaf.
        linear: linear predictor.
        shape: shape parameters, with one more dimension.
    """

    log_p: Tensor
    linear: Tensor
    shape: Tensor

    def by_time(self) -> LeafScores:
        """The same for times of shape (T, 1), so that curves are (*batch_shape, T, N)."""
        log_p = self.log_p.mT if self.log_p.ndim else self.log_p
        return LeafScores(log_p, self.linear.mT, self.shape.transpose(-3, -2))


class SoftTree(nn.Module):
    """Full binary tree of soft multivariate splits with parametric hazards in the leaves.

    Every parameter has the leading ``batch_shape``; an element of the batch is called a *problem*. There is
    one module per node; ``requires_grad_`` selects the trained nodes.

    Args:
        n_features: p, number of features of the leaves, the last of the given features.
        depth: 0 (one leaf, a plain parametric model) to 6.
        leaf: name of a hazard family, or a family.
        batch_shape: leading shape of all parameters.
        device: device of the parameters.
        dtype: dtype of the parameters.
        n_gate_features: number of features of the gates, the first of the given features; None for p.

    Features are given as a tensor, shape (N, q) if shared by all problems or (*batch_shape, N, q), or as a
    :class:`DesignMatrix`. Gates and leaves use the same features, q = p, or some of them. Times are in
    original units; internally, log time is shifted by ``log_time_scale``.

    References:
        Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis".
    """

    log_time_scale: Tensor

    def __init__(
        self,
        n_features: int,
        depth: int = 2,
        leaf: str | HazardFamily = "log_logistic",
        batch_shape: tuple[int, ...] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float64,
        n_gate_features: int | None = None,
    ) -> None:
        super().__init__()
        self.topology = Topology(depth)
        self.batch_shape = tuple(batch_shape)
        self.n_features = n_features
        self.n_gate_features = n_features if n_gate_features is None else n_gate_features
        # Some of the features that were given for gates alone may be those of leaves, too.
        self._most_features = n_features + (n_gate_features or 0)
        device = None if device is None else torch.device(device)
        self.family = make_family(leaf).expand(self.batch_shape).to(device=device, dtype=dtype)
        self.gates = nn.ModuleDict(
            {
                str(n): Gate(self.n_gate_features, self.batch_shape, device, dtype)
                for n in self.topology.branches
            }
        )
        self.leaves = nn.ModuleDict(
            {
                str(n): Leaf(n_features, self.family, self.batch_shape, device, dtype)
                for n in self.topology.leaves
            }
        )
        self.register_buffer("log_time_scale", torch.zeros(self.batch_shape, device=device, dtype=dtype))

    # ------------------------------------------------------------------ nodes

    def gate(self, node: int) -> Gate:
        """The gate of branch node ``node``."""
        return cast(Gate, self.gates[str(node)])

    def leaf(self, node: int) -> Leaf:
        """The leaf module of leaf ``node``, numbered in heap order."""
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
        leaves = [self.leaf(n) for n in (self.topology.leaves if nodes is None else nodes)]
        shape = torch.stack([leaf.shape for leaf in leaves], -2)
        slopes: list[Tensor] = [leaf.shape_slope for leaf in leaves if leaf.shape_slope is not None]
        return LeafParameters(
            torch.stack([leaf.slope for leaf in leaves], -2),
            torch.stack([leaf.intercept for leaf in leaves], -1),
            shape,
            torch.stack(slopes, -3) if slopes else shape.new_zeros(*shape.shape[:-1], 0, self.n_features),
        )

    @torch.no_grad()
    def set_gates(self, gates: GateParameters) -> None:
        """Set the parameters of all gates, in the form of :meth:`gate_parameters`, in place."""
        for place, node in enumerate(self.topology.branches):
            gate = self.gate(node)
            gate.weight.copy_(gates.weight[..., place, :])
            gate.bias.copy_(gates.bias[..., place])

    @torch.no_grad()
    def set_leaves(self, leaves: LeafParameters) -> None:
        """Set the parameters of all leaves, in the form of :meth:`leaf_parameters`, in place."""
        for place, node in enumerate(self.topology.leaves):
            leaf = self.leaf(node)
            leaf.slope.copy_(leaves.slope[..., place, :])
            leaf.intercept.copy_(leaves.intercept[..., place])
            leaf.shape.copy_(leaves.shape[..., place, :])
            if leaf.shape_slope is not None:
                leaf.shape_slope.copy_(leaves.shape_slope[..., place, :, :])

    # ------------------------------------------------------------------ scores

    def gate_logits(self, x: Features, nodes: Iterable[int] | None = None) -> Tensor:
        """Logits of gates, all by default, shape (*batch_shape, len(nodes), N)."""
        return self.gate_parameters(nodes).logits(x)

    def linear_predictor(self, x: Features, nodes: Iterable[int] | None = None) -> Tensor:
        """Linear predictors g of leaves, all by default, shape (*batch_shape, len(nodes), N)."""
        return self.leaf_parameters(nodes).linear_predictor(x)

    def shape_parameters(self, x: Features, nodes: Iterable[int] | None = None) -> Tensor:
        """Shape parameters of rows, (*batch_shape, len(nodes), N, m), with 1 for N if they are constant."""
        return self.leaf_parameters(nodes).shape_parameters(x)

    def log_leaf_probability(self, x: Features, node: int = 1) -> Tensor:
        """Log probability of each leaf under ``node`` given the row is there, (*batch_shape, L', N)."""
        if node in self.topology.leaves:
            return self.log_time_scale.new_zeros(*self.batch_shape, 1, _n_rows(x))
        logits = self.gate_logits(x, self.topology.branches_under(node))
        return log_path_probability(self.topology, logits, node)

    def apply_leaf(self, x: Features) -> Tensor:
        """Leaf on the path of highest branch probability of each row: 0 .. L - 1, (*batch_shape, N)."""
        if self.topology.depth == 0:
            shape = (*self.batch_shape, _n_rows(x))
            return torch.zeros(shape, dtype=torch.long, device=self.log_time_scale.device)
        if isinstance(x, Tensor) and self._follows_paths(x):
            return leaf_of_rows(self.topology, self.gate_parameters(), x)
        return most_probable_leaf(self.topology, self.gate_logits(x))

    def visits(self, x: Features, node: int) -> Tensor:
        """True if the path of highest branch probability of a row includes ``node``, (*batch_shape, N)."""
        return visits(self.topology, self.apply_leaf(x), node)

    # ------------------------------------------------------------------ curves

    def log_survival(
        self, x: RowFeatures | LeafScores, times: Tensor, prediction: Prediction = "hbp"
    ) -> Tensor:
        """Log of the survival function, log S(t | x) = -H(t | x).

        Args:
            x: features, shape (N, p) or (*batch_shape, N, p); or their :meth:`leaf_scores`, for many calls.
            times: original units, t >= 0, shape (T,), or (N, T) if every row has its own.
            prediction: ``"hbp"``, one leaf per row, or ``"mixture"``, all leaves weighted.

        Returns:
            shape (*batch_shape, N, T), <= 0; -inf if S underflows.

        Raises:
            ConfigError: if ``prediction`` is neither.
        """
        log_p, log_time, linear, shape = self._at(x, times, prediction)
        hazard = self.family.cumulative_hazard(log_time, linear, shape)
        mixed = -hazard.squeeze(-3) if prediction == "hbp" else self._mixed_log_survival(log_p, hazard)
        return torch.where(times == 0, 0.0, mixed)

    def log_hazard(self, x: RowFeatures, times: Tensor, prediction: Prediction = "hbp") -> Tensor:
        """Log hazard per original time unit; arguments and shape as :meth:`log_survival`."""
        log_p, log_time, linear, shape = self._at(x, times, prediction)
        log_hazard = self.family.log_hazard(log_time, linear, shape)
        if prediction == "hbp":
            mixed = log_hazard.squeeze(-3)
        else:
            hazard = self.family.cumulative_hazard(log_time, linear, shape)
            mixed = self._mixed_log_hazard(log_p, hazard, log_hazard)
        return mixed - self.log_time_scale[..., None, None]

    def survival(self, x: RowFeatures | LeafScores, times: Tensor, prediction: Prediction = "hbp") -> Tensor:
        """Survival function S(t | x) in [0, 1]; arguments and shape as :meth:`log_survival`."""
        if prediction != "hbp":
            return survival_of(-self.log_survival(x, times, prediction))
        # Of some families it takes less than their cumulative hazard.
        _, log_time, linear, shape = self._at(x, times, prediction)
        curves = self.family.survival(log_time, linear, shape).squeeze(-3)
        return torch.where(times == 0, 1.0, curves)

    def cumulative_hazard(self, x: RowFeatures, times: Tensor, prediction: Prediction = "hbp") -> Tensor:
        """Cumulative hazard H(t | x) >= 0; arguments and shape as :meth:`log_survival`."""
        return -self.log_survival(x, times, prediction)

    def hazard(self, x: RowFeatures, times: Tensor, prediction: Prediction = "hbp") -> Tensor:
        """Hazard h(t | x) per original time unit; arguments and shape as :meth:`log_survival`."""
        return self.log_hazard(x, times, prediction).exp()

    def quantile(
        self, x: RowFeatures, q: float, prediction: Prediction = "hbp", after: Tensor | None = None
    ) -> Tensor:
        """Quantile ``q`` of the event time, F(t | x) = q, in original units.

        Args:
            x: features, shape (N, p) or (*batch_shape, N, p).
            q: in (0, 1); 0.5 gives the median.
            prediction: as in :meth:`log_survival`.
            after: times of conditioning, original units, shape (N,): quantiles of the remaining time.

        Returns:
            shape (*batch_shape, N); +inf if the survival function stays above 1 - q up to the horizon of the
            family (:meth:`HazardFamily.horizon`).

        Raises:
            ConfigError: ``q`` is not in (0, 1), or the leaves' curves can rise.
        """
        self._refuse_rising("a quantile")
        q = check_quantile(q)
        log_p, linear, shape = self.leaf_scores(x, prediction)
        target = linear.new_tensor(-math.log1p(-q))
        if after is not None:
            target = target + self.cumulative_hazard(x, after[:, None], prediction)
        if prediction == "hbp":
            each = target[..., None, :, :] if target.ndim else target
            log_time = self.family.log_quantile(each, linear, shape).squeeze(-3)
        else:

            def mixed(y: Tensor) -> Tensor:
                hazard = self.family.cumulative_hazard(y[..., None, :, :], linear, shape)
                return -self._mixed_log_survival(log_p, hazard)

            def log_hazard(y: Tensor) -> Tensor:
                terms = self.family.terms(y[..., None, :, :], linear, shape)
                return self._mixed_log_hazard(log_p, *terms)

            log_time = invert(mixed, log_hazard, target.expand(*self.batch_shape, linear.shape[-2], 1))
        horizon = self.family.horizon(log_time)
        if horizon is not None:
            log_time = torch.where(log_time > horizon, torch.inf, log_time)
        time = torch.exp(log_time.squeeze(-1) + self.log_time_scale[..., None])
        return time if after is None else (time - after).clamp(min=0)

    def restricted_mean(
        self, x: RowFeatures, tau: float, prediction: Prediction = "hbp", after: Tensor | None = None
    ) -> Tensor:
        """Restricted mean survival time, the integral of S(t | x) from 0 to ``tau``, in original units.

        Args:
            x: features, shape (N, p) or (*batch_shape, N, p).
            tau: > 0, original units; ``math.inf`` gives the mean survival time.
            prediction: as in :meth:`log_survival`.
            after: times of conditioning, original units, shape (N,): the mean of the remaining time,
                restricted to ``tau``.

        Returns:
            shape (*batch_shape, N); +inf if the mean does not exist.

        Raises:
            ConfigError: ``tau`` is not positive, or the leaves' curves can rise.
        """
        self._refuse_rising("a restricted mean")
        tau = check_truncation(tau)
        log_p, linear, shape = self.leaf_scores(x, prediction)
        log_tau = linear.new_tensor(tau).log() - self.log_time_scale[..., None, None, None]
        horizon = self.family.horizon(linear) if math.isinf(tau) else None
        upper, gone = log_tau if horizon is None else horizon, torch.zeros_like(linear)
        if after is None:
            means = self.family.restricted_mean(upper, linear, shape)
        else:
            limit = log_time_limit(linear.dtype)
            log_after = after[:, None].to(linear).log() - self.log_time_scale[..., None, None, None]
            log_after = log_after.clamp(min=-limit)
            if horizon is not None:
                if (log_after >= horizon).any():
                    raise ConfigError("the mean needs curves beyond the meaningful times: give a finite tau")
                upper = torch.log(horizon.exp() - log_after.exp())
            gone = self.family.cumulative_hazard(log_after, linear, shape)
            means = self.family.residual_mean(upper, log_after, linear, shape)
            if prediction == "mixture":
                log_p = (log_p - gone).log_softmax(-3)
        if horizon is not None:
            left = torch.exp(upper + gone - self.family.cumulative_hazard(horizon, linear, shape))
            means = torch.where(left > _BEYOND * means, torch.inf, means)
        # A leaf that the row never reaches may have an infinite mean.
        p = log_p.exp()
        weighted = torch.where(p > 0, p * means, torch.zeros_like(means))
        return weighted.sum(-3).squeeze(-1) * self.log_time_scale.exp()[..., None]

    def _refuse_rising(self, what: str) -> None:
        if self.family.can_rise:
            raise ConfigError(f"{what} needs curves that cannot increase: use leaves with monotone=True")

    def forward(self, x: RowFeatures, times: Tensor) -> Tensor:
        """Survival function on the highest-branch-probability path, shape (*batch_shape, N, T)."""
        return self.survival(x, times)

    def _at(
        self, x: RowFeatures | LeafScores, times: Tensor, prediction: Prediction
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Log weight, model log time, linear predictor and shapes, broadcastable to (*batch, L', N, T)."""
        # log 0 is replaced by the smallest normal number's, which leaves a finite power of t. In double,
        # since the range of single precision is too small for times in any unit.
        log_time = times.double().clamp(min=torch.finfo(torch.float64).tiny).log()
        log_time = log_time - self.log_time_scale[..., None, None].double()
        limit = log_time_limit(self.log_time_scale.dtype)
        log_time = log_time.clamp(-limit, limit)[..., None, :, :].to(self.log_time_scale.dtype)
        scores = x if isinstance(x, LeafScores) else self.leaf_scores(x, prediction)
        return scores.log_p, log_time, scores.linear, scores.shape

    def _mixed_log_survival(self, log_p: Tensor, hazard: Tensor) -> Tensor:
        """Log of the average of the leaves' survival functions, leaves in dimension -3."""
        # Where all of them are zero the logarithm of their sum has no gradient.
        limit = torch.finfo(hazard.dtype).max / 4
        mixed = torch.logsumexp(log_p.clamp(min=-limit) - hazard.clamp(max=limit), dim=-3).clamp(max=0)
        return torch.where((hazard > limit).all(-3), -torch.inf, mixed)

    def _mixed_log_hazard(self, log_p: Tensor, hazard: Tensor, log_hazard: Tensor) -> Tensor:
        """Log hazard of that average, leaves in dimension -3."""
        # Far out, where every leaf's survival underflows, their weights are those of the gates.
        log_weight = log_p - hazard.clamp(max=torch.finfo(hazard.dtype).max / 2)
        return torch.logsumexp(log_weight.log_softmax(-3) + log_hazard, dim=-3)

    def leaf_scores(self, x: RowFeatures, prediction: Prediction) -> LeafScores:
        """Gates and leaves at features of rows, shape (N, p) or (*batch_shape, N, p)."""
        check_choice(prediction, "prediction", PREDICTIONS)
        self._check_features(x)
        if prediction == "hbp" and isinstance(x, Tensor) and self._follows_paths(x):
            leaf = leaf_of_rows(self.topology, self.gate_parameters(), x)
            linear, shape = self.leaf_parameters().at_rows(x, leaf)
            return LeafScores(linear.new_zeros(()), linear[None, :, None], shape[None, :, None])
        linear, shape = self.linear_predictor(x), self.shape_parameters(x)
        if prediction == "mixture":
            return LeafScores(self.log_leaf_probability(x)[..., None], linear[..., None], shape[..., None, :])
        leaf = self.apply_leaf(x)[..., None, :]
        linear = linear.gather(-2, leaf)[..., None]
        shape = shape.expand(*shape.shape[:-2], leaf.shape[-1], shape.shape[-1])
        shape = shape.gather(-3, leaf[..., None].expand(*leaf.shape, shape.shape[-1]))
        return LeafScores(linear.new_zeros(()), linear, shape[..., None, :])

    def _check_features(self, x: RowFeatures) -> None:
        """ConfigError unless rows have as many features as gates and leaves need, in the tree's precision."""
        least, most = max(self.n_features, self.n_gate_features), self._most_features
        if not isinstance(x, Tensor | CodedMatrix) or len(x.shape) < 2 or not least <= x.shape[-1] <= most:
            width = least if least == most else f"{least} to {most}"
            shape = tuple(getattr(x, "shape", ()))
            raise ConfigError(
                f"x must be a tensor of rows with {width} features, got {type(x).__name__} of shape {shape}"
            )
        wanted = self.log_time_scale.dtype
        if x.dtype != wanted and not torch.is_autocast_enabled(x.device.type):
            raise ConfigError(
                f"x must be {wanted}, as the tree is, got {x.dtype}: use x.to({wanted}) or tree.to({x.dtype})"
            )

    def _follows_paths(self, x: Tensor) -> bool:
        """True if only the nodes on each row's path are to be evaluated."""
        return self.batch_shape == () and x.ndim == 2 and path_is_faster(self.topology, self.n_gate_features)

    # ------------------------------------------------------------------ problems of a batch

    def blank(self, depth: int, family: HazardFamily, batch_shape: tuple[int, ...]) -> SoftTree:
        """A tree with parameters of zero for the same features, on the same device and in the same dtype."""
        scale = self.log_time_scale
        kind = scale.device, scale.dtype, self.n_gate_features
        return SoftTree(self.n_features, depth, family, batch_shape, *kind)

    def select(self, problems: Tensor | int) -> SoftTree:
        """Copy of some problems of a one-dimensional batch: positions (K,), or one problem, unbatched."""
        batch_shape = () if isinstance(problems, int) else (len(problems),)
        chosen = self.blank(self.topology.depth, self.family.select(problems), batch_shape)
        chosen.load_state_dict({name: value[problems] for name, value in self.state_dict().items()})
        return chosen

    @torch.no_grad()
    def assign(self, problems: Tensor, source: SoftTree, theirs: Tensor | None = None) -> None:
        """Write the parameters of `theirs` (K,), or all, of another batch into problems at positions (K,)."""
        values = dict(source.named_parameters())
        for name, parameter in self.named_parameters():
            parameter[problems] = values[name] if theirs is None else values[name][theirs]

    @torch.no_grad()
    def set_time_scale(self, scale: Tensor | float) -> None:
        """Set the unit of model time, finite and > 0, shape broadcastable to ``batch_shape``."""
        scale = torch.as_tensor(scale)
        if scale.device.type == "cpu" and not bool(((scale > 0) & scale.isfinite()).all()):
            raise ConfigError(f"scale must be finite and above 0, got {scale.tolist()}")
        self.log_time_scale.copy_(scale.log())

    def extra_repr(self) -> str:
        """Settings shown by ``repr``."""
        return (
            f"n_features={self.n_features}, depth={self.topology.depth}, leaf={self.family.name}, "
            f"batch_shape={self.batch_shape}"
        )

    @property
    def n_problems(self) -> int:
        """Number of problems in the batch."""
        return math.prod(self.batch_shape)


def _n_rows(x: Features) -> int:
    return x.n_rows if isinstance(x, DesignMatrix) else x.shape[-2]
