"""Training rows in a fixed number of parts, in one process or spread over several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import torch
import torch.distributed as dist
from torch import Tensor

from sstorch.exceptions import ConfigError
from sstorch.objective.sample import Sample


@dataclass(frozen=True)
class Shards:
    """The rows of a batch in S shards, of which this process holds some.

    Sums over rows are formed within each shard and added up in the order of the shards, which does not depend
    on who holds them: a run with the same S gives the same numbers in one process or in several. Within one
    process the shards are worked through one after the other, which bounds the memory that they take.

    Attributes:
        parts: the shards of this process, in order.
        group: processes that hold the others, rank r the r-th of equal portions; None if this one holds all.
    """

    parts: tuple[Sample, ...]
    group: dist.ProcessGroup | None = None

    @classmethod
    def of(cls, sample: Sample) -> Shards:
        """All rows as a single shard."""
        return cls((sample,))

    @classmethod
    def cut(cls, sample: Sample, n_shards: int) -> Shards:
        """Cut the rows into consecutive shards and keep this process's share.

        Args:
            sample: all rows, the same in every process; none left out of its design matrix.
            n_shards: S; processes of an initialised ``torch.distributed`` share them equally.

        Raises:
            ConfigError: ``n_shards`` is not from 1 to the number of rows, or cannot be shared equally.
        """
        n_rows = sample.weight.shape[-1]
        if isinstance(n_shards, bool) or not isinstance(n_shards, int) or not 1 <= n_shards <= n_rows:
            raise ConfigError(f"n_shards must be an integer from 1 to {n_rows}, the rows, got {n_shards!r}")
        group = dist.group.WORLD if dist.is_available() and dist.is_initialized() else None
        size, rank = (dist.get_world_size(), dist.get_rank()) if group is not None else (1, 0)
        if n_shards % size:
            raise ConfigError(f"n_shards must be a multiple of the {size} processes, got {n_shards}")
        if n_shards == 1:
            return cls((sample,), group)
        ends = [round(k * n_rows / n_shards) for k in range(n_shards + 1)]
        own = n_shards // size
        chosen = range(rank * own, (rank + 1) * own)
        return cls(tuple(sample.columns(slice(ends[k], ends[k + 1])) for k in chosen), group).normalised()

    @property
    def is_whole(self) -> bool:
        """Whether there is a single shard, in a single process."""
        return len(self.parts) == 1 and self.group is None

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.parts[0].weight.device

    @property
    def counts(self) -> tuple[int, ...]:
        """Problems of each split."""
        return self.parts[0].x.counts

    @property
    def n_rows(self) -> Tensor:
        """Rows of each problem that carry weight, in all shards, shape (R,), integer."""
        return self.sum(lambda part: part.n_rows)

    def map(self, function: Callable[[Sample], Sample]) -> Shards:
        """The shards of this process, each transformed."""
        return replace(self, parts=tuple(function(part) for part in self.parts))

    def select(self, problems: Tensor) -> Shards:
        """The same rows for the problems at ascending positions (K,)."""
        return self.map(lambda part: part.select(problems))

    def restrict(self, keep: Callable[[Sample], Tensor]) -> Shards:
        """Rows that ``keep`` says to, boolean (R, M) for a shard; see :meth:`Sample.restrict`."""
        return self.map(lambda part: part.restrict(keep(part))).normalised()

    def normalised(self) -> Shards:
        """The shards, each with the total weight of the rows in all of them."""
        if self.is_whole:
            return self
        total = self.sum(lambda part: part.weight.sum(-1, keepdim=True))
        return self.map(lambda part: replace(part, total_weight=total))

    def sum(self, function: Callable[[Sample], Tensor]) -> Tensor:
        """Sum over all shards of a tensor that each gives, of the same shape."""
        return self.total([function(part) for part in self.parts])

    def total(self, values: Sequence[Tensor]) -> Tensor:
        """Sum over all shards of tensors of the same shape, given for those of this process."""
        if self.group is not None:
            own = torch.stack(list(values)).contiguous()
            everyone = [torch.empty_like(own) for _ in range(dist.get_world_size(self.group))]
            dist.all_gather(everyone, own, group=self.group)
            values = [value for part in everyone for value in part]
        return reduce(torch.add, values)

    def gather(self, values: Sequence[Tensor]) -> tuple[Tensor, list[slice]]:
        """Put the rows of all shards beside each other.

        Args:
            values: shape (..., M) for each shard of this process, M its own.

        Returns:
            shape (..., sum of all M); and where in it the shards of this process are.
        """
        widths = [value.shape[-1] for value in values]
        first = 0
        whole = torch.cat(list(values), dim=-1)
        if self.group is not None:
            size, rank = dist.get_world_size(self.group), dist.get_rank(self.group)
            counts = [torch.zeros(1, dtype=torch.long, device=whole.device) for _ in range(size)]
            dist.all_gather(counts, torch.tensor([whole.shape[-1]], device=whole.device), group=self.group)
            lengths = [int(count) for count in counts]
            padded = torch.nn.functional.pad(whole, (0, max(lengths) - whole.shape[-1])).contiguous()
            everyone = [torch.empty_like(padded) for _ in range(size)]
            dist.all_gather(everyone, padded, group=self.group)
            whole = torch.cat([part[..., :n] for part, n in zip(everyone, lengths, strict=True)], dim=-1)
            first = sum(lengths[:rank])
        own = []
        for width in widths:
            own.append(slice(first, first + width))
            first += width
        return whole, own
