"""Leaf hazard families by name, and the check of a family of a user."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from sstorch.checks import nearest_text
from sstorch.exceptions import ConfigError
from sstorch.nn.hazards.base import HazardFamily, LogTimes
from sstorch.nn.hazards.gamma import GeneralizedGamma
from sstorch.nn.hazards.logistic_hazard import LogisticHazard
from sstorch.nn.hazards.parametric import (
    Exponential,
    Gompertz,
    LogLogistic,
    LogNormal,
    PiecewiseExponential,
    Weibull,
)
from sstorch.nn.hazards.spline import Spline

_CLASSES = (
    *(Exponential, Weibull, LogLogistic, LogNormal, LogisticHazard, Gompertz, GeneralizedGamma),
    PiecewiseExponential,
)
FAMILIES: dict[str, Callable[..., HazardFamily]] = {family.name: family for family in _CLASSES}
FAMILIES |= {Spline(scale).name: partial(Spline, scale) for scale in ("hazard", "odds", "normal", "theta")}


def make_family(leaf: str | HazardFamily, **options: object) -> HazardFamily:
    """Return the family with the name ``leaf``, or ``leaf`` itself if it is a family.

    Args:
        leaf: a name in ``FAMILIES``, or a family.
        **options: options of the named family, such as ``ancillary="linear"`` or ``knots=3``.

    Raises:
        ConfigError: no family has that name, or it has no such option or value.

    >>> make_family("weibull").shape_names
    ('log_a',)
    >>> make_family("spline_po", knots=1)
    Spline('odds', knots=1, ancillary='constant')
    """
    if isinstance(leaf, HazardFamily):
        if options:
            raise ConfigError(f"{leaf!r} is a family already and takes no options, got {', '.join(options)}")
        return leaf
    if not isinstance(leaf, str) or leaf not in FAMILIES:
        raise ConfigError(
            f"unknown leaf {leaf!r}; known leaves: {', '.join(sorted(FAMILIES))}."
            + nearest_text(str(leaf), FAMILIES.keys())
        )
    try:
        return FAMILIES[leaf](**options)
    except TypeError as error:
        known = ", ".join(FAMILIES[leaf]().options())
        raise ConfigError(f"leaf {leaf!r} has the options {known}: {error}") from error


def register_family(family: type[HazardFamily]) -> type[HazardFamily]:
    """Class decorator: register a user-defined family by its name, so that saved trees can be loaded.

    A class that is defined again, as in a notebook, replaces the previous one.

    Raises:
        ConfigError: another family has that name.
    """
    known = FAMILIES.setdefault(family.name, family)
    if (known.__module__, getattr(known, "__qualname__", "")) != (family.__module__, family.__qualname__):
        raise ConfigError(f"there is a leaf {family.name!r} already; choose another name")
    FAMILIES[family.name] = family
    return family


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
    beginning = family.cumulative_hazard(torch.full_like(linear, _BEGINNING), linear, shape)

    def loss(linear: Tensor, *shapes: Tensor) -> Tensor:
        of_rows = torch.stack(shapes, -1) if shapes else shape
        return family.loss(LogTimes(log_time, torch.ones_like(log_time)), linear, of_rows)

    plain = [linear.expand_as(log_time), *shape.expand(*log_time.shape, -1).unbind(-1)]
    for good, text in (
        (hazard.isfinite(), "H is not a finite number"),
        (hazard >= 0, "H is negative"),
        (hazard.diff(dim=1) >= -1e-3, "H falls with time"),
        (beginning.abs() <= _NEARLY_NOTHING * (1 + hazard[:, -1:]), "H is not 0 at time zero"),
        (loss(*plain).isfinite(), "the loss H - log h is not a finite number"),
    ):
        if not bool(good.all()):
            row, column = (~good).nonzero()[0].tolist()
            raise ConfigError(
                f"{title}: {text}, such as at log time {log_time[row, column]:g}, linear predictor "
                f"{linear[row, 0]:g} and shapes {offset[row, 0]:g}"
            )
    with torch.enable_grad():
        parts = [part.clone().requires_grad_() for part in plain]
        if not torch.autograd.gradcheck(loss, parts, raise_exception=False, fast_mode=True):
            raise ConfigError(f"{title}: autograd's derivatives of the loss differ from differences")
