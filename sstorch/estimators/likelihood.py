"""Log-likelihood of rows under one trained tree."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sstorch import metrics
from sstorch.nn import Prediction, SoftTree

FloatArray = npt.NDArray[np.float64]


def tree_log_likelihood(
    module: SoftTree,
    prediction: Prediction,
    x: Tensor,
    time: FloatArray,
    event: npt.NDArray[np.bool_],
    entry: FloatArray | None = None,
) -> float:
    """Mean log-likelihood per row, c log h(t | x) - H(t | x) + H(entry | x), in original units.

    Args:
        module: without batch dimension.
        prediction: ``"hbp"`` or ``"mixture"``.
        x: encoded features, shape (n, p).
        time: shape (n,).
        event: shape (n,).
        entry: shape (n,); None if all rows were observed from time zero.
    """

    def at(times: FloatArray) -> Tensor:
        return torch.as_tensor(times, device=x.device)[:, None]

    with torch.no_grad():
        hazard = module.cumulative_hazard(x, at(time), prediction)[:, 0]
        log_hazard = module.log_hazard(x, at(time), prediction)[:, 0]
        if entry is not None:
            hazard = hazard - module.cumulative_hazard(x, at(entry), prediction)[:, 0]
    return metrics.log_likelihood(event, hazard.cpu().numpy(), log_hazard.cpu().numpy())
