"""A trained tree that scores the same rows as its hundred siblings do: rows are encoded once for all."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from sstorch.data import Preprocessor
from sstorch.estimators.likelihood import tree_log_likelihood
from sstorch.nn import Prediction, SoftTree

FloatArray = npt.NDArray[np.float64]

# Elements of the largest intermediate of a prediction.
_CHUNK_ELEMENTS = 2**22


class EncodedRows:
    """Encoded features of tables, kept for as long as this object is.

    Args:
        preprocessor: fitted on the training rows.
        like: tensor whose device and dtype the features take.
    """

    def __init__(self, preprocessor: Preprocessor, like: Tensor) -> None:
        self._preprocessor, self._like = preprocessor, like
        self._known: dict[int, tuple[pd.DataFrame, Tensor]] = {}

    def __call__(self, frame: pd.DataFrame) -> Tensor:
        """Features (n, p)."""
        # The table is kept too, so that its identity is not given to another one.
        if id(frame) not in self._known:
            features = torch.as_tensor(self._preprocessor.transform(frame))
            self._known[id(frame)] = frame, features.to(self._like)
        return self._known[id(frame)][1]


class EncodedTree:
    """One trained tree, without batch dimension.

    Args:
        module: the tree.
        prediction: ``"hbp"`` or ``"mixture"``.
        encode: of the fold, shared by all its trees.
    """

    def __init__(self, module: SoftTree, prediction: Prediction, encode: EncodedRows) -> None:
        self._module, self._prediction, self._encode = module, prediction, encode

    def falling_curves(self, X: pd.DataFrame, times: FloatArray) -> FloatArray:
        """S(t | x), (n, n_times); curves of unconstrained splines that rise as their running minimum."""
        width = 2**self._module.topology.depth if self._prediction == "mixture" else 1
        size = max(1, _CHUNK_ELEMENTS // (width * len(times)))
        at = torch.as_tensor(times)
        with torch.no_grad():
            parts = [
                self._module.cumulative_hazard(x, at.to(x.device), self._prediction).neg().exp().cpu()
                for x in self._encode(X).split(size)
            ]
        curves: FloatArray = torch.cat(parts).double().numpy()
        return np.minimum.accumulate(curves, axis=1) if self._module.family.can_rise else curves

    def log_likelihood(
        self, X: pd.DataFrame, y: tuple[FloatArray, npt.NDArray[np.bool_]], entry: FloatArray | None = None
    ) -> float:
        """Mean log-likelihood per row, in the unit of the data."""
        return tree_log_likelihood(self._module, self._prediction, self._encode(X), *y, entry)
