"""Full binary trees in heap order: root 1, children of n are 2n (left) and 2n + 1 (right)."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

from sstorch.exceptions import ConfigError

MAX_DEPTH = 6


@dataclass(frozen=True)
class Topology:
    """Node numbers of a full binary tree.

    Args:
        depth: number of gates on every path, 0 (a single leaf) to 6.

    Raises:
        ConfigError: if ``depth`` is not an integer from 0 to 6.
    """

    depth: int

    def __post_init__(self) -> None:
        depth: object = self.depth
        is_integer = isinstance(depth, Integral) and not isinstance(depth, bool)
        if not is_integer or int(self.depth) not in range(MAX_DEPTH + 1):
            raise ConfigError(f"depth must be an integer from 0 to {MAX_DEPTH}, got {depth!r}")
        object.__setattr__(self, "depth", int(self.depth))

    @property
    def branches(self) -> range:
        """Branch nodes 1 .. 2^D - 1."""
        return range(1, 2**self.depth)

    @property
    def leaves(self) -> range:
        """Leaves 2^D .. 2^(D+1) - 1, from left to right."""
        return range(2**self.depth, 2 ** (self.depth + 1))

    def level(self, node: int) -> int:
        """Number of gates above ``node``."""
        return node.bit_length() - 1

    def ancestors(self, node: int) -> list[tuple[int, bool]]:
        """Gates on the path from the root to ``node``, each with whether the path turns left there."""
        path = []
        while node > 1:
            path.append((node // 2, node % 2 == 0))
            node //= 2
        return path[::-1]

    def branches_under(self, node: int) -> list[int]:
        """``node`` and the branch nodes below it, in heap order; empty if ``node`` is a leaf."""
        return [n for n in self._under(node) if n in self.branches]

    def leaves_under(self, node: int) -> list[int]:
        """Leaves below ``node``, from left to right; ``[node]`` if it is a leaf."""
        return [n for n in self._under(node) if n in self.leaves]

    def _under(self, node: int) -> list[int]:
        nodes = [node]
        for parent in nodes:
            if parent in self.branches:
                nodes += [2 * parent, 2 * parent + 1]
        return nodes
