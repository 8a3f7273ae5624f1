"""Group parity: a penalty on differences between the survival curves of sensitive groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import roots_legendre
from torch import Tensor

from sstorch.exceptions import ConfigError
from sstorch.objective.curve_moments import Grid
from sstorch.objective.group_parity import Gates, GroupParity, Pairs

Rule = Literal["quadrature", "observed_times"]
FloatArray = npt.NDArray[np.float64]

# Nodes of a part of the quadrature between two knots, at least.
_PANEL_NODES = 12


@dataclass(frozen=True)
class L2Parity:
    """Settings of the L2 penalty between the survival curves of sensitive groups.

    The penalty is rho times the mean (or sum) over the pairs i, j of rows of different groups, by the product
    of their weights, of the integral of (S_i(t) - S_j(t))^2 between the extreme observed training times, in
    the time unit of the data. S_i is the curve of the leaf at the end of row i's most probable path.

    Attributes:
        gates: ``"frozen"``: the penalty acts where leaves are trained with the gates frozen, the paper's way.
            ``"relaxed"``: gates are trained with it too, by its relaxation in which S_i is the average of the
            leaves' curves weighted by their probabilities (the penalty itself is piecewise constant in the
            gates).
        pairs: ``"mean"``: rho = 10 then is the paper's 10 / (N_M N_F). ``"sum"``: the paper's sum over pairs.
        rule: ``"quadrature"``: Gauss-Legendre nodes in log time, in which the curves are smooth.
            ``"observed_times"``: the sum over the distinct observed training times, without a unit, in place
            of the integral: the paper's rule.
        n_nodes: of the quadrature; some more if it is split at knots or breakpoints of the leaves.

    Raises:
        ConfigError: a value does not exist or is out of range.

    References:
        Consolo, Amaldi and Carrizosa, group fairness of soft survival trees.
    """

    gates: Gates = "frozen"
    pairs: Pairs = "mean"
    rule: Rule = "quadrature"
    n_nodes: int = 64

    def __post_init__(self) -> None:
        for name, choices in (
            ("gates", get_args(Gates)),
            ("pairs", get_args(Pairs)),
            ("rule", get_args(Rule)),
        ):
            if getattr(self, name) not in choices:
                raise ConfigError(
                    f"fairness {name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}"
                )
        if not _is_integer(self.n_nodes) or self.n_nodes < 2:
            raise ConfigError(f"fairness n_nodes must be at least 2, an integer, got {self.n_nodes!r}")

    def nodes(self, time: FloatArray, corners: Sequence[float] = ()) -> tuple[FloatArray, FloatArray]:
        """Nodes and their weights.

        Args:
            time: observed training times, > 0, original units.
            corners: times at which the curves are not smooth, such as knots; the quadrature is split there.

        Returns:
            times (Q,) and weights (Q,), both in original units; weights of one for ``"observed_times"``.
        """
        if self.rule == "observed_times":
            times = np.unique(time)
            return times, np.ones_like(times)
        first, last = float(time.min()), float(time.max())
        limits = [first, *sorted({corner for corner in corners if first < corner < last}), last]
        counts = [int(self.n_nodes)]
        if len(limits) > 2:
            lengths = np.diff(np.log(limits))
            counts = [max(_PANEL_NODES, round(self.n_nodes * own / lengths.sum())) for own in lengths]
        panels = [
            log_time_quadrature(lower, upper, count)
            for lower, upper, count in zip(limits[:-1], limits[1:], counts, strict=True)
        ]
        return np.concatenate([own for own, _ in panels]), np.concatenate([weight for _, weight in panels])

    def penalty(
        self,
        rho: Tensor,
        times: Sequence[FloatArray],
        log_scale: FloatArray,
        problems_of: Sequence[int],
        corners: Sequence[Sequence[float]] | None = None,
    ) -> GroupParity:
        """The penalty of a batch of problems.

        Args:
            rho: one value per problem, shape (R,).
            times: observed training times of each split, original units.
            log_scale: log of the unit of model time of each split.
            problems_of: number of problems of each split; their sum is R.
            corners: see :meth:`nodes`, of each split.
        """
        corners = corners or [()] * len(times)
        nodes = [self.nodes(own, at) for own, at in zip(times, corners, strict=True)]
        width = max(len(own) for own, _ in nodes)
        # Shorter lists of observed times repeat their last one at weight zero.
        log_time = [
            np.log(np.pad(own, (0, width - len(own)), "edge")) - scale
            for (own, _), scale in zip(nodes, log_scale, strict=True)
        ]
        measure = [np.pad(weight, (0, width - len(weight))) for _, weight in nodes]
        count = torch.as_tensor(problems_of)
        grid = Grid(
            torch.as_tensor(np.stack(log_time)).repeat_interleave(count, 0),
            torch.as_tensor(np.stack(measure)).repeat_interleave(count, 0),
        )
        return GroupParity(rho, grid, self.pairs, self.gates)


def _is_integer(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


@lru_cache(maxsize=32)
def _legendre(n_nodes: int) -> tuple[FloatArray, FloatArray]:
    nodes, weight = roots_legendre(n_nodes)
    return nodes, weight


def log_time_quadrature(first: float, last: float, n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes in log time for integrals over time.

    Survival curves of the families here are smooth in log time; in time itself they may have a singularity
    at zero, next to the first node, and the same number of nodes gives up to six digits less.

    Args:
        first: lower limit, > 0.
        last: upper limit.
        n_nodes: number of nodes.

    Returns:
        nodes (Q,) and weights (Q,), in the unit of the limits.
    """
    x, weight = _legendre(n_nodes)
    half = (np.log(last) - np.log(first)) / 2
    times = np.exp((np.log(first) + np.log(last)) / 2 + half * x)
    return times, half * weight * times


FAIRNESS = {"l2": L2Parity(), "l2_relaxed": L2Parity(gates="relaxed")}
