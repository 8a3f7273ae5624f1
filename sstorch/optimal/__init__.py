"""Exact trees under the name that they had before :mod:`sstorch.exact`."""

from sstorch.exact import *  # noqa: F403
from sstorch.exact import __all__ as __all__
