"""Leaf hazard families by name."""

from collections.abc import Callable
from functools import partial

from sstorch.checks import nearest_text
from sstorch.exceptions import ConfigError
from sstorch.nn.hazards.base import HazardFamily
from sstorch.nn.hazards.gamma import GeneralizedGamma
from sstorch.nn.hazards.logistic_hazard import LogisticHazard
from sstorch.nn.hazards.parametric import Exponential, Gompertz, LogLogistic, LogNormal, Weibull
from sstorch.nn.hazards.piecewise import PiecewiseExponential
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
