"""Mean predictions of groups, and differences of neighbours, with intervals given the gates."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from sstorch.checks import check_share
from sstorch.inference.covariance import Inferable, covariance_of
from sstorch.inference.predictions import IDENTITY, Link, Quantity, What, encoded_rows
from sstorch.threads import torch_threads


@torch_threads(1)  # a second one gains nothing on small matrices
def groups(
    model: Inferable,
    X: object,
    what: What = "survival",
    times: npt.ArrayLike | None = None,
    *,
    q: float = 0.5,
    tau: float | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Estimate the mean prediction of each group and differences between adjacent groups, with intervals.

    Intervals are conditional on the gates, and too narrow, since the same rows placed the gates.
    :func:`sstorch.validation.group_table` with ``n_resamples`` corrects Kaplan-Meier estimates for this
    selection.

    Args:
        model: fitted groups.
        X: rows; predictions are averaged over their covariates.
        what: as in :func:`predict`.
        times: times of curves, original units.
        q: level of the quantile, in (0, 1).
        tau: end of the restricted mean, original units.
        level: level of the confidence limits, in (0, 1).

    Returns:
        Indexed by ``group``, number or ``"2 - 1"``, and by cause and time if applicable: ``estimate``,
        ``standard error``, ``lower`` and ``upper``. Groups without rows in X are excluded.

    Raises:
        ConfigError: an argument is out of range, or the model has no covariance.
        DataError: X lacks columns or has no rows.
    """
    check_share(level, "level")
    covariance, fitted = covariance_of(model), model._tree
    quantity = Quantity.of(fitted, what, times, q, tau)
    _, x = encoded_rows(model, X)
    number = fitted.apply(x)
    shown = np.unique(number).tolist()
    means: list[tuple[Tensor, Tensor]] = []
    for group in shown:
        own = x[torch.as_tensor(number == group)]
        chunks = [
            (value.sum(0), moves.sum(0)) for value, moves in quantity.deviations(fitted, covariance, own)
        ]
        value, moves = (torch.stack(each).sum(0) / len(own) for each in zip(*chunks, strict=True))
        means.append((value, moves))
    changes = [(later[0] - first[0], later[1] - first[1]) for first, later in pairwise(means)]
    names = [f"{later} - {first}" for first, later in pairwise(shown)]
    parts = [_table(quantity, means, [str(group) for group in shown], quantity.link, level)]
    if changes:
        parts.append(_table(quantity, changes, names, IDENTITY, level))
    return pd.concat(parts).rename_axis(index={"row": "group"})


def _table(
    quantity: Quantity, parts: list[tuple[Tensor, Tensor]], names: list[str], link: Link, level: float
) -> pd.DataFrame:
    value, moves = (torch.stack(each) for each in zip(*parts, strict=True))
    table = quantity.intervals([(value, moves)], link, level, names).to_frame()
    return table if table.index.nlevels > 1 else table.rename_axis("row")
