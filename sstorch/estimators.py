"""The estimators under the name that they had before :mod:`sstorch.soft` and :mod:`sstorch.exact`."""

from sstorch.conformal import ConformalLowerBound
from sstorch.exact.estimators import *  # noqa: F403
from sstorch.exact.estimators import __all__ as _exact
from sstorch.soft import *  # noqa: F403
from sstorch.soft import __all__ as _soft

__all__ = ["ConformalLowerBound", *_exact, *_soft]
