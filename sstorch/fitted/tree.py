"""A trained soft tree: curves, incidences, likelihood and groups of encoded rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor
from typing_extensions import override

from sstorch._types import FloatArray, IntArray
from sstorch.checks import blocks
from sstorch.data import Preprocessor
from sstorch.data.design_matrix import RowFeatures
from sstorch.data.time_unit import check_time_unit
from sstorch.exceptions import ConfigError, FormatError
from sstorch.fitted.model import EVENT, FittedModel, in_chunks, panels_of
from sstorch.memory import at_once, check_room
from sstorch.nn import FAMILIES, HazardFamily, SoftTree, SurvivalDistribution, make_family
from sstorch.threads import threads_for

Prediction = Literal["hbp", "mixture"]
PREDICTIONS: tuple[Prediction, ...] = ("hbp", "mixture")
# Elements of the largest intermediate of a prediction, two MiB, which stay in the cache; and of curves to be
# scored, of which a study asks for hundreds: freed arrays of this size stay with the process.
_CHUNK_ELEMENTS, _SCORED_ELEMENTS = 2**18, 2**16
# Of a prediction, below which a second thread gains nothing, chunks being small.
_FEW_ELEMENTS = 2**25
# Times at which survival is averaged to order groups by prognosis, and the digits of the mean that count.
_PROGNOSIS_TIMES, PROGNOSIS_DIGITS = 32, 9
# Slopes of leaves that differ by less are the same.
_SAME_SLOPES = 1e-9


@dataclass(frozen=True)
class FittedTree(FittedModel):
    """A trained soft tree with its preprocessing; rows are encoded features ``x``, (n, p), of :meth:`encode`.

    Attributes:
        hazards: by cause the tree that has its hazard in the leaves, without batch dimension; all have the
            same gates. A single one, ``"event"``, where causes do not compete.
        prediction: ``"hbp"``, one leaf per row, or ``"mixture"``, the average of all leaves.
        time_unit: of its times, as texts name it; None if unknown.
        time_varying: whether training subjects had several rows: survival from time zero is then conditional.
        event_times: distinct training event times, increasing, the range of quadratures and quantiles.
        groups: number of the group of each leaf, from left to right, (L,): 1 for the longest survival. By
            default the order of the leaves.
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
    def causes(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the causes; ``("event",)`` where they do not compete."""
        return tuple(self.hazards)

    @property
    def like(self) -> Tensor:  # type: ignore[override]
        """A tensor of the device and dtype of the parameters."""
        return self.module.log_time_scale

    @property
    def group_numbers(self) -> IntArray:
        """Number of the group that each leaf is, shape (L,)."""
        return np.arange(1, self._n_leaves + 1) if self.groups is None else self.groups

    def of_cause(self, cause: str) -> FittedTree:
        """The tree with the hazard of one cause alone, as if the others did not exist."""
        return replace(self, hazards={EVENT: self.hazards[cause]})

    def encode(self, frame: pd.DataFrame) -> RowFeatures:
        """Encoded features of rows, (n, p), on the device of the tree."""
        return self.preprocessor.encode(frame).to(device=self.like.device, dtype=self.like.dtype)

    @cached_property
    def panels(self) -> FloatArray:
        """Log times between which the hazards are smooth, the edges of a quadrature over time."""
        parts = ((module.family, module.log_time_scale) for module in self.hazards.values())
        return panels_of(parts, self.event_times)

    @override
    def panels_for(self, x: RowFeatures) -> FloatArray:
        return self.panels

    def falling_curves(self, x: RowFeatures, times: FloatArray) -> FloatArray:
        """Survival curves of one event as scores read them, (n, n_times), float64 in Fortran order.

        All rows enter the matrix products at once, which round differently with another number of rows.
        """
        check_room(len(x), len(times))
        out, at = np.empty((len(times), len(x))), torch.as_tensor(times, device=x.device)
        width = len(x) * (self._n_leaves if self.prediction == "mixture" else 1)
        with torch.no_grad():
            distribution = self.distributions(x)[0]
            for some in blocks(len(times), width, _SCORED_ELEMENTS):
                out[some] = distribution.survival(at[some, None], rows_last=True).cpu().numpy()
        return out.T

    @override
    def distributions(self, x: RowFeatures) -> list[SurvivalDistribution]:
        if self.prediction == "hbp":
            return [module(x).most_probable() for module in self.hazards.values()]
        return [module(x) for module in self.hazards.values()]

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

    def numbered(self, x: RowFeatures, weight: FloatArray, end: float) -> FittedTree:
        """The tree with groups numbered by their weighted mean of :meth:`mean_survival` of training rows x.

        Groups without rows come last, those of like survival in the order of the leaves.
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

    @property
    def _n_leaves(self) -> int:
        return len(self.module.topology.leaves)

    @override
    def _by_chunk(
        self, function: Callable[..., Tensor], row_elements: int, *rows: RowFeatures
    ) -> npt.NDArray[Any]:
        x = rows[0]
        if self.prediction == "mixture":
            row_elements *= self._n_leaves
        size = at_once(max(row_elements, x.shape[1]), _CHUNK_ELEMENTS)
        with threads_for(len(x) * row_elements, _FEW_ELEMENTS):
            return in_chunks(function, size, *rows)

    def shares_slopes(self, leaves: Sequence[int] | None = None) -> bool:
        """Whether some leaves by node, all by default, have the same slopes, those of shapes included."""
        for module in self.hazards.values():
            parameters = module.leaf_parameters(leaves)
            # Leaves come before the features, and before the shapes of which each has slopes.
            for slopes, axis in ((parameters.slope, -2), (parameters.shape_slope, -3)):
                values = slopes.detach().cpu().double().numpy()
                if values.size and np.ptp(values, axis=axis).max() > _SAME_SLOPES:
                    return False
        return True


def tree_state(tree: FittedTree) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The state of a tree as JSON and safetensors hold it; ConfigError if a family is not registered."""
    leaves, tensors = [], dict[str, Tensor]()
    for number, (cause, module) in enumerate(tree.hazards.items(), 1):
        family = module.family
        if family.name not in FAMILIES or type(FAMILIES[family.name]()) is not type(family):
            raise ConfigError(
                f"leaf family {type(family).__name__} is not registered and could not be loaded again; "
                "put @register_family above its class"
            )
        leaves.append({"cause": cause, "name": family.name, "options": family.options()})
        tensors |= {f"{number}.{name}": tensor for name, tensor in module.state_dict().items()}
    facts = replace(tree, hazards={}, groups=tree.group_numbers)
    return {"leaves": leaves, "depth": tree.module.topology.depth, "tree": facts}, tensors


def tree_of_state(state: Mapping[str, Any], tensors: Mapping[str, Tensor], device: str) -> FittedTree:
    """The tree of a state, on a device; an altered state raises anything: :func:`~sstorch.files.reading`."""
    facts: FittedTree = state["tree"]
    hazards = {}
    for number, leaf in enumerate(state["leaves"], 1):
        first = f"{number}."
        own = {name.removeprefix(first): each for name, each in tensors.items() if name.startswith(first)}
        module = hazards[str(leaf["cause"])] = SoftTree(
            len(facts.preprocessor.leaf_features),
            state["depth"],
            _family_of(leaf),
            device=device,
            dtype=own["log_time_scale"].dtype,
            n_gate_features=len(facts.preprocessor.gate_features),
            start="zeros",
        )
        module.load_state_dict(own)
    if not hazards:
        raise ValueError("there is no hazard")
    event_times = np.array(facts.event_times, dtype=np.float64)
    tree = replace(facts, hazards=hazards, event_times=event_times)
    check_time_unit(tree.time_unit)
    if sorted(tree.group_numbers) != list(range(1, len(tree.module.topology.leaves) + 1)):
        raise ValueError("groups are not the numbers of the leaves")
    return tree


def leaves_of_state(state: Mapping[str, Any]) -> HazardFamily | dict[str, HazardFamily]:
    """The families of a state as they were requested, by cause with competing causes."""
    families = {str(leaf["cause"]): _family_of(leaf) for leaf in state["leaves"]}
    return families[EVENT] if tuple(families) == (EVENT,) else families


def _family_of(leaf: Mapping[str, Any]) -> HazardFamily:
    if leaf["name"] not in FAMILIES:
        raise FormatError(
            f"unknown leaf {leaf['name']!r}: first import the module that defines it under @register_family; "
            "if there is none, the file is incomplete or altered"
        )
    return make_family(leaf["name"], **leaf["options"])
