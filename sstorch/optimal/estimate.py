"""What a search will take, before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

from sstorch.exceptions import ConfigError

# Up to so many cells, all sets of a size may lie in one array.
PACKED_CELLS = 1 << 23
# Measured on one core with AVX-512: seconds per cell and step, and per floating point operation of a GEMM.
_SECONDS_PER_CELL, _SECONDS_PER_FLOP = 1e-8, 3e-11


@dataclass(frozen=True)
class Work:
    """Size of a search.

    Attributes:
        cells: leaves to be evaluated, each over all steps of the task.
        bytes: memory of the tables and of what is needed beside them.
        seconds: on one core, to within a factor of about three.
    """

    cells: int
    bytes: int
    seconds: float


def estimate(
    n_entries: int, n_features: int, n_steps: int, n_channels: int, depth: int, *, packed: bool = False
) -> Work:
    """Work of a search.

    Args:
        n_entries: entries after equal rows are collapsed.
        n_features: F.
        n_steps: steps of the task.
        n_channels: channels of the task.
        depth: D.
        packed: whether all sets of a size lie in one array, however many there are.
    """
    sets = [comb(n_features, k) for k in range(depth + 1)]
    cells = sum(2**k * s for k, s in enumerate(sets))
    flops = 2 * n_channels * n_entries * sets[depth]
    tables = sum(2**k * n_features**k * (2 if k == depth - 1 else 4) for k in range(1, min(depth, 4)))
    if depth == 5:
        tables += 16 * sum((n_features - x) * x * x for x in range(n_features))
    if packed:  # with what is paid for tests, and products of literals in each row
        tables = cells * (2 * depth + 6) + n_entries * sum(sets[: 1 + depth - depth // 2])
    elif sets[depth] << depth <= PACKED_CELLS:  # all sets of a size in one array, with its index tables
        tables += (cells * (depth + 6)) if depth else 0
    moments = n_channels * n_features ** min(depth, 3) if n_steps == 1 else 0
    work = (n_entries * (n_features + 2 + n_channels) * 2) + moments
    seconds = cells * n_steps * _SECONDS_PER_CELL + flops * _SECONDS_PER_FLOP
    return Work(cells, 8 * (tables + work), seconds)


def check(work: Work, n_features: int, depth: int, memory: int) -> None:
    """Refuse a search that does not fit the memory, or would take years.

    Raises:
        ConfigError: the message gives the estimate and the remedy.
    """
    too_long = work.seconds > 1e7
    if work.bytes <= memory and not too_long:
        return
    raise ConfigError(
        f"{n_features} different binary features are too many for depth {depth}: {work.cells:.2g} leaves to "
        f"evaluate, about {work.bytes / 2**30:.1f} GiB and {_duration(work.seconds)} on one core "
        f"(memory={memory / 2**30:.1f} GiB is allowed). Choose a smaller max_depth, fewer thresholds in the "
        "binarizer, or a larger memory"
    )


def _duration(seconds: float) -> str:
    for size, name in ((86400 * 365.25, "years"), (86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.2g} seconds"
