"""Formulas in the order in which they are computed, with what several of them share."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from sstorch.deploy.expression import Expression, Formula


@dataclass(frozen=True)
class Steps:
    """Formulas in the order in which they are computed: each step is a name and what it represents.

    Expressions that several others need, and those that have a name, are steps; others stand inside them.
    """

    # name and expression; arguments that are steps themselves are ``"step"`` expressions
    steps: tuple[tuple[str, Expression], ...]
    results: tuple[Expression, ...]  # the results, as expressions of steps

    @classmethod
    def of(cls, *results: Expression) -> Steps:
        """Find what is shared."""
        interned = _interned(results)
        count: dict[int, int] = {}
        for a in _in_order(interned):
            for b in a.args:
                count[id(b)] = count.get(id(b), 0) + 1
        steps: list[tuple[str, Expression]] = []
        taken: set[str] = set()
        done: dict[int, Expression] = {}
        for a in _in_order(interned):
            new = Expression(a.op, tuple(done[id(b)] for b in a.args), a.value)
            named = a.op == "let"
            if named:
                new = new.args[0]
            plain = new.op in ("constant", "time", "step", "number")
            if (named or count.get(id(a), 0) > 1) and not plain:
                name = _free(str(a.value) if named else f"v{len(steps) + 1}", taken)
                steps.append((name, new))
                new = Expression("step", value=name)
            done[id(a)] = new
        return cls(tuple(steps), tuple(done[id(a)] for a in interned))

    def moving(self) -> set[str]:
        """Names of the steps that depend on time."""
        found: set[str] = set()
        for name, a in self.steps:
            if _depends_on_time(a, found):
                found.add(name)
        return found


def used_columns(formula: Formula) -> list[str]:
    """Names of the columns that a formula reads, in their order."""
    hazards = formula.hazards
    results = [formula.group, formula.survival, *formula.incidence.values()]
    results += [] if hazards is None else [*hazards.log_hazard.values(), hazards.cumulative]
    found = set()
    for a in _in_order(results):
        if a.op == "known":
            found.add(a.value)
        elif a.op in ("number", "category"):
            assert isinstance(a.value, tuple)
            found.add(a.value[0])
    return [name for name in formula.columns if name in found]


def _depends_on_time(a: Expression, moving: Collection[str]) -> bool:
    """Whether an expression depends on time, or on one of the steps that do."""
    if a.op == "step":
        return a.value in moving
    return a.op == "time" or any(_depends_on_time(b, moving) for b in a.args)


def _interned(results: Sequence[Expression]) -> list[Expression]:
    """The same expressions, equal parts being one object."""
    known: dict[tuple[object, ...], Expression] = {}
    done: dict[int, Expression] = {}
    for a in _in_order(results):
        new = Expression(a.op, tuple(done[id(b)] for b in a.args), a.value)
        done[id(a)] = known.setdefault(new.key, new)
    return [done[id(a)] for a in results]


def _in_order(results: Sequence[Expression]) -> Iterator[Expression]:
    """Every expression once, after its arguments; without recursion, since sums are long."""
    seen: set[int] = set()
    stack = [(a, False) for a in reversed(results)]
    while stack:
        a, ready = stack.pop()
        if ready:
            yield a
        elif id(a) not in seen:
            seen.add(id(a))
            stack.append((a, True))
            stack.extend((b, False) for b in reversed(a.args))


def _free(name: str, taken: set[str]) -> str:
    free, k = name, 2
    while free in taken:
        free, k = f"{name}_{k}", k + 1
    taken.add(free)
    return free
