"""Leaf hazard families, one a file, and their registry."""

from sstorch.exceptions import ConfigError
from sstorch.nn.hazards.base import HazardFamily
from sstorch.nn.hazards.log_logistic import LogLogistic
from sstorch.nn.hazards.weibull import Weibull

FAMILIES: dict[str, type[HazardFamily]] = {family.name: family for family in (LogLogistic, Weibull)}


def make_family(leaf: str | HazardFamily) -> HazardFamily:
    """Return the family that ``leaf`` names, or ``leaf`` itself if it is a family already.

    Raises:
        ConfigError: if no family has that name.

    >>> make_family("weibull").shape_names
    ('log_a',)
    """
    if isinstance(leaf, HazardFamily):
        return leaf
    if not isinstance(leaf, str) or leaf not in FAMILIES:
        raise ConfigError(f"unknown leaf {leaf!r}; known leaves: {', '.join(sorted(FAMILIES))}")
    return FAMILIES[leaf]()


__all__ = ["FAMILIES", "HazardFamily", "LogLogistic", "Weibull", "make_family"]
