"""Blocks of problems that are evaluated one after the other, so that what is between passes stays near."""

from __future__ import annotations

import torch

# Elements of the largest intermediate, (problems, leaves, rows). On the CPU blocks that fit the second level
# cache take a fifth off the time of a run, smaller ones add more calls than they save; other devices want to
# be filled, within their memory.
CPU_ELEMENTS = 2**17
OTHER_ELEMENTS = 2**25


def problem_blocks(n_problems: int, n_elements: int, device: torch.device) -> list[slice]:
    """Cut a batch into blocks.

    Args:
        n_problems: K.
        n_elements: of the largest intermediate for one problem.
        device: that they are on.

    Returns:
        slices of at least one problem each; a single one if K is 0.
    """
    budget = CPU_ELEMENTS if device.type == "cpu" else OTHER_ELEMENTS
    size = max(1, budget // max(1, n_elements))
    return [slice(first, min(first + size, n_problems)) for first in range(0, max(1, n_problems), size)]
