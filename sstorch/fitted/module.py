"""A torch module as a fitted model: it returns the distributions of rows, which are predicted in batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from typing_extensions import override

from sstorch._types import FloatArray
from sstorch.checks import rows_text
from sstorch.exceptions import ConfigError, DataError
from sstorch.fitted.model import FittedModel, in_chunks, panels_of
from sstorch.nn import HazardFamily, SurvivalDistribution


@dataclass(frozen=True)
class FittedModule(FittedModel):
    """A trained module; its rows ``x`` are tensors or arrays (n, ...)."""

    module: nn.Module
    names: tuple[str, ...]  # of the causes
    event_times: FloatArray
    batch_size: int
    parameter: Tensor  # of the device and dtype of the module

    @property
    @override
    def causes(self) -> tuple[str, ...]:
        return self.names

    @property
    @override
    def like(self) -> Tensor:
        return self.parameter

    @property
    @override
    def can_rise(self) -> bool:
        return any(each.can_rise for each in self.module.modules() if isinstance(each, HazardFamily))

    @override
    def panels_for(self, x: Any) -> FloatArray:
        with torch.no_grad():
            found = self.distributions(x[:1])
        return panels_of(((each.family, each.log_time_scale) for each in found), self.event_times)

    @override
    def distributions(self, x: Any) -> list[SurvivalDistribution]:
        found = self.module(self._tensor(x))
        parts = [found]
        if self.competing:  # by name, or by number
            given = {str(key): part for key, part in found.items()} if isinstance(found, Mapping) else {}
            keys = [name if name in given else str(number) for number, name in enumerate(self.causes, 1)]
            parts = [given.get(key) for key in keys] if given.keys() == set(keys) else [None]
        if not all(isinstance(part, SurvivalDistribution) for part in parts):
            each = f" for each cause, {', '.join(self.causes)}, by name" if self.competing else ""
            got = [*found] if isinstance(found, Mapping) else type(found).__name__
            raise ConfigError(
                f"module must return a SurvivalDistribution{each}, got {got}: end it with HazardHead or "
                "SoftTree"
            )
        for part in parts:
            if part.batch_shape or part.n_rows != len(x):
                raise ConfigError(f"module must return distributions of the {len(x)} given rows, got {part}")
        return parts

    def _tensor(self, x: Any) -> Tensor:
        """Rows on the device, floating point values in the dtype of the module."""
        tensor = x if isinstance(x, Tensor) else torch.tensor(np.asarray(x))
        if not tensor.is_floating_point():
            return tensor.to(self.like.device)
        if not bool((finite := tensor.isfinite()).all()):
            bad = ~finite.reshape(len(finite), -1).all(1).cpu().numpy()
            raise DataError(f"X must be finite, got NaN or infinity in {rows_text(bad)} of a batch")
        return tensor.to(self.like)

    @override
    def _by_chunk(self, function: Callable[..., Tensor], row_elements: int, *rows: Any) -> npt.NDArray[Any]:
        return in_chunks(function, self.batch_size, *rows)
