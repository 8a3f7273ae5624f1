"""Survival at one time as a regressor, for tools that explain any model."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from sstorch._types import FloatArray
from sstorch.base import SurvivalEstimator
from sstorch.data.columns import labels


class SurvivalAt(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """S(time | x) of a fitted model as a regressor, for scikit-learn's inspection and for shap.

    Args:
        model: fitted.
        time: in the unit of the training times.

    >>> from sstorch import SurvivalRegression, load_dataset
    >>> data = load_dataset("gbsg2")
    >>> survival = SurvivalAt(SurvivalRegression().fit(data.frame, data.y), 1825)
    >>> survival.predict(data.frame[:2]).round(2)
    array([0.47, 0.56])
    >>> survival.predict(survival.encode(data.frame[:2])).round(2)
    array([0.47, 0.56])
    """

    def __init__(self, model: SurvivalEstimator, time: float) -> None:
        self.model = model
        self.time = time

    def fit(self, X: object, y: object = None) -> Self:
        """Do nothing: the model is already fitted."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        check_is_fitted(self.model)
        return True

    def encode(self, X: object) -> FloatArray:
        """Encode rows as numbers (n, p): categories as positions in the vocabulary, NaN if missing.

        Args:
            X: n rows with the training columns.
        """
        schema = self.model._schema
        frame = schema.frame_of(X)
        columns = {}
        for name in schema.inputs:
            if name in schema.categories:
                codes = pd.Categorical(labels(frame[name]), list(schema.categories[name])).codes
                columns[name] = np.where(codes < 0, np.nan, codes)
            else:
                columns[name] = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
        return np.column_stack(list(columns.values()))

    def predict(self, X: object) -> FloatArray:
        """S(time | x), (n,).

        Args:
            X: n rows with the training columns, or an array (n, p) from :meth:`encode`.
        """
        rows = self.decode(X) if isinstance(X, np.ndarray) else X
        return self.model.predict_survival_function(rows, self.time)[:, 0]

    def decode(self, X: npt.ArrayLike) -> pd.DataFrame:
        """Decode rows from numbers, the inverse of :meth:`encode`.

        Args:
            X: array or frame (n, p) from :meth:`encode`.
        """
        schema = self.model._schema
        frame = pd.DataFrame(np.asarray(X, dtype=np.float64), columns=list(schema.inputs))
        for name, words in schema.categories.items():
            codes = frame[name].fillna(-1).astype(int)
            frame[name] = pd.Categorical.from_codes(codes.to_numpy(), pd.Index(words))
        return frame
