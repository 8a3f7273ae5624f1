"""A training run's problems as the compiled engine has them: arrays, and calls spread over threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sstorch.nn import GateParameters, HazardFamily, LeafParameters, SoftTree
from sstorch.objective import Sample, TrainingObjective
from sstorch.objective.penalties import GateGroupLasso, GateRidge, Monotone, Ridge, Together
from sstorch.optim.compiled import visits
from sstorch.optim.compiled.families import KERNELS
from sstorch.optim.compiled.lbfgs import Options, make_model
from sstorch.optim.lbfgs import LBFGSOptions

# Problems that a thread takes at a time are so few that the threads end together.
_TURNS = 8


class CompiledProblems:
    """R problems on the CPU, in double precision.

    Every call begins from the parameters of the trees as they are; :meth:`write` puts there what was trained.

    Args:
        tree: the problems.
        objective: E, without penalties on rows.
        sample: training rows.
    """

    def __init__(self, tree: SoftTree, objective: TrainingObjective, sample: Sample) -> None:
        self.tree = tree
        kernel = tree.family.kernel
        assert kernel is not None  # made where there is one
        self._model = make_model(
            KERNELS.index(kernel),
            sample.x.matrices.shape[-1],
            tree.n_gate_features,
            tree.n_features,
            len(tree.family.shape_names),
            tree.family.ancillary == "linear" and len(tree.family.shape_names) > 0,
            len(tree.topology.branches),
        )
        counts = sample.x.counts
        self._split = np.repeat(np.arange(len(counts)), counts)
        self._features = np.ascontiguousarray(sample.x.matrices.mT.numpy())
        self._weight = _array(sample.weight)
        self._owner, self._times = _times(tree.family, sample, counts)
        self._penalties = _penalties(objective, tree)

    def visit(
        self,
        problems: Tensor,
        node: int,
        thresholds: Sequence[float],
        n_rows: Tensor,
        options: LBFGSOptions,
        records: npt.NDArray[np.float64],
        gates: bool = True,
        leaves: bool = True,
    ) -> None:
        """Visit a node; see :func:`visits.visit`."""
        b, given, limits = self._problems(), _array(n_rows.double()), _options(options)
        numbers = np.array(thresholds, dtype=np.float64)

        def work(some: slice, positions: npt.NDArray[np.int64]) -> None:
            visits.visit(b, positions, node, numbers, given[some], gates, leaves, limits, records[some])

        self._spread(work, problems)
        self._trained = b

    def train_jointly(self, problems: Tensor, options: LBFGSOptions) -> npt.NDArray[np.float64]:
        """All parameters at once; the records (K, n) of :func:`visits.train_jointly`."""
        b, limits = self._problems(), _options(options)
        records = np.empty((len(problems), visits.N_RECORDS))
        self._spread(lambda some, at: visits.train_jointly(b, at, limits, records[some]), problems)
        self._trained = b
        return records

    def train_leaves(self, problems: Tensor, options: LBFGSOptions) -> npt.NDArray[np.float64]:
        """Leaves alone; the records (K, n) of :func:`visits.train_leaves`."""
        b, limits = self._problems(), _options(options)
        records = np.empty((len(problems), visits.N_RECORDS))

        def work(some: slice, positions: npt.NDArray[np.int64]) -> None:
            leaf = np.empty((len(positions), self._weight.shape[1]), dtype=np.int64)
            visits.leaves_of_rows(b, positions, leaf)
            visits.train_leaves(b, positions, leaf, limits, records[some])

        self._spread(work, problems)
        self._trained = b
        return records

    def with_rows(self, sample: Sample) -> CompiledProblems:
        """The same trees with the loss on other rows, without penalties, as their objective."""
        return CompiledProblems(self.tree, TrainingObjective(), sample)

    def objective(self, problems: Tensor) -> Tensor:
        """E of some problems, (K,)."""
        b, values = self._problems(), np.empty(len(problems))
        self._spread(lambda some, at: visits.objectives(b, at, values[some]), problems)
        return torch.from_numpy(values)

    def value_and_gradient(self, problems: Tensor) -> tuple[Tensor, Tensor]:
        """E of some problems (K,), and its gradient in all gates, then all leaves, (K, n)."""
        b = self._problems()
        values = np.empty(len(problems))
        gradient = np.empty((len(problems), b.gates[0].size + b.leaves[0].size))
        self._spread(lambda some, at: visits.gradients(b, at, values[some], gradient[some]), problems)
        return torch.from_numpy(values), torch.from_numpy(gradient)

    def leaf_masses(self, problems: Tensor) -> Tensor:
        """Share of each problem's weight whose most probable path ends in each leaf, (K, L)."""
        b = self._problems()
        leaf = np.empty((len(problems), self._weight.shape[1]), dtype=np.int64)
        self._spread(lambda some, at: visits.leaves_of_rows(b, at, leaf[some]), problems)
        weight = torch.from_numpy(self._weight[problems.numpy()])
        masses = weight.new_zeros(len(problems), b.leaves.shape[1])
        masses.scatter_add_(1, torch.from_numpy(leaf), weight)
        return masses / weight.sum(-1, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny)

    # ------------------------------------------------------------------ internals

    def _problems(self) -> Any:
        with torch.no_grad():
            gates, leaves = self.tree.gate_parameters().flatten(), self.tree.leaf_parameters().flatten()
        return visits.Problems(  # type: ignore[call-arg]
            self._model,
            self.tree.topology.depth,
            self._features,
            self._split,
            self._owner,
            *self._times,
            self._weight,
            gates.contiguous().numpy(),
            leaves.contiguous().numpy(),
            *self._penalties,
        )

    def trained(self, problems: Tensor) -> SoftTree:
        """Some of the trees as the last steps have left them, all parameters frozen."""
        trees = self.tree.select(problems)
        self._fill(trees, problems)
        trees.requires_grad_(False)
        return trees

    def write(self) -> None:
        """Write what the last steps have trained into the trees."""
        self._fill(self.tree, slice(None))

    @torch.no_grad()
    def _fill(self, tree: SoftTree, problems: Tensor | slice) -> None:
        b = self._trained
        gates = GateParameters.unflatten(torch.from_numpy(b.gates)[problems])
        for number, node in enumerate(tree.topology.branches):
            gate = tree.gate(node)
            gate.weight.copy_(gates.weight[:, number])
            gate.bias.copy_(gates.bias[:, number])
        leaves = LeafParameters.unflatten(
            torch.from_numpy(b.leaves)[problems], tree.n_features, len(tree.family.shape_names)
        )
        for number, node in enumerate(tree.topology.leaves):
            leaf = tree.leaf(node)
            leaf.slope.copy_(leaves.slope[:, number])
            leaf.intercept.copy_(leaves.intercept[:, number])
            leaf.shape.copy_(leaves.shape[:, number])
            if leaf.shape_slope is not None:
                leaf.shape_slope.copy_(leaves.shape_slope[:, number])

    def _spread(self, work: Callable[[slice, npt.NDArray[np.int64]], None], problems: Tensor) -> None:
        """Call with parts of some problems, on as many threads as torch has."""
        positions = problems.numpy()
        n_threads = min(torch.get_num_threads(), len(positions))
        if n_threads <= 1:
            if len(positions):
                work(slice(None), positions)
            return
        size = -(-len(positions) // (_TURNS * n_threads))
        parts = [slice(first, first + size) for first in range(0, len(positions), size)]
        with ThreadPoolExecutor(n_threads) as pool:
            # Reading the results passes on an error.
            list(pool.map(lambda some: work(some, positions[some]), parts))


def _array(values: Tensor) -> npt.NDArray[np.float64]:
    return np.ascontiguousarray(values.detach().numpy())


def _options(options: LBFGSOptions) -> Options:
    return Options(
        int(options.history),
        int(options.max_iterations),
        int(options.max_evaluations),
        float(options.gradient_tolerance),
        float(options.relative_tolerance),
        int(options.max_line_search),
        float(options.c1),
        float(options.c2),
    )


def _times(
    family: HazardFamily, sample: Sample, counts: tuple[int, ...]
) -> tuple[npt.NDArray[np.int64], tuple[npt.NDArray[np.float64], ...]]:
    """Events, functions of time, these at entry and marks of late entry, and who has which.

    The problems of a split have the same as a rule, which is stored once.
    """
    firsts = np.cumsum([0, *counts[:-1]])
    everyone = np.repeat(firsts, counts)
    parts = [sample.log_time, sample.event]
    parts += [] if sample.log_entry is None else [sample.log_entry]
    parts += [value.flatten(1) for value in family.buffers() if value.ndim]
    shared = torch.from_numpy(everyone)
    alike = all(torch.equal(part, part[shared]) for part in parts if len(part) == len(everyone))
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
    """Coefficients of the penalties, a row a problem, in the order of ``visits.Problems``."""
    n, like = tree.n_problems, tree.leaf_parameters()
    ridge, lasso, weight = np.zeros((n, tree.n_gate_features)), np.zeros(n), np.zeros(n)
    cone = np.empty((n, 0, tree.n_features))
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
