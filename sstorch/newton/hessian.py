"""Hessians in which the block of one category is diagonal, and systems of equations with them.

A row has one level of a category, so that second derivatives between two levels are zero. The block of the
largest category is eliminated by its Schur complement; what is left is dense.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from sstorch.batched import SHARED, Batched
from sstorch.exceptions import TrainingError

# Shares of the diagonal that are added to it in turn where a matrix is not positive definite: for rounding,
# then Levenberg's, each a multiple of the one before; and the least diagonal, as a share of the largest.
_FIRST_LIFT, _LEVENBERG, _GROWTH, _LEAST = 1e-8, 1e-3, 4.0, 1e-6


@dataclass(frozen=True)
class Hessian(Batched):
    """Second derivatives of K problems by D coefficients, E of which are eliminated.

    They are stored for an intercept u that is counted from where all indicators are zero. Where the model
    counts it from the centre of the indicators, as it does so that coefficients are penalised alike with and
    without codes, the intercept of the model is ``form . theta``, theta with u in place of the intercept.
    """

    kept: Tensor  # between the coefficients that stay, (K, D - E, D - E)
    cross: Tensor  # of these and those that are eliminated, (K, D - E, E)
    diagonal: Tensor  # of those that are eliminated, (K, E)
    form: Tensor | None = None  # the intercept of the model as a linear form, (K, D); None where it is u
    # positions of the coefficients that stay, then of those that are eliminated, (D,); None for all in order
    order: Tensor | None = field(default=None, metadata=SHARED)

    @classmethod
    def of(cls, matrices: Tensor) -> Hessian:
        """Of symmetric matrices (K, D, D), of which nothing is eliminated."""
        return cls(matrices, matrices[:, :, :0], matrices[:, 0, :0])

    def times(self, theta: Tensor) -> Tensor:
        """Products with vectors (K, D)."""
        if self.form is not None:
            theta = theta.clone()
            theta[:, 0] = 2 * theta[:, 0] - (self.form * theta).sum(-1)
        kept, gone = self.parts(theta)
        of_kept = _product(self.kept, kept) + _product(self.cross, gone)
        out = self.joined(of_kept, _product(self.cross.mT, kept) + self.diagonal * gone)
        if self.form is None:
            return out
        return out - out[:, :1] * _without_first(self.form)

    def parts(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """What stays and what is eliminated of values of the coefficients, (K, D, ...)."""
        values = values if self.order is None else values[:, self.order]
        return values[:, : self.kept.shape[-1]], values[:, self.kept.shape[-1] :]

    def joined(self, kept: Tensor, gone: Tensor) -> Tensor:
        """Inverse of :meth:`parts`."""
        values = torch.cat([kept, gone], 1)
        return values if self.order is None else torch.empty_like(values).index_copy_(1, self.order, values)

    def factored(self, precision: Tensor) -> System:
        """The system with a precision (K, D) added, and more where it is not positive definite (Levenberg).

        The absolute diagonal is added to itself, in growing shares, until the matrix is positive definite.

        Raises:
            TrainingError: second derivatives are not finite.
        """
        system, failed = self._factored(precision)
        if not bool(failed.any()):
            return system
        if not all(bool(part.isfinite().all()) for part in (self.kept, self.cross, self.diagonal)):
            raise TrainingError(
                "second derivatives of the likelihood are not finite: try another leaf, or fixed penalties"
            )
        own = (self._own_diagonal() + precision).abs()
        largest = own.amax(-1, keepdim=True).clamp(min=_FIRST_LIFT)
        # What rounding took away is of the size of the largest.
        added, share = torch.where(failed[:, None], _FIRST_LIFT * largest, 0.0), _LEVENBERG
        system, failed = self._factored(precision + added)
        indefinite = failed
        while bool(failed.any()):
            added = torch.where(failed[:, None], share * torch.maximum(own, _LEAST * largest), added)
            # The intercept u has no prior of its own: what its linear form gets may not be enough.
            system, failed = self._factored(precision + added, added[:, :1] if share > 1e3 else None)
            share = _GROWTH * share
        return replace(system, indefinite=indefinite)

    def _factored(self, precision: Tensor, of_u: Tensor | None = None) -> tuple[System, Tensor]:
        """The system, with more for u (K, 1), and whether it is not positive definite, boolean (K,)."""
        of_intercept = precision[:, :1]
        if self.form is not None:
            first = torch.zeros_like(of_intercept) if of_u is None else of_u
            precision = torch.cat([first, precision[:, 1:]], 1)
        kept, gone = self.parts(precision)
        diagonal, matrix = self.diagonal + gone, self.kept + torch.diag_embed(kept)
        failed = ~(diagonal > 0).all(-1)
        if diagonal.shape[1]:
            matrix = matrix - torch.matmul(self.cross / diagonal[:, None], self.cross.mT)
        factor, info = torch.linalg.cholesky_ex(matrix)
        return System.of(self, factor, diagonal, of_intercept), failed | (info > 0)

    def _own_diagonal(self) -> Tensor:
        """Diagonal of the Hessian by the coefficients of the model, (K, D)."""
        out = self.joined(self.kept.diagonal(dim1=-2, dim2=-1), self.diagonal)
        if self.form is None:
            return out
        form = _without_first(self.form)
        with_first = self.joined(self.kept[:, :, 0], self.cross[:, 0])
        return out - 2 * form * with_first + form.square() * self.kept[:, :1, 0]

    def dense(self) -> Tensor:
        """As matrices (K, D, D)."""
        eye = torch.eye(self.kept.shape[-1] + self.diagonal.shape[-1], dtype=self.kept.dtype)
        columns = [self.times(row.to(self.kept).expand(len(self.kept), -1)) for row in eye]
        return torch.stack(columns, -1)


@dataclass(frozen=True)
class System(Batched):
    """Hessians with precisions on the diagonal, factored."""

    hessian: Hessian  # without the precisions
    factor: Tensor  # Cholesky factors of the Schur complements, (K, D - E, D - E)
    diagonal: Tensor  # with the precisions, of what is eliminated, (K, E)
    of_intercept: Tensor  # precision of the intercept of the model, (K, 1)
    form: Tensor | None  # solution for the linear form of the intercept, (K, D); None where there is none
    indefinite: Tensor  # whether more than rounding was added to make it positive definite, boolean (K,)

    @classmethod
    def of(cls, hessian: Hessian, factor: Tensor, diagonal: Tensor, of_intercept: Tensor) -> System:
        """From the factors."""
        definite = torch.zeros(len(factor), dtype=torch.bool, device=factor.device)
        system = cls(hessian, factor, diagonal, of_intercept, None, definite)
        if hessian.form is None:
            return system
        return replace(system, form=system._plain(hessian.form[..., None]).squeeze(-1))

    def solve(self, right: Tensor) -> Tensor:
        """Solutions for right-hand sides (K, D, m)."""
        form = self.hessian.form
        if form is None or self.form is None:
            return self._plain(right)
        right = right + _without_first(form)[..., None] * right[:, :1]
        out = self._plain(right)
        # The precision of the intercept is one of a sum of coefficients: Sherman and Morrison's formula.
        along = torch.matmul(form[:, None], out)
        out = out - self.form[..., None] * (self._share[..., None] * along)
        first = torch.matmul(form[:, None], out)
        return torch.cat([first, out[:, 1:]], 1)

    def variances(self) -> Tensor:
        """Diagonal of the inverse, (K, D)."""
        hessian, inverse = self.hessian, torch.cholesky_inverse(self.factor)
        gone = self.diagonal
        if gone.shape[1]:
            ratio = hessian.cross / self.diagonal[:, None]
            gone = 1 / self.diagonal + (ratio * torch.matmul(inverse, ratio)).sum(1)
        out = hessian.joined(inverse.diagonal(dim1=-2, dim2=-1), gone)
        if hessian.form is None or self.form is None:
            return out
        out = out - self._share * self.form.square()
        along = (hessian.form * self.form).sum(-1, keepdim=True)
        return torch.cat([along / (1 + self.of_intercept * along), out[:, 1:]], 1)

    def log_determinant(self) -> Tensor:
        """Of each system, (K,)."""
        out = 2 * self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) + self.diagonal.log().sum(-1)
        if self.hessian.form is None or self.form is None:
            return out
        return out + torch.log1p(self.of_intercept[:, 0] * (self.hessian.form * self.form).sum(-1))

    @property
    def _share(self) -> Tensor:
        assert self.hessian.form is not None
        assert self.form is not None
        along = (self.hessian.form * self.form).sum(-1, keepdim=True)
        return self.of_intercept / (1 + self.of_intercept * along)

    def _plain(self, right: Tensor) -> Tensor:
        """Solutions without the precision of a linear form, and for the intercept u."""
        hessian = self.hessian
        kept, gone = hessian.parts(right)
        if not gone.shape[1]:
            return torch.cholesky_solve(kept, self.factor)
        scaled = gone / self.diagonal[..., None]
        kept = torch.cholesky_solve(kept - torch.matmul(hessian.cross, scaled), self.factor)
        back = torch.matmul(hessian.cross.mT, kept) / self.diagonal[..., None]
        return hessian.joined(kept, scaled - back)


def _product(matrix: Tensor, vector: Tensor) -> Tensor:
    return torch.matmul(matrix, vector[..., None]).squeeze(-1)


def _without_first(form: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(form[:, :1]), form[:, 1:]], 1)
