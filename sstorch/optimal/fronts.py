"""Exact trees for objectives of two totals, under the name they had before :mod:`sstorch.exact.fronts`."""

from sstorch.exact.fronts import *  # noqa: F403
from sstorch.exact.fronts import __all__ as __all__
