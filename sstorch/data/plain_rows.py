"""Few rows of plain values, encoded without pandas, for services that predict one patient at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import FloatArray
from sstorch.data.columns import LARGEST
from sstorch.data.preprocessing import FAR, Preprocessor

# Rows up to which cells are read one by one; for more pandas is faster. Text in so few rows is not looked
# through for numbers (sstorch.data.columns).
_FEW = 8
# Levels of a category above which its indicators are not worked out.
_MOST_LEVELS = 16


class PlainRows:
    """Encodes rows as :meth:`Preprocessor.transform` does, bit for bit, where that does not warn or raise."""

    def __init__(self, preprocessor: Preprocessor) -> None:
        schema, self._preprocessor = preprocessor.schema, preprocessor
        self._columns = schema.columns
        self._takes_arrays = schema.takes_arrays and not schema.categories
        self._fill = np.array([preprocessor.fill_.get(name, np.nan) for name in schema.columns])
        self._levels: dict[str, dict[str, int]] = {}
        self._first: list[int] = []
        at = 0
        for name in schema.columns:
            self._first.append(at)
            if (words := schema.categories.get(name)) is not None:
                self._levels[name] = {word: at + k for k, word in enumerate(words)}
            at += 1 if words is None else len(words)
        self._n_encoded = at
        # Numbers that are compared with the training range.
        self._ranged = np.array([k is None for _, k in schema.origins]) & (preprocessor.scale_ != 0)
        checked = preprocessor.offset is not None or preprocessor.strata is not None
        self._is_able = (
            not checked
            and not schema.missing
            and all(len(words) <= _MOST_LEVELS for words in self._levels.values())
        )

    def transform(self, X: object) -> FloatArray | None:
        """Encoded rows of a frame or array, (n, q), n <= 8.

        None if they are more, or need :meth:`Preprocessor.transform`, its messages or warnings.
        """
        z = self._indicators(X) if self._is_able else None
        if z is None:
            return None
        z -= self._preprocessor.offset_
        z *= self._preprocessor.scale_
        if ((z < -FAR) | (z > 1 + FAR))[:, self._ranged].any():
            return None
        basis = self._preprocessor.basis_
        return z if basis is None else basis.transform(z)

    def _indicators(self, X: object) -> FloatArray | None:
        """Numbers, missing ones filled in, and indicators of categories, (n, p)."""
        if isinstance(X, np.ndarray):
            return self._of_array(X)
        if not isinstance(X, pd.DataFrame) or not 0 < len(X) <= _FEW:
            return None
        place = {name: k for k, name in enumerate(X.columns)}
        if len(place) != X.shape[1] or X.shape[1] > 2 * len(self._columns) + _MOST_LEVELS:
            return None
        dtypes = X.dtypes.tolist()
        cells = X.to_numpy(dtype=object)
        out = np.zeros((len(X), self._n_encoded))
        for name, first, fill in zip(self._columns, self._first, self._fill, strict=True):
            if (k := place.get(name)) is None:
                return None
            levels, dtype = self._levels.get(name), dtypes[k]
            if levels is None:
                if not isinstance(dtype, np.dtype) or dtype.kind not in "fiub":
                    return None
                numbers = cells[:, k].astype(np.float64)
                out[:, first] = np.where(np.isnan(numbers), fill, numbers)
                continue
            for row, cell in enumerate(cells[:, k]):
                if type(cell) is not str or (level := levels.get(cell)) is None:
                    return None
                out[row, level] = 1.0
        return None if (np.abs(out) > LARGEST).any() else out

    def _of_array(self, X: npt.NDArray[np.generic]) -> FloatArray | None:
        plain = X.ndim == 2 and X.dtype.kind in "fiub" and 0 < len(X) <= _FEW
        if not (plain and self._takes_arrays and X.shape[1] == len(self._columns)):
            return None
        numbers = X.astype(np.float64)
        out = np.where(np.isnan(numbers), self._fill, numbers)
        return None if (np.abs(out) > LARGEST).any() else out
