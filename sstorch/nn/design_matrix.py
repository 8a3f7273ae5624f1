"""The rows that the problems of a batch look at, stored once per data split."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class DesignMatrix:
    """Feature matrices shared by the problems of a batch.

    A batch holds problems of one or more splits (folds). Problems of a split read the same matrix, in
    which the split's own preprocessing is already applied; no matrix is copied per problem. Problems are
    ordered by split.

    Attributes:
        matrices: features, shape (n_splits, n_rows, p). Shorter splits are padded at the end.
        counts: number of problems of each split; their sum is R.
        rows: optional rows each problem keeps, shape (R, M), integer; ``None`` keeps all.
    """

    matrices: Tensor
    counts: tuple[int, ...]
    rows: Tensor | None = None

    @property
    def n_rows(self) -> int:
        """Rows per problem, M."""
        return int(self.matrices.shape[1] if self.rows is None else self.rows.shape[1])

    def project(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Linear scores of every problem's own rows: one matrix product per split.

        Args:
            weight: shape (R, K, p), one row per node.
            bias: shape (R, K).

        Returns:
            weight . x + bias, shape (R, K, M), rows last.
        """
        parts = [
            torch.matmul(part, matrix.T)
            for part, matrix, count in zip(weight.split(self.counts), self.matrices, self.counts, strict=True)
            if count
        ]
        scores = parts[0] if len(parts) == 1 else torch.cat(parts)
        if self.rows is not None:
            scores = scores.gather(-1, self.rows[:, None, :].expand(-1, scores.shape[1], -1))
        return scores + bias[..., None]

    def select(self, problems: Tensor) -> DesignMatrix:
        """The same rows for some of the problems, given by ascending positions (K,)."""
        split = torch.repeat_interleave(torch.tensor(self.counts, device=problems.device))[problems]
        counts = torch.bincount(split, minlength=len(self.counts))
        rows = None if self.rows is None else self.rows[problems]
        return replace(self, counts=tuple(counts.tolist()), rows=rows)

    def restrict(self, rows: Tensor) -> DesignMatrix:
        """Keep, for each problem, the rows at positions ``rows`` (R, M') of those it has now."""
        return replace(self, rows=rows if self.rows is None else self.rows.gather(-1, rows))
