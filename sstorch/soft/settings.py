"""The checked settings of a batch of trees."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import get_args

import torch

from sstorch.checks import check_device
from sstorch.data.preprocessing import Categorical, Numeric
from sstorch.exceptions import ConfigError
from sstorch.nn import HazardFamily, Spline, Topology, make_family
from sstorch.objective import FAIRNESS, L2Parity
from sstorch.optim import JOINT_RACE, Adam, Joint, Nodec, NodecJoint, Race, Trainer

DTYPES = {"float64": torch.float64, "float32": torch.float32}
# By name trainers come with a race, which only batches of starts have; the classes are plain.
TRAINERS: dict[str, Callable[[], Trainer]] = {
    "nodec": lambda: Nodec(race=Race()),
    "joint": lambda: Joint(race=JOINT_RACE),
    "nodec+joint": lambda: NodecJoint(Nodec(race=Race())),
    "adam": Adam,
}
INITS = ("kmeans", "random", "greedy", "grown", "cox")


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of the penalties on a tree, each >= 0: what trees of one batch may differ in.

    Attributes:
        ridge: of :class:`~sstorch.objective.Ridge`.
        gate_ridge: of :class:`~sstorch.objective.GateRidge`.
        fused: of :class:`~sstorch.objective.Fused`.
        gate_sparsity: of :class:`~sstorch.objective.GateGroupLasso`.
        rho: of the fairness penalty.
    """

    ridge: float = 0.0
    gate_ridge: float = 0.0
    fused: float = 0.0
    gate_sparsity: float = 0.0
    rho: float = 0.0


@dataclass(frozen=True)
class BatchSettings:
    """Everything about the trees of a batch but the data.

    Build it with :meth:`check`, which takes the parameters of :class:`SoftSurvivalTree` as users give them.
    """

    depth: int
    leaf: str | HazardFamily
    n_starts: int
    trainer: Trainer
    init: str
    ridge: float
    gate_ridge: float
    fused: float
    gate_sparsity: float
    holdout: float
    n_shards: int
    missing_numbers: Numeric
    missing_categories: Categorical
    device: str
    dtype: str
    seed: int
    fairness: L2Parity | None = None
    rho: float = 0.0

    @classmethod
    def check(
        cls,
        *,
        depth: object,
        leaf: str | HazardFamily,
        n_starts: object,
        trainer: str | Trainer,
        init: str,
        ridge: object,
        gate_ridge: object,
        fused: object,
        gate_sparsity: object,
        holdout: object,
        n_shards: object,
        missing_numbers: Numeric,
        missing_categories: Categorical,
        device: str,
        dtype: str,
        seed: int,
        fairness: str | L2Parity | None = None,
        rho: object = 0.0,
    ) -> BatchSettings:
        """Check every value and bring it to its plain type.

        Raises:
            ConfigError: a value does not exist or is out of range; the message says what would do.
        """
        family = make_family(leaf)
        check_device(device)
        for name, value, choices in (
            ("dtype", dtype, tuple(DTYPES)),
            ("init", init, INITS),
            ("missing_numbers", missing_numbers, get_args(Numeric)),
            ("missing_categories", missing_categories, get_args(Categorical)),
        ):
            if value not in choices:
                raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        if init == "cox" and not isinstance(family, Spline):
            raise ConfigError(f"init='cox' is for spline leaves, got leaf {family.name!r}; use init='random'")
        own_trainer, parity = _trainer(trainer), _fairness(fairness)
        if rho != 0 and parity is None:
            raise ConfigError(f"rho={rho!r} has nothing to act on: choose a penalty, such as fairness='l2'")
        if parity is not None:
            _check_trainable(parity, own_trainer)
        return cls(
            depth=Topology(depth).depth,  # type: ignore[arg-type]
            leaf=leaf,
            n_starts=_positive_integer("n_starts", n_starts),
            trainer=own_trainer,
            init=init,
            ridge=_coefficient("ridge", ridge),
            gate_ridge=_coefficient("gate_ridge", gate_ridge),
            fused=_coefficient("fused", fused),
            gate_sparsity=_coefficient("gate_sparsity", gate_sparsity),
            holdout=_share("holdout", holdout),
            n_shards=_positive_integer("n_shards", n_shards),
            missing_numbers=missing_numbers,
            missing_categories=missing_categories,
            device=str(device),
            dtype=dtype,
            seed=seed,
            fairness=parity,
            rho=_coefficient("rho", rho),
        )

    def facts(self) -> dict[str, object]:
        """Every setting but the trainer by name, the leaf as a family, for comparison with another run's."""
        facts = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "trainer"}
        return {**facts, "leaf": make_family(self.leaf)}

    @property
    def coefficients(self) -> Coefficients:
        """Those of the penalties."""
        return Coefficients(**{item.name: getattr(self, item.name) for item in fields(Coefficients)})

    @property
    def torch_dtype(self) -> torch.dtype:
        """The floating point type of the trees."""
        return DTYPES[self.dtype]


def _trainer(trainer: object) -> Trainer:
    if isinstance(trainer, str) and trainer in TRAINERS:
        return TRAINERS[trainer]()
    if isinstance(trainer, Trainer):
        return trainer
    raise ConfigError(
        f"trainer must be one of {', '.join(TRAINERS)}, or settings such as Nodec(), got {trainer!r}"
    )


def _fairness(fairness: object) -> L2Parity | None:
    if fairness is None or isinstance(fairness, L2Parity):
        return fairness
    if isinstance(fairness, str) and fairness in FAIRNESS:
        return FAIRNESS[fairness]
    raise ConfigError(
        f"fairness must be None, one of {', '.join(FAIRNESS)}, or settings such as L2Parity(), "
        f"got {fairness!r}"
    )


def _check_trainable(parity: L2Parity, trainer: Trainer) -> None:
    """Refuse trainers that move gates and leaves together by a penalty that jumps where gates move."""
    if parity.gates == "frozen" and not isinstance(trainer, Nodec):
        raise ConfigError(
            f"{type(trainer).__name__} moves gates and leaves together, in which the penalty jumps: use "
            "fairness='l2_relaxed', or trainer='nodec'"
        )
    if parity.pairs == "sum" and isinstance(trainer, Adam):
        raise ConfigError("a sum over pairs depends on the batch size of trainer='adam': use pairs='mean'")


def _positive_integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ConfigError(f"{name} must be at least 1, an integer, got {value!r}")
    return int(value)


def _share(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < 1:
        raise ConfigError(f"{name} must be a share in [0, 1), got {value!r}")
    return float(value)


def _coefficient(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or value < 0:
        raise ConfigError(f"{name} must be a finite number >= 0, got {value!r}")
    return float(value)
