"""Checks of a user's hazard family, before it is trained for the first time."""

from __future__ import annotations

import torch
from torch import Tensor

from sstorch.exceptions import ConfigError
from sstorch.nn.hazards.base import HazardFamily

# Log times, linear predictors and offsets of the shapes at which a family is looked at.
_LOG_TIMES = (-3.0, -1.0, -0.3, 0.0, 0.4, 1.0, 2.0)
_PREDICTORS, _SHAPES = (-1.5, 0.0, 1.5), (-0.5, 0.0, 0.5)
# Log time at which nearly nothing may have happened yet, even with tails as those of a Cauchy distribution of
# log times, and what counts as nearly nothing; what counts as a fall.
_BEGINNING, _NEARLY_NOTHING, _NOTHING = -60.0, 0.02, 1e-3
_STEP, _TOLERANCE = 1e-6, 1e-4


@torch.no_grad()
def check_family(family: HazardFamily) -> None:
    """Check that a family is a hazard: H(0) = 0, increasing, finite, with the gradient of autograd.

    The check uses a grid of log times, linear predictors and shapes around zero, in double precision.
    Estimators run it when they first train a custom family.

    Args:
        family: prepared on training rows, if it has constants, and without batch dimension.

    Raises:
        ConfigError: a property does not hold; the message names it and the grid point.
    """
    family, title = family.to(torch.float64), f"leaf family {family.name!r}"
    values = [torch.tensor(part, dtype=torch.float64) for part in (_PREDICTORS, _SHAPES, _LOG_TIMES)]
    grid = torch.cartesian_prod(*values[:2])
    linear, offset, log_time = grid[:, :1], grid[:, 1:], values[2].expand(len(grid), -1)
    shape = offset[..., None].expand(-1, 1, len(family.shape_names))

    def require(good: Tensor, text: str) -> None:
        if not bool(good.all()):
            row, column = (~good).nonzero()[0].tolist()
            at = _LOG_TIMES[min(column, len(_LOG_TIMES) - 1)]
            raise ConfigError(
                f"{title}: {text}, such as at log time {at:g}, linear predictor {float(linear[row, 0]):g} "
                f"and shapes {float(offset[row, 0]):g}"
            )

    try:
        hazard = family.cumulative_hazard(log_time, linear, shape)
    except Exception as error:
        raise ConfigError(
            f"{title}: cumulative_hazard(log_time, linear, shape) fails on tensors of shapes (9, 7), (9, 1) "
            f"and (9, 1, {len(family.shape_names)}): {error}"
        ) from error
    found, wanted = ((h.dtype, tuple(h.shape)) for h in (torch.as_tensor(hazard), log_time))
    if found != wanted:
        raise ConfigError(
            f"{title}: cumulative_hazard must be elementwise and keep the dtype: expected a tensor of "
            f"{wanted[0]} and shape {wanted[1]}, got {found[0]} and {found[1]}"
        )
    require(hazard.isfinite(), "H is not a finite number")
    require(hazard >= 0, "H is negative")
    if not family.can_rise:
        require(hazard.diff(dim=1) >= -_NOTHING, "H falls with time (set can_rise if some curves rise)")
    beginning = family.cumulative_hazard(torch.full_like(linear, _BEGINNING), linear, shape)
    require(beginning.abs() <= _NEARLY_NOTHING * (1 + hazard[:, -1:]), "H is not 0 at time zero")
    event, shape = torch.ones_like(log_time), shape.expand(*log_time.shape, -1)
    plain = [linear.expand_as(log_time), *shape.unbind(-1)]

    def loss(linear: Tensor, *shapes: Tensor) -> Tensor:
        return family.loss(log_time, event, linear, torch.stack(shapes, -1) if shapes else shape)

    with torch.enable_grad():
        parts = [part.clone().requires_grad_() for part in plain]
        total = loss(*parts)
        slopes = torch.autograd.grad(total.sum(), parts, allow_unused=True, materialize_grads=True)
    require(total.detach().isfinite(), "the loss H - log h is not a finite number")
    names = ["the linear predictor", *(f"shape {name!r}" for name in family.shape_names)]
    for place, (name, slope) in enumerate(zip(names, slopes, strict=True)):
        ahead, behind = (
            loss(*(part + step * (place == k) for k, part in enumerate(plain))) for step in (_STEP, -_STEP)
        )
        expected = (ahead - behind) / (2 * _STEP)
        close = (slope - expected).abs() <= _TOLERANCE * (1 + expected.abs() + ahead.abs())
        require(close, f"autograd's derivative of the loss in {name} differs from differences")
