"""A training run's problems as the compiled engine has them: arrays, and the calls of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sstorch._types import FloatArray, IntArray
from sstorch.nn import GateParameters, HazardFamily, LeafParameters, SoftTree
from sstorch.objective import Sample, TrainingObjective
from sstorch.objective.penalties import GateGroupLasso, GateRidge, Monotone, Ridge, Together
from sstorch.optim.batched_lbfgs import LBFGSOptions
from sstorch.optim.compiled import visits, whole
from sstorch.optim.compiled.families import KERNELS
from sstorch.optim.compiled.lbfgs import Options, make_model
from sstorch.optim.compiled.parts import Problems
from sstorch.optim.compiled.records import N_RECORDS
from sstorch.optim.compiled.team import Team


class CompiledProblems:
    """R problems on the CPU, in double precision, without penalties on rows, trained in place by a team."""

    def __init__(
        self, tree: SoftTree, objective: TrainingObjective, sample: Sample, team: Team | None = None
    ) -> None:
        self.tree = tree
        self._team = team or Team(torch.get_num_threads())
        kernel = tree.family.kernel
        assert kernel is not None  # made where there is one
        self._model = make_model(
            KERNELS.index(kernel),
            sample.x.shape[-1],
            tree.n_gate_features,
            tree.in_features,
            len(tree.family.shape_names),
            tree.family.ancillary == "linear" and len(tree.family.shape_names) > 0,
            len(tree.topology.branches),
        )
        counts = sample.x.counts
        self._split = np.repeat(np.arange(len(counts)), counts)
        self._features = np.ascontiguousarray(sample.x.to_dense().mT.numpy())
        self._weight = _array(sample.weight)
        per_subject = sample.rows_per_subject
        self._rows_per_subject = (
            np.ones(len(self._weight)) if per_subject is None else _array(per_subject[:, 0])
        )
        self._owner, self._times = _times(tree.family, sample, counts)
        self._penalties = _penalties(objective, tree)

    def visit(
        self,
        problems: Tensor,
        node: int,
        thresholds: Sequence[float],
        n_rows: Tensor,
        options: LBFGSOptions,
        records: FloatArray,
        gates: bool = True,
        leaves: bool = True,
    ) -> None:
        """Visit a node; see :func:`visits.visit`."""
        b, given, limits = self._problems(visits.steps_of_visit()), _array(n_rows.double()), _options(options)
        numbers = np.array(thresholds, dtype=np.float64)
        self._team.run(visits.visit, b, problems, node, numbers, given, gates, leaves, limits, records)
        self._write(b)

    def train_jointly(self, problems: Tensor, options: LBFGSOptions) -> FloatArray:
        """All parameters at once; the records (K, n) of :func:`whole.train_jointly`."""
        return self._train(whole.train_jointly, problems, options)

    def train_leaves(self, problems: Tensor, options: LBFGSOptions) -> FloatArray:
        """Leaves alone; the records (K, n) of :func:`whole.train_leaves`."""
        return self._train(whole.train_leaves, problems, options)

    def _train(self, kernel: Any, problems: Tensor, options: LBFGSOptions) -> FloatArray:
        b, records = self._problems(), np.full((len(problems), N_RECORDS), np.nan)
        self._team.run(kernel, b, problems, _options(options), records)
        self._write(b)
        return records

    def with_rows(self, sample: Sample) -> CompiledProblems:
        """The same trees with the loss on other rows, without penalties, as their objective."""
        return CompiledProblems(self.tree, TrainingObjective(), sample, self._team)

    def objective(self, problems: Tensor) -> Tensor:
        """E of some problems, (K,)."""
        values = np.empty(len(problems))
        self._team.run(whole.gradients, self._problems(), problems, values, np.empty((len(problems), 0)))
        return torch.from_numpy(values)

    def value_and_gradient(self, problems: Tensor) -> tuple[Tensor, Tensor]:
        """E of some problems (K,), and its gradient in all gates, then all leaves, (K, n)."""
        b = self._problems()
        values = np.empty(len(problems))
        gradient = np.empty((len(problems), b.gates[0].size + b.leaves[0].size))
        self._team.run(whole.gradients, b, problems, values, gradient)
        return torch.from_numpy(values), torch.from_numpy(gradient)

    def leaf_masses(self, problems: Tensor) -> Tensor:
        """Share of each problem's weight whose most probable path ends in each leaf, (K, L)."""
        b = self._problems()
        masses = np.empty((len(problems), b.leaves.shape[1]))
        self._team.run(whole.leaf_masses, b, problems, masses)
        return torch.from_numpy(masses)

    # ------------------------------------------------------------------ internals

    def _problems(self, steps: tuple[int, int] = (0, 0)) -> Any:
        """All problems as they are, with the addresses of what a visit calls."""
        with torch.no_grad():
            gates, leaves = self.tree.gate_parameters().flatten(), self.tree.leaf_parameters().flatten()
        return Problems(  # type: ignore[call-arg]
            self._model,
            self.tree.topology.depth,
            self._features,
            self._split,
            self._owner,
            *self._times,
            self._weight,
            self._rows_per_subject,
            gates.contiguous().numpy(),
            leaves.contiguous().numpy(),
            *self._penalties,
            *steps,
        )

    def _write(self, b: Any) -> None:
        """Put what a kernel has trained into the trees."""
        tree, n_shapes = self.tree, len(self.tree.family.shape_names)
        tree.set_gates(GateParameters.unflatten(torch.from_numpy(b.gates)))
        tree.set_leaves(LeafParameters.unflatten(torch.from_numpy(b.leaves), tree.in_features, n_shapes))


