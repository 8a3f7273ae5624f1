"""A training run: it takes the steps of a trainer, records them, keeps the best trees, and its checkpoint."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import fields, is_dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from types import FunctionType
from typing import Any, Self, TypeVar

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as dump_arrays
from torch import Tensor, nn

from sstorch._types import IntArray
from sstorch.exceptions import ConfigError, FormatError
from sstorch.files import checksum, try_lock, unlock, write_whole
from sstorch.monitoring import Callback, History
from sstorch.nn import HazardFamily, SoftTree
from sstorch.objective import Sample, TrainingObjective
from sstorch.optim.batched_lbfgs import LBFGSOptions, Status
from sstorch.optim.steps import Batch, Minimizer, Step, lbfgs, never_worse
from sstorch.optim.working_sets import JointObjective, joint_step
from sstorch.packing import Arrays, pack, unpack
from sstorch.threads import report

T = TypeVar("T")

Plain = bool | int | float | str | None
# Increased when the content of a file changes, which then is that of other work.
_VERSION = 4
_REMEDY = "delete the file to begin anew"


class Checkpoint:
    """An open file of named states, made by :func:`opened`."""

    def __init__(self, path: Path, digest: str) -> None:
        self._path, self._digest, self._prefix = path, digest, ""
        self._arrays: Arrays = {}
        if not path.exists():
            return
        try:
            with safe_open(path, framework="numpy") as file:
                known = (file.metadata() or {})["digest"]
                self._arrays |= {name: file.get_tensor(name) for name in sorted(file.keys())}
        except (SafetensorError, KeyError) as error:
            raise FormatError(f"{path} is no checkpoint, or truncated ({error}); {_REMEDY}") from error
        if known != digest:
            raise ConfigError(
                f"`checkpoint` must be a file of a run with the same settings, data, starting values, device "
                f"and versions, got {path} of another run: repeat that run, {_REMEDY}, or name another"
            )

    def within(self, part: str) -> Self:
        """Return a part of the same file, with a state of its own."""
        inner = copy(self)  # which shares the arrays
        inner._prefix = f"{self._prefix}{part}/"
        return inner

    def read(self, device: torch.device | str = "cpu") -> Any:
        """Return the state of this part, bit for bit, tensors on a device; None if there is none."""
        start = len(self._prefix)
        arrays = {name[start:]: each for name, each in self._arrays.items() if name.startswith(self._prefix)}
        return unpack(arrays, device) if arrays else None

    def write(self, state: object) -> None:
        """Replace the state of this part, and so the file; ConfigError where it stays unchanged."""
        for name in [name for name in self._arrays if name.startswith(self._prefix)]:
            del self._arrays[name]
        self._arrays |= {f"{self._prefix}{name}": np.array(a, order="C") for name, a in pack(state).items()}
        with _writable(self._path):
            write_whole(self._path, dump_arrays(self._arrays, {"digest": self._digest}))


@contextmanager
def opened(
    checkpoint: Checkpoint | str | os.PathLike[str] | None, **identity: object
) -> Iterator[Checkpoint | None]:
    """Open the checkpoint file of a path, locked to other processes; return an open one, or None, as is."""
    # Work of the same identity continues from the file, on the same number of threads bit for bit, on CUDA up
    # to rounding. ConfigError (other identity, open elsewhere, not writable); FormatError (truncated).
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        yield checkpoint
        return
    path, sha = Path(checkpoint), hashlib.sha256(b"%d" % _VERSION)
    for name, value in plain_values(identity, ""):
        sha.update(f"{name}={value!r}\n".encode())
    if path.is_dir():
        raise ConfigError(f"checkpoint {path} is a folder; name a file in it")
    with _writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = try_lock(_lock_path(path))
    if lock is None:
        raise ConfigError(f"another run is writing {path}; wait for its end, or name another place")
    try:
        yield Checkpoint(path, sha.hexdigest())
    finally:
        unlock(lock)


def is_open(path: Path) -> bool:
    """True if a process has a checkpoint file open, this one or another."""
    if not _lock_path(path).exists():
        return False
    lock = try_lock(_lock_path(path))
    if lock is not None:  # its holder was killed
        unlock(lock)
    return lock is None


def kept(
    checkpoint: Checkpoint | None, part: str, make: Callable[[], T], device: torch.device | str = "cpu"
) -> T:
    """A result that earlier work has kept in a part of a checkpoint; else make it, and keep it there."""
    if checkpoint is None:
        return make()
    place = checkpoint.within(part)
    if place.read() is None:
        place.write(make())
    # Read in either case: a tensor in another memory layout could round otherwise in what follows.
    value: T = place.read(device)
    return value


def plain_values(value: object, name: str) -> Iterator[tuple[str, Plain]]:
    """Settings or data as plain values by dotted names, arrays by checksum; ConfigError for other kinds."""
    parts: Mapping[Any, object] = {}
    if value is None or isinstance(value, bool | str):
        yield name, value
    elif isinstance(value, Integral):
        yield name, int(value)
    elif isinstance(value, Real):  # JSON has no infinity
        yield name, float(value) if np.isfinite(float(value)) else str(value)
    elif isinstance(value, Tensor | np.ndarray):
        content = np.ascontiguousarray(value.detach().cpu() if isinstance(value, Tensor) else value)
        text = f"{content.dtype} {content.shape} sha256 {checksum(content.tobytes())}"
        yield name, float(content) if content.ndim == 0 else text
    elif isinstance(value, pd.DataFrame):
        parts = {"columns": value.columns.tolist(), "rows": pd.util.hash_pandas_object(value).to_numpy()}
    elif isinstance(value, HazardFamily):
        yield name, value.name
        parts = value.options()
    elif isinstance(value, nn.Module):
        yield name, repr(value)
        parts = value.state_dict() | {
            f"{path}.{key}".lstrip("."): item
            for path, module in value.named_modules()
            for key, item in vars(module).items()
            if key[0] != "_" and isinstance(item, bool | int | float | str | Tensor)
        }
    elif is_dataclass(value) and not isinstance(value, type):
        yield name, type(value).__name__
        parts = {item.name: getattr(value, item.name) for item in fields(value)}
    elif isinstance(value, Mapping):
        parts = value
    elif isinstance(value, list | tuple):
        parts = {"count": len(value), **dict(enumerate(value))}
    elif isinstance(value, FunctionType):
        yield name, f"{value.__module__}.{value.__qualname__}"
    else:
        raise ConfigError(
            f"{name} is a {type(value).__name__}, which a checkpoint cannot compare with that of a later "
            "run; use plain values, dataclasses, tensors, modules or functions, or train without a checkpoint"
        )
    for key, part in parts.items():
        yield from plain_values(part, f"{name}.{key}".lstrip("."))


def _lock_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    """ConfigError in place of what the system says of a file."""
    try:
        yield
    except OSError as error:
        text = (
            f"checkpoint {path} cannot be written: {error.strerror or error}; make room or name another place"
        )
        raise ConfigError(text + "; the passes it holds are not lost" * path.is_file()) from error


# Of a state, in addition to the trees.
_STATE = ("best", "active", "unimproved", "n_passes", "finished", "history")
_STATUSES = np.array([status.name for status in Status])


class TrainingRun:
    """State of one run.

    Attributes:
        tree: R problems at their present points.
        best_tree: the same problems at the best points so far.
        best: their E, shape (R,).
        active: ascending positions of the problems that still train.
        unimproved: calls of :meth:`keep_best` since a problem improved, shape (R,).
        n_passes: passes recorded so far.
        finished: whether the run was finished when its checkpoint was written.
        compiled: ``CompiledTrees``, if a decomposition is to use the compiled engine.
    """

    def __init__(
        self,
        tree: SoftTree,
        objective: TrainingObjective,
        rows: Sample,
        callbacks: Sequence[Callback] = (),
        checkpoint: Checkpoint | None = None,
        compiled: Any = None,
    ) -> None:
        self.tree, self.compiled = tree, compiled
        # Coefficients of penalties that had to travel at each evaluation would make the device wait.
        self.objective = objective.to(rows.weight.device)
        self.rows, self.n_rows = rows, rows.n_rows
        self.callbacks, self._checkpoint = callbacks, checkpoint
        self.history, self.n_passes, self.finished = History(), 0, False
        self.everyone = self.active = torch.arange(tree.n_problems, device=rows.weight.device)
        self.best_tree = tree.select(self.everyone)
        self.unimproved = torch.zeros_like(self.everyone)
        self.accept()
        # E where the problems stand and the norm of its gradient, nan where they are unknown.
        self._value, self._norm = torch.full_like(self.best, torch.nan), torch.full_like(self.best, torch.nan)
        self._most_passes = 1

    def train(self, steps: Callable[[TrainingRun], Iterable[Step]], n_passes: int) -> None:
        """Take the steps of a trainer; leave the trees at their best points, trainable again."""
        self.tree.requires_grad_(False)
        self._most_passes = n_passes
        for callback in self.callbacks:
            callback.on_train_begin(self.tree, n_passes)
        try:
            state = None if self._checkpoint is None else self._checkpoint.read(self.best.device)
            if state is None:
                self.n_passes = -1  # the initial solution is pass 0
                self.end_pass()
                self.save()
            else:
                self._resume(state)
            for step in () if self.finished else steps(self):
                self.take(step)
        finally:
            # Also after an interruption the trees are the best so far, and as trainable as they came.
            self.go_to_best()
            self.tree.requires_grad_(True)
            for callback in self.callbacks:
                callback.on_train_end(self.history)
        if not self.finished:
            self.objective.project(self.tree)
            self.best_tree.load_state_dict(self.tree.state_dict())
            self.finished = True
            self.save()

    def take(self, step: Step) -> None:
        """Take a step: minimise, write the trees back into the batch and record it; after E keep the best."""
        problems, tree = step.batch.problems, step.batch.tree
        if problems is None or len(problems) == 0:
            return
        result, restarted = step.minimize()
        self.tree.assign(problems, tree)
        self._value[problems] = self._norm[problems] = torch.nan
        self.record(
            problems,
            step.node,
            step.name,
            result.status.cpu().numpy(),
            objective_before=result.start_value,
            objective_after=result.value,
            gradient_norm=result.gradient_norm,
            evaluations=result.n_evaluations,
            rows=step.batch.rows.n_rows,
            restarted=restarted,
        )
        if isinstance(step.objective, JointObjective):
            self.look(problems)
            self.keep_best()

    def step(
        self,
        nodes: Iterable[int] | None = None,
        *,
        name: str | None = None,
        minimizer: Minimizer | LBFGSOptions = lbfgs,
    ) -> Step:
        """The step that minimises E over any set of nodes of the active problems, all other nodes frozen.

        A problem keeps its parameters where the minimiser ends at a value of E, with all penalties, that is
        higher or not finite. Where gates are trained, penalties on rows are relaxed (:class:`RowPenalty`).

        Args:
            nodes: numbers of gates and leaves: the root is 1, the children of node s are 2s and 2s + 1; None
                for all.
            name: of the step in the records, whose node is the first of ``nodes``; by default the numbers, as
                ``"2+3"``.
            minimizer: options of the batched L-BFGS, the default; :func:`torch_minimizer` for optimisers of
                torch; or a function of a :class:`~sstorch.optim.steps.StepObjective` and starting values
                (K, d) that returns an :class:`OptimizationResult`.

        Raises:
            ConfigError: ``nodes`` is empty or contains a number that is no node.
        """
        topology = self.tree.topology
        known = [*topology.branches, *topology.leaves]
        chosen = known if nodes is None else sorted(set(nodes))
        if not chosen or not set(chosen) <= set(known):
            gates = f"gates (1 to {topology.leaves[0] - 1}) and leaves" if topology.branches else "leaves"
            raise ConfigError(
                f"`nodes` must be numbers of {gates} ({topology.leaves[0]} to {topology.leaves[-1]}), got "
                f"{chosen}: the children of node s are 2s and 2s + 1"
            )
        made = joint_step(self.copy(), chosen, relaxed=chosen[0] in topology.branches)
        if minimizer is not lbfgs and not isinstance(minimizer, LBFGSOptions):
            minimizer = never_worse(minimizer)
        return replace(made, name=name or "+".join(map(str, chosen)), minimizer=minimizer)

    def batch(self, problems: Tensor) -> Batch:
        """Some problems (K,) at their present points, with all their rows, to be read or selected from."""
        tree, rows = self.present(problems)
        everything = rows if len(self.objective.row_penalties) else None
        return Batch(tree, self.objective.select(problems), rows, everything, problems)

    def copy(self) -> Batch:
        """The active problems for a step, which changes its trees, a copy."""
        return replace(self.batch(self.active), tree=self.tree.select(self.active))

    def present(self, problems: Tensor) -> tuple[SoftTree, Sample]:
        """Trees and rows of some problems, to be read; the batch itself if they are all."""
        if len(problems) == self.tree.n_problems:
            return self.tree, self.rows
        return self.tree.select(problems), self.rows.select(problems)

    @torch.no_grad()
    def criterion(self, problems: Tensor) -> Tensor:
        """E of some problems where they stand, shape (K,)."""
        value: Tensor = self.objective.select(problems)(*self.present(problems))
        return value

    def look(self, problems: Tensor) -> None:
        """Evaluate E and its gradient where some problems stand, for :meth:`keep_best` and the record."""
        step = joint_step(self.batch(problems))
        self._value[problems], gradient = step.value_and_gradient(step.read())
        self._norm[problems] = gradient.abs().amax(-1)

    def keep_best(self, patience: int | None = None) -> None:
        """Keep improvements of the active problems, and retire those without one for so many calls."""
        value = self._value[self.active]
        unknown = value.isnan()
        if bool(unknown.any()):
            value[unknown] = self.criterion(self.active[unknown])
        # A difference that only rounding makes is no improvement, or patience would depend on the batch.
        best = self.best[self.active]
        rounding = 32 * torch.finfo(best.dtype).eps * (1 + best.abs())
        improved = torch.where(best.isfinite(), value < best - rounding, value < best)
        self.unimproved[self.active] = torch.where(improved, 0, self.unimproved[self.active] + 1)
        better = self.active[improved]
        if len(better):
            self.best[better] = value[improved]
            self.best_tree.assign(better, self.tree, better)
        self.retire(patience)

    def retire(self, patience: int | None) -> None:
        """Train the problems no longer whose last improvement is so many calls of :meth:`keep_best` ago."""
        if patience is not None:
            self.active = self.active[self.unimproved[self.active] < patience]

    def go_to_best(self) -> None:
        """Make the best points the present ones."""
        self.tree.load_state_dict(self.best_tree.state_dict())
        self._value.fill_(torch.nan)
        self._norm.fill_(torch.nan)

    def accept(self) -> None:
        """Make the present points the best ones, also where their criterion is higher."""
        self.best_tree.load_state_dict(self.tree.state_dict())
        # Any finite point is better than one that is not.
        self.best = torch.nan_to_num(self.criterion(self.everyone), nan=torch.inf)

    def record(self, problems: Tensor, node: int, step: str, status: IntArray, **columns: Any) -> None:
        """Add a step of some problems (K,), each with a :class:`Status`, to the history."""
        given = {key: value.cpu() if isinstance(value, Tensor) else value for key, value in columns.items()}
        place = {"problem": problems.cpu(), "macro_iteration": self.n_passes + 1, "node": node}
        self.history.add_steps(**place, step=step, status=_STATUSES[status], **given)

    def end_pass(self, problems: Tensor | None = None, standing: tuple[Tensor, ...] | None = None) -> Tensor:
        """Count a pass of some problems (K,), by default the active ones; max-norms of gradients of E (K,).

        Recorded is their ``standing``: E, these norms, and the shares of the weight of the rows whose path
        ends in each leaf, (K, L).
        """
        self.n_passes += 1
        report("training", self.n_passes, max(self.n_passes, self._most_passes))
        problems = self.active if problems is None else problems
        if standing is None:
            if bool(self._norm[problems].isnan().any()):
                self.look(problems)
            tree, rows = self.present(problems)
            with torch.no_grad():
                ends = torch.nn.functional.one_hot(tree.apply_leaf(rows.x), len(tree.topology.leaves))
                masses = (rows.normalised_weight[..., None] * ends).sum(-2)
            standing = self._value[problems], self._norm[problems], masses
        self._value[problems], self._norm[problems], masses = standing
        topology, gates = self.tree.topology, self.tree.gate_parameters().weight[problems].detach()
        columns = {f"mass_{n}": mass for n, mass in zip(topology.leaves, masses.unbind(-1), strict=True)}
        norms = zip(topology.branches, gates.norm(dim=-1).unbind(-1), strict=True)
        columns |= {f"gate_norm_{n}": own for n, own in norms}
        columns |= {"objective": self._value[problems], "best_objective": self.best[problems]}
        columns |= {"problem": problems, "gradient_norm": self._norm[problems]}
        every = {name: column.cpu() for name, column in columns.items()}
        self.history.add_macro_iteration(macro_iteration=self.n_passes, **every)
        for callback in self.callbacks:
            callback.on_macro_iteration(self.n_passes, self.history)
        return columns["gradient_norm"]

    def save(self) -> None:
        """Write the checkpoint, if there is to be one, between two passes."""
        if self._checkpoint is not None:
            trees = {"tree": dict(self.tree.state_dict()), "best_tree": dict(self.best_tree.state_dict())}
            self._checkpoint.write(trees | {name: getattr(self, name) for name in _STATE})

    def _resume(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint, and repeat its passes to the callbacks."""
        self.tree.load_state_dict(state["tree"])
        self.best_tree.load_state_dict(state["best_tree"])
        for name in _STATE:
            setattr(self, name, state[name])
        for number in range(self.n_passes + 1):
            for callback in self.callbacks:
                callback.on_macro_iteration(number, self.history.until(number))
