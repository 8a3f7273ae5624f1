"""Check of a user's hazard family, before it is trained for the first time."""

from __future__ import annotations

import torch
from torch import Tensor

from sstorch.exceptions import ConfigError
from sstorch.nn.hazards.base import HazardFamily

# Log times, linear predictors and offsets of the shapes at which a family is evaluated.
_LOG_TIMES = (-3.0, -1.0, -0.3, 0.0, 0.4, 1.0, 2.0)
_PREDICTORS, _SHAPES = (-1.5, 0.0, 1.5), (-0.5, 0.0, 0.5)
# At this log time H is nearly 0, even for log times with the tails of a Cauchy distribution.
_BEGINNING, _NEARLY_NOTHING = -60.0, 0.02


@torch.no_grad()
def check_family(family: HazardFamily) -> None:
    """Check that a family, prepared and without batch dimension, is a hazard, on a grid in double precision.

    Raises:
        ConfigError: H is not elementwise, finite, non-negative, non-decreasing and 0 at time zero, or the
            gradient of the loss by autograd differs from differences.
    """
    family, title = family.to(torch.float64), f"leaf family {family.name!r}"
    values = [torch.tensor(part, dtype=torch.float64) for part in (_PREDICTORS, _SHAPES, _LOG_TIMES)]
    grid = torch.cartesian_prod(*values[:2])
    linear, offset, log_time = grid[:, :1], grid[:, 1:], values[2].expand(len(grid), -1)
    shape = offset[..., None].expand(-1, 1, len(family.shape_names))

    def require(good: Tensor, text: str) -> None:
        if not bool(good.all()):
            row, column = (~good).nonzero()[0].tolist()
            raise ConfigError(
                f"{title}: {text}, such as at log time {_LOG_TIMES[min(column, len(_LOG_TIMES) - 1)]:g}, "
                f"linear predictor {float(linear[row, 0]):g} and shapes {float(offset[row, 0]):g}"
            )

    try:
        hazard = torch.as_tensor(family.cumulative_hazard(log_time, linear, shape))
    except Exception as error:
        raise ConfigError(
            f"{title}: cumulative_hazard(log_time, linear, shape) fails on tensors of shapes (9, 7), (9, 1) "
            f"and (9, 1, {len(family.shape_names)}): {error}"
        ) from error
    if (hazard.dtype, hazard.shape) != (log_time.dtype, log_time.shape):
        raise ConfigError(
            f"{title}: cumulative_hazard must be elementwise and keep the dtype: expected a tensor of "
            f"{log_time.dtype} and shape (9, 7), got {hazard.dtype} and {tuple(hazard.shape)}"
        )
    require(hazard.isfinite(), "H is not a finite number")
    require(hazard >= 0, "H is negative")
    require(hazard.diff(dim=1) >= -1e-3, "H falls with time")
    beginning = family.cumulative_hazard(torch.full_like(linear, _BEGINNING), linear, shape)
    require(beginning.abs() <= _NEARLY_NOTHING * (1 + hazard[:, -1:]), "H is not 0 at time zero")

    def loss(linear: Tensor, *shapes: Tensor) -> Tensor:
        of_rows = torch.stack(shapes, -1) if shapes else shape
        return family.loss(log_time, torch.ones_like(log_time), linear, of_rows)

    plain = [linear.expand_as(log_time), *shape.expand(*log_time.shape, -1).unbind(-1)]
    require(loss(*plain).isfinite(), "the loss H - log h is not a finite number")
    with torch.enable_grad():
        parts = [part.clone().requires_grad_() for part in plain]
        if not torch.autograd.gradcheck(loss, parts, raise_exception=False, fast_mode=True):
            raise ConfigError(f"{title}: autograd's derivatives of the loss differ from differences")