def _array(values: Tensor) -> FloatArray:
    return np.ascontiguousarray(values.detach().numpy())


def _options(options: LBFGSOptions) -> Options:
    kinds = (int, int, int, float, float, int, float, float)
    return Options(*(kind(getattr(options, name)) for name, kind in zip(Options._fields, kinds, strict=True)))


def _times(
    family: HazardFamily, sample: Sample, counts: tuple[int, ...]
) -> tuple[IntArray, tuple[FloatArray, ...]]:
    """Events, functions of time, these at entry, marks of late entry, and who has which."""
    firsts = np.cumsum([0, *counts[:-1]])
    everyone = np.repeat(firsts, counts)
    parts = [sample.log_time, sample.event]
    parts += [] if sample.log_entry is None else [sample.log_entry]
    parts += [value.flatten(1) for value in family.buffers() if value.ndim]
    arrays = [part.numpy() for part in parts if len(part) == len(everyone)]
    alike = all(np.array_equal(part, part[everyone]) for part in arrays)
    chosen = np.unique(everyone) if alike else np.arange(len(everyone))
    owner = np.searchsorted(chosen, everyone) if alike else chosen
    at = torch.from_numpy(chosen)
    own, log_time = family.select(at), sample.log_time[at]
    columns = own.kernel_columns(log_time)
    entry, late = columns[:, :0], log_time[:, :0]
    if sample.log_entry is not None:
        log_entry = sample.log_entry[at]
        since = log_entry.isfinite()
        # Whoever entered at time zero is not late: any time will do.
        entry = own.kernel_columns(torch.where(since, log_entry, log_time))
        late = since.to(log_time)
    return owner.astype(np.int64), tuple(_array(part) for part in (sample.event[at], columns, entry, late))


def _penalties(objective: TrainingObjective, tree: SoftTree) -> tuple[npt.NDArray[Any], ...]:
    """Coefficients of the penalties, a row per problem, in the order of ``Problems``."""
    n, like = tree.n_problems, tree.leaf_parameters()
    ridge, lasso, weight = np.zeros((n, tree.n_gate_features)), np.zeros(n), np.zeros(n)
    cone = np.empty((n, 0, tree.in_features))
    own, apart = (torch.zeros(n, like.flatten().shape[-1], dtype=torch.float64) for _ in range(2))
    for penalty in objective.gate_penalties:
        if isinstance(penalty, GateRidge):
            ridge[:] = _array(penalty.coefficient).reshape(-1, 1)
            if penalty.scale is not None:
                ridge *= _array(penalty.scale) ** 2
        elif isinstance(penalty, GateGroupLasso):
            lasso[:] = _array(penalty.coefficient)
    for penalty in objective.leaf_penalties:
        if isinstance(penalty, Monotone):
            weight[:] = _array(penalty.coefficient)
            cone = _array(penalty.cone)
        elif isinstance(penalty, Ridge):
            own += penalty.curvature(like).flatten(like)[:, 0]
        elif isinstance(penalty, Together):
            apart += penalty.curvature(like).flatten(like)[:, 0]
    # A penalty on distances from the mean of n bends a coefficient by 1 - 1 / n.
    n_leaves = len(tree.topology.leaves)
    apart = apart / (1 - 1 / n_leaves) if n_leaves > 1 else torch.zeros_like(apart)
    shared = np.broadcast_to(objective.shares_slopes.numpy(), n).copy()
    return ridge, lasso, _array(own), _array(apart), shared, weight, cone
