"""Plan of a search: engine, work, and order of depths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import comb
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from sstorch._types import FloatArray
from sstorch.checks import check_choice
from sstorch.exact.compiled.forms import BLOCKS, FOLLOWED, Form, form_of
from sstorch.exact.deadline import Deadline
from sstorch.exact.moments import Moments, Patterns
from sstorch.exact.problem import MAX_EXACT_DEPTH, Found, Problem, Work, branch_cost, check, estimate
from sstorch.exact.rounding import quantise
from sstorch.exact.search import search_tables
from sstorch.exact.survival_tasks import IntegratedBrier
from sstorch.exact.task import Entries, Task, has_branch_costs
from sstorch.exceptions import ConfigError
from sstorch.optim import ENGINES, Engine

if TYPE_CHECKING:
    from sstorch.exact.compiled.search import CompiledProblem

# Depths that branch and bound over thresholds is for; seconds of the tables from which on it is taken, if it
# takes less, and those that it may take where there is no room for tables.
_MAX_BOUNDED_DEPTH = 3
_LONG_TABLES, _LONG_BOUNDS = 60.0, 3600.0

# Depth of branch and bound above tables.
MAX_DEEP_DEPTH = 8

# "auto" has machine code made, which may take as long, for what torch would need longer for, by its estimate,
# or search root by root. The choice is by the problem alone, never by what a machine has compiled before.
_LONG = 20.0

# Of a search in torch, by its estimate: in shorter ones threads wait for each other longer than they save.
_SECONDS_FOR_THREADS = 0.12

Run = Callable[[int, int, Deadline], Found]


class Plan(NamedTuple):
    """A search to come."""

    run: Run  # searches by depth, nodes and deadline
    work: Work  # what it takes
    # those that are to be searched one after the other, the last one being the one asked for
    depths: tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """A search: rows, a task and its entries, and how much of `sizes` a leaf needs, `least`."""

    patterns: Patterns
    task: Task
    entries: Entries
    sizes: Entries | None
    least: tuple[int, ...]

    def torch_work(self, depth: int) -> Work:
        """Memory and time of a search on a device."""
        task, entries = self.task, self.entries
        n_entries = len(self.patterns.literals) if task.n_steps == 1 else len(entries.row)
        return estimate(
            n_entries,
            self.patterns.n_features,
            task.n_steps,
            len(entries.values),
            depth,
            packed=has_branch_costs(task),
        )

    def torch_plan(self, depth: int, memory: int, place: torch.device, n_threads: int) -> Plan:
        """A search on a device. Raises ConfigError: it does not fit the memory."""
        task, work = self.task, self.torch_work(depth)
        check(work, self.patterns.n_features, depth, memory)
        moments = Moments.of(self.patterns, self.entries, task.n_steps, place)
        sizes = None if self.sizes is None else Moments.of(self.patterns, self.sizes, 1, place)
        cost_of_test = branch_cost(task, self.patterns.columns)
        threads = n_threads if place.type == "cpu" and work.seconds > _SECONDS_FOR_THREADS else 1
        problem = Problem(task, moments, sizes, *self.least, branch_cost=cost_of_test, n_threads=threads)
        return Plan(partial(search_tables, problem), work, (depth,))

    def compiled_plan(
        self, depth: int, max_nodes: int, all_sizes: bool, penalty: float, memory: int, n_threads: int
    ) -> Plan:
        """The same in machine code, on as many threads as fit the memory.

        Tables of all sets, or, where these would be too many, branch and bound, unless trees of all sizes up
        to `max_nodes` are wanted.

        Raises:
            ConfigError: it does not fit the memory.
        """
        n_features, problem = self.patterns.n_features, self._problem(depth, memory)
        work, fitting = self._room(problem, depth, max_nodes, memory, n_threads)
        bounds = not all_sizes and n_features > 0 and depth <= _MAX_BOUNDED_DEPTH
        bounds = bounds and problem.form.kind not in (BLOCKS, FOLLOWED) and not has_branch_costs(self.task)
        fits = work.bytes <= memory
        if bounds and not (fits and work.seconds < _LONG_TABLES):
            plan = self._bounded_plan(problem, depth, penalty, n_threads)
            if plan.work.seconds < (work.seconds if fits else max(work.seconds, _LONG_BOUNDS)):
                return plan
        check(work, n_features, depth, memory)
        return Plan(partial(problem.search, n_threads=fitting), work, (depth,))

    def _bounded_plan(self, problem: CompiledProblem, depth: int, penalty: float, n_threads: int) -> Plan:
        """Branch and bound over thresholds."""
        from sstorch.exact.compiled.bounded import Bounded

        bounded = Bounded(problem, penalty, n_threads)

        def run(d: int, nodes: int, deadline: Deadline) -> Found:
            return bounded.search(d, deadline)

        return Plan(run, bounded.work(depth), tuple(range(depth + 1)))

    def deep_plan(
        self,
        depth: int,
        penalty: float,
        floor: FloatArray,
        guess: FloatArray | None,
        memory: int,
        n_threads: int,
    ) -> Plan:
        """Branch and bound over the upper levels of a tree, as many as have no room in tables.

        `floor` (U,) bounds the costs of distinct rows; `guess` (U,) as well, but is not sure, see `Deep`.

        Raises:
            ConfigError: the tables do not fit the memory, or the search would take years.
        """
        from sstorch.exact.deep import Deep

        base, n_features = min(depth - 1, MAX_EXACT_DEPTH), self.patterns.n_features
        problem = self._problem(base, memory)
        work, threads = self._room(problem, base, 2**base - 1, memory, n_threads)
        while work.bytes > memory and base > 2:
            base -= 1
            work, threads = self._room(problem, base, 2**base - 1, memory, n_threads)
        # Without bounds each set of the features above is searched.
        above = comb(n_features, depth - base) << (depth - base)
        work = Work(work.cells * above, work.bytes, work.seconds * above, above)
        check(work, n_features, depth, memory)
        deep = Deep(problem, penalty, floor, guess, base, threads)

        def run(d: int, nodes: int, deadline: Deadline) -> Found:
            return deep.search(d, deadline) if d == depth else problem.search(d, nodes, deadline, threads)

        return Plan(run, work, (*range(1, base), depth))

    def _problem(self, depth: int, memory: int) -> CompiledProblem:
        """The problem in machine code, for searches up to a depth.

        Raises:
            ConfigError: these sums alone do not fit the memory.
        """
        # numba takes a while to load, which only a search by it need wait for.
        from sstorch.exact.compiled.curves import Curves, Leavers
        from sstorch.exact.compiled.prices import Prices
        from sstorch.exact.compiled.search import CompiledProblem

        n_patterns, n_features = self.patterns.literals.shape
        form, curves = form_of(self.task), Curves.none(n_features)
        assert form is not None
        if isinstance(self.task, IntegratedBrier):
            blocks, leavers = self.task.blocks, Leavers.of(self.patterns, self.task)
            if leavers.followed(len(blocks.alive), depth, n_patterns, n_features):
                form, curves = Form(FOLLOWED), Curves.of(leavers, self.patterns, blocks)
                values = leavers.at_risk(n_patterns)
            else:
                room = 24 * n_patterns * len(blocks.alive)
                if room > memory:
                    raise ConfigError(
                        f"sums of {n_patterns} different rows in {len(blocks.alive)} blocks of the time axis "
                        f"take {room / 2**30:.2g} GiB (memory={memory / 2**30:.1f} GiB is allowed). Put the "
                        "times in buckets (n_buckets), or allow more memory"
                    )
                values = leavers.sums(n_patterns, len(blocks.alive))
        else:
            values = self.patterns.sums(self.entries)
        values, _ = quantise(values)
        if self.sizes is not None:
            values = np.concatenate([values, self.patterns.sums(self.sizes)])
            form = form._replace(least=np.array(self.least, dtype=np.float64))
        prices = Prices.of(self.task, self.patterns.columns[self.patterns.order])
        return CompiledProblem.of(self.patterns, values, form, curves, prices)

    def _room(
        self, problem: CompiledProblem, depth: int, max_nodes: int, memory: int, n_threads: int
    ) -> tuple[Work, int]:
        """Memory of the tables of a search, and number of threads that fit."""
        from sstorch.exact.compiled.search import estimate_compiled

        n_patterns, n_features = problem.literals.shape
        size = n_patterns, len(problem.curves.literals), n_features, len(problem.values), depth, max_nodes
        work = estimate_compiled(*size, n_threads)
        while n_threads > 1 and work.bytes > memory:
            n_threads -= 1
            work = estimate_compiled(*size, n_threads)
        return work, n_threads


def obstacle(task: Task, device: torch.device) -> str | None:
    """Why the compiled engine cannot search for trees of a task; None if it can."""
    if device.type != "cpu":
        return f"it runs on the CPU alone, not on {device.type}: use device='cpu'"
    if form_of(task) is None:
        kind = "compiled cost of tests" if has_branch_costs(task) else "compiled cost"
        return f"{type(task).__name__} has no {kind}"
    return None


def compiles(engine: Engine, task: Task, device: torch.device, work: Callable[[], Work], memory: int) -> bool:
    """Whether the compiled engine is to search, given the work for torch and the bytes that may be used.

    Raises ConfigError: an unknown engine, or ``"compiled"`` where it cannot; the message gives the reason.
    """
    check_choice(engine, "engine", ENGINES)
    if engine == "torch":
        return False
    reason = obstacle(task, device)
    if engine == "auto":
        if reason is not None:
            return False
        torchs = work()
        return torchs.searches > 1 or torchs.seconds > _LONG or torchs.bytes > memory
    if reason is not None:
        raise ConfigError(f"engine='compiled' cannot search this: {reason}; use engine='torch'")
    return True
