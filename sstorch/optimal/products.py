"""Exact sums over rows: matrix products of 0/1 literals with integers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor

# Fractions are rounded to this many bits below the largest one; fewer if sums need it.
_BITS = 46
_BASE_BITS = 8
_LARGEST_SUM = 2.0**53
# With fewer rows it takes longer to put the digits of sums together than it saves.
MANY_ROWS = 1000


def quantise(values: Tensor) -> tuple[Tensor, Tensor]:
    """Round each channel (C, E) to multiples of a power of two, so coarse that all sums of it are exact.

    Integers stay as they are.

    Returns:
        The values (C, E), and the unit of each channel (C,).
    """
    size = values.abs()
    largest = size.amax(1).clamp_min(1e-300)
    unit = torch.exp2(torch.ceil(torch.log2(largest)) - _BITS)
    coarsest = torch.exp2(torch.ceil(torch.log2(size.sum(1).clamp_min(1e-300) / _LARGEST_SUM)))
    unit = torch.maximum(unit, coarsest)
    whole = (values == values.round()).all(1)
    unit = torch.where(whole, torch.ones_like(unit), unit)
    return torch.round(values / unit[:, None]) * unit[:, None], unit


@cache
def _has_int8_instructions() -> bool:
    supported = getattr(torch.cpu, "_is_vnni_supported", None)
    return hasattr(torch, "_int_mm") and supported is not None and bool(supported())


@dataclass(frozen=True)
class RowSums:
    """Sums over rows of values times products of literals, exact.

    Attributes:
        literals: (U, F) uint8, on the device of the search.
        values: (C, U) float64, multiples of `unit` by channel.
        unit: (C,).
        int8: whether to multiply digits of 8 bits instead of float64; the sums are the same.
    """

    literals: Tensor
    values: Tensor
    unit: Tensor
    int8: bool

    @classmethod
    def of(cls, literals: Tensor, values: Tensor, unit: Tensor) -> RowSums:
        """With 8-bit digits where they are faster: many rows, on a processor with instructions for them."""
        int8 = literals.device.type == "cpu" and len(literals) >= MANY_ROWS and _has_int8_instructions()
        return cls(literals, values, unit, int8)

    @cached_property
    def rows(self) -> Tensor:
        """(U, F) literals in the dtype of the products."""
        return self.literals.to(torch.int8 if self.int8 else torch.float64).contiguous()

    @cached_property
    def columns(self) -> Tensor:
        """(F, U), the same."""
        return self.rows.T.contiguous()

    @cached_property
    def weights(self) -> Tensor:
        """(U, G), the values in the dtype of the products, G digits in all; without digits G = C."""
        return (self._digits[0] if self.int8 else self.values).T.contiguous()

    def weighted(self, products: Tensor, rows: Tensor | None = None) -> Tensor:
        """(n, G, L): products of literals (n, L), times the weights of all or of some rows."""
        weights = self.weights if rows is None else self.weights.index_select(0, rows)
        return weights.unsqueeze(2) * products.unsqueeze(1)

    @cached_property
    def _digits(self) -> tuple[Tensor, list[tuple[int, int, float]]]:
        """Signed digits of all channels, and for each its channel's number, its place and its worth."""
        rows, places = [], []
        whole = torch.round(self.values / self.unit[:, None]).to(torch.int64)
        for channel, rest in enumerate(whole):
            place = 0
            while place == 0 or bool(rest.any()):
                digit = ((rest + 128) & 255) - 128
                rows.append(digit.to(torch.int8))
                worth = float(self.unit[channel]) * 2.0 ** (_BASE_BITS * place)
                places.append((channel, place, worth))
                rest = (rest - digit) >> _BASE_BITS
                place += 1
        return torch.stack(rows), places

    def multiply(self, products: Tensor, weighted: Tensor) -> Tensor:
        """Sums over rows of values times products of literals.

        Args:
            products: (R, n).
            weighted: (n, G, L), products times weights.

        Returns:
            (C, R, L) float64.
        """
        _, n_digits, size = weighted.shape
        if not self.int8:
            sums = (products @ weighted.flatten(1)).view(-1, n_digits, size)
            return sums.movedim(1, 0)
        digits = torch._int_mm(products, weighted.flatten(1)).view(-1, n_digits, size)
        out = self.values.new_empty(len(self.values), len(products), size)
        for number, (channel, place, worth) in enumerate(self._digits[1]):
            if place == 0:
                torch.mul(digits[:, number], worth, out=out[channel])
            else:
                out[channel].add_(digits[:, number], alpha=worth)
        return out
