"""The trees of a training run as the compiled engine has them: arrays, and calls of its kernel."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.nn import Exponential, GateParameters, HazardFamily, LeafParameters, SoftTree, Spline
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim.batched_lbfgs import LBFGSOptions
from sstorch.optim.compiled import minimizer, passes, rows

if TYPE_CHECKING:
    from sstorch.optim.run import TrainingRun

LINKS = {"exp": rows.EXP, "logistic": rows.LOGISTIC}
_OPTIONS = ("history", "max_iterations", "max_evaluations", "gradient_tolerance", "relative_tolerance")
_STEPS = {passes.BN: "BN", passes.WLR: "WLR", passes.LN: "LN"}


class CompiledTrees:
    """R trees, which the engine has nothing against, trained in place by as many threads as torch has."""

    def __init__(self, tree: SoftTree, objective: TrainingObjective, sample: Sample, link: str) -> None:
        """``link`` is a key of LINKS."""
        is_spline, n_shapes = isinstance(tree.family, Spline), len(tree.family.shape_names)
        first = sample.x.shape[-1] - tree.in_features
        self._model = (LINKS[link], int(is_spline), first, tree.in_features, n_shapes, 0)
        # The exponential family is Weibull's with a = 1 and -g.
        self._sign = -1.0 if isinstance(tree.family, Exponential) else 1.0
        self._rows = _data(tree.family, sample)
        gates, leaves = tree.gate_parameters(), tree.leaf_parameters()
        seconds = objective.gate_curvature(gates), objective.leaf_curvature(leaves)
        # Second derivatives are all there is of a ridge, the same at each gate and at each leaf.
        self._ridges = tuple(_array(part[:, 0] if part.shape[1] else part.sum(1)) for part in seconds)
        self._n_threads = torch.get_num_threads()
        self._team = ThreadPoolExecutor(self._n_threads, thread_name_prefix="sstorch")

    def train_pass(
        self, run: TrainingRun, thresholds: tuple[float, ...], options: LBFGSOptions, patience: int | None
    ) -> tuple[Tensor, ...]:
        """A pass of the active trees, in place; their standing, see :meth:`TrainingRun.end_pass`."""
        active, tree, best_tree = run.active, run.tree, run.best_tree
        pair = tree, best_tree
        gates, best_gates = (_array(each.gate_parameters().flatten()) for each in pair)
        leaves, best_leaves = (self._sign * _array(each.leaf_parameters().flatten()) for each in pair)
        records = np.full((len(active), max(gates.shape[1], 1), 2, passes.N_RECORDS), np.nan)
        records[..., passes.STEP] = passes.NONE
        standing = np.empty((len(active), passes.MASSES + leaves.shape[1]))
        given = (
            np.zeros(1, np.int64),
            active.numpy(),
            self._model,
            self._rows,
            (gates, leaves),
            self._ridges,
            np.array(thresholds),
            patience or np.iinfo(np.int64).max,
            tuple(float(getattr(options, name)) for name in _OPTIONS),
            (run.best.numpy(), best_gates, best_leaves, run.unimproved.numpy()),
            records,
            standing,
        )
        n_helpers = min(self._n_threads, len(active)) - 1
        helpers = [self._team.submit(passes.run_pass, *given) for _ in range(n_helpers)]
        passes.run_pass(*given)
        for helper in helpers:
            helper.result()
        for to, of_gates, of_leaves in ((tree, gates, leaves), (best_tree, best_gates, best_leaves)):
            to.set_gates(GateParameters.unflatten(torch.from_numpy(of_gates)))
            theta = torch.from_numpy(self._sign * of_leaves)
            to.set_leaves(LeafParameters.unflatten(theta, tree.in_features, self._model[4]))
        value, norm = torch.from_numpy(standing[:, : passes.MASSES]).unbind(-1)
        for step in _steps(records, active):
            run.record(**step)
        run.retire(patience)
        return value, norm, torch.from_numpy(standing[:, passes.MASSES :])


def _steps(records: FloatArray, active: Tensor) -> list[dict[str, Any]]:
    """Records (K, nodes, 2, 8) by nodes, and at a node in the order of torch."""
    steps = []
    visits = [(node, part) for node in range(records.shape[1]) for part in range(2)]
    for (node, part), (code, name) in ((visit, step) for visit in visits for step in _STEPS.items()):
        own = records[:, node, part]
        at = own[:, passes.STEP] == code
        if at.any():
            column = own[at].T
            step: dict[str, Any] = {"problems": active[torch.from_numpy(at)], "node": node + 1, "step": name}
            step["status"] = column[minimizer.STATUS].astype(np.int64)
            step["objective_before"], step["objective_after"] = column[: minimizer.NORM]
            step["gradient_norm"] = column[minimizer.NORM]
            step["evaluations"] = column[minimizer.EVALUATIONS].astype(np.int64)
            step["rows"] = column[passes.COUNT].astype(np.int64)
            step["restarted"] = column[passes.RESTARTED] == 1
            steps.append(step)
    return steps


def _data(family: HazardFamily, sample: Sample) -> tuple[npt.NDArray[Any], ...]:
    """Rows as :data:`passes.DATA`; times that all trees of each split have alike are there once a split."""
    split = np.repeat(np.arange(len(sample.x.counts)), sample.x.counts)
    first = torch.from_numpy(np.searchsorted(split, split))
    parts = [sample.log_time, sample.event, *([] if sample.log_entry is None else [sample.log_entry])]
    parts += [value for value in family.buffers() if value.ndim and len(value) == len(split)]
    alike = all(torch.equal(part, part[first]) for part in parts)
    # Splits without trees, as in a part of a batch, have no times.
    _, own_rows, owner = np.unique(split if alike else np.arange(len(split)), True, True)
    some = torch.from_numpy(own_rows)
    own, log_time = family.select(some), sample.log_time[some]
    times, weights = [_functions(own, log_time, sample.event[some])], [sample.weight]
    if sample.log_entry is not None:
        late = sample.log_entry.isfinite()
        # Who entered at time zero is not late: any time will do.
        entry = torch.where(late[some], sample.log_entry[some], log_time)
        times.append(_functions(own, entry, torch.zeros_like(entry)))
        weights.append(-sample.weight * late)
    per_subject = sample.rows_per_subject
    return (
        _array(sample.x.to_dense().mT),
        split,
        _array(torch.stack(times, 1)),
        owner,
        _array(torch.stack(weights, 1)),
        np.ones(len(split)) if per_subject is None else _array(per_subject[:, 0]),
    )


def _functions(family: HazardFamily, log_time: Tensor, event: Tensor) -> Tensor:
    """Log time, event, and of a spline its functions I_j and N_j, (O, 2 + 2 s, N)."""
    times = torch.stack([log_time, event], -2)
    return torch.cat([times, family.basis(log_time)], -2) if isinstance(family, Spline) else times


def _array(values: Tensor) -> FloatArray:
    return np.ascontiguousarray(values.detach().numpy())
