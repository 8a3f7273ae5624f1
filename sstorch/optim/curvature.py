"""Curvature pairs of batched L-BFGS and the direction they define."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sstorch.optim.metric import BlockMetric


@dataclass
class CurvatureHistory:
    """The last m curvature pairs of K problems, and the quasi-Newton direction they define.

    With R the upper triangle of S Yᵀ in order of age and D its diagonal, the two loops of L-BFGS (Nocedal and
    Wright 2006, algorithm 7.4) are two triangular systems, the compact form of Byrd, Nocedal and Schnabel
    (1994), Mathematical Programming 63, 129-156:

        a = R⁻¹ S g,   q = g - Yᵀ a,   b = R⁻ᵀ (D a - γ Y q),   H g = γ q + Sᵀ b.

    With a metric M, γ M takes the place of γ. R⁻¹ itself is kept. Forgetting the oldest pair strikes a row
    and a column out of it, a new pair adds a column, and both hold for any order of the rows; so pairs stay
    where they were written, each problem overwrites its own oldest one, and nothing is shifted or solved. An
    empty slot is a row and a column of zeros, whatever its s and y. There are m + 1 slots, and the next to be
    written is always empty.
    """

    s: Tensor  # (K, m + 1, d)
    y: Tensor  # (K, m + 1, d)
    inverse: Tensor  # (K, m + 1, m + 1), R⁻¹
    diagonal: Tensor  # (K, m + 1), D
    scale: Tensor  # (K,), γ
    count: Tensor  # (K,) int64, pairs remembered since the last reset

    @classmethod
    def empty(cls, x: Tensor, m: int) -> CurvatureHistory:
        """No pairs yet, for points x (K, d) and at most m pairs each."""
        k, d = x.shape
        return cls(
            s=x.new_zeros(k, m + 1, d),
            y=x.new_zeros(k, m + 1, d),
            inverse=x.new_zeros(k, m + 1, m + 1),
            diagonal=x.new_zeros(k, m + 1),
            scale=x.new_ones(k),
            count=torch.zeros(k, dtype=torch.int64, device=x.device),
        )

    def direction(self, gradient: Tensor, metric: BlockMetric | None = None) -> Tensor:
        """The step -H g (K, d) for gradients g (K, d), the first guess of H a metric or, if None, 1."""
        a = _times(self.inverse, _times(self.s, gradient))
        q = gradient - _combine(a, self.y)
        q = self.scale[:, None] * (q if metric is None else metric(q))
        b = _combine(self.diagonal * a - _times(self.y, q), self.inverse)
        return -(q + _combine(b, self.s))

    def append(self, s: Tensor, y: Tensor, problems: Tensor, metric: BlockMetric | None = None) -> None:
        """Remember steps s (K, d) and gradient changes y (K, d) where `problems` (K,) and curvature allow."""
        sy, yy = (s * y).sum(-1), (y * y).sum(-1)
        keep = problems & (sy > torch.finfo(s.dtype).eps * yy)
        if metric is not None:
            yy = (y * metric(y)).sum(-1)
        slots = torch.arange(self.s.shape[1], device=s.device)
        slot = (self.count % len(slots))[:, None]
        self.count = self.count + keep
        following = (self.count % len(slots))[:, None, None]

        # A pair that is not kept stays invisible, its column being zero.
        at = slot[:, :, None].expand(-1, 1, s.shape[1])
        self.s.scatter_(1, at, s[:, None, :])
        self.y.scatter_(1, at, y[:, None, :])
        self.diagonal.scatter_(1, slot, sy[:, None])
        # The column of the inverse: -R⁻¹ (S y) / s·y, and 1 / s·y on the diagonal.
        column = _times(self.inverse, _times(self.s, y)).masked_fill(slots == slot, -1.0) / -sy[:, None]
        column = torch.where(keep[:, None], column, 0.0)
        self.inverse.scatter_(2, slot[:, :, None].expand(-1, len(slots), 1), column[:, :, None])
        # The oldest pair heads its row and is alone in its column.
        self.inverse.scatter_(1, following.expand(-1, 1, len(slots)), 0.0)
        self.scale = torch.where(keep, sy / yy, self.scale)

    def forget(self, problems: Tensor) -> None:
        """Drop all pairs where `problems` (K,) is true."""
        self.inverse.masked_fill_(problems[:, None, None], 0.0)
        self.scale = self.scale.masked_fill(problems, 1.0)
        self.count = self.count.masked_fill(problems, 0)


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    """Matrix (K, i, j) times vector (K, j), summed in an order that does not depend on K."""
    return (matrix * vector[:, None, :]).sum(-1)


def _combine(weight: Tensor, matrix: Tensor) -> Tensor:
    """Sum of the rows of matrix (K, i, j) with weights (K, i)."""
    return (weight[:, :, None] * matrix).sum(1)
