"""Scores of trained trees on rows that were left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from sstorch import metrics
from sstorch.data import Preprocessor, SurvivalData
from sstorch.exceptions import DataError
from sstorch.nn import Prediction, SoftTree

FloatArray = npt.NDArray[np.float64]
Scoring = Literal["log_likelihood", "c_harrell", "ibs"]
SCORINGS: tuple[str, ...] = get_args(Scoring)

# Elements of the largest intermediate of a prediction.
_CHUNK_ELEMENTS = 2**22


def check_held_out(rows: SurvivalData, train: SurvivalData, scoring: object) -> None:
    """Make sure, before any training, that a score is defined for these rows.

    Raises:
        DataError: no two rows can be compared, their follow-up is too short, or they entered late and the
            score knows no entry.
    """
    if scoring == "log_likelihood":
        return
    if rows.entry.any():
        raise DataError(
            f"scoring={scoring!r} takes every row as observed from time zero, and some entered later: use "
            "scoring='log_likelihood'"
        )
    if isinstance(scoring, str):
        _curve_score(rows, train, scoring, lambda times: np.full((len(rows), len(times)), 0.5))


class HeldOutRows:
    """Rows of a fold that its trees were not trained on, encoded once for all of them.

    Args:
        rows: the rows left out.
        train: the fold's training rows, from which censoring weights come.
        preprocessor: fitted on the training rows.
        scoring: ``"log_likelihood"``, mean per row; ``"c_harrell"``, concordance of the curves; ``"ibs"``,
            the integrated Brier score of convention ``"graf"`` with its sign turned.
        prediction: as in :class:`~sstorch.SoftSurvivalTree`.
    """

    def __init__(
        self,
        rows: SurvivalData,
        train: SurvivalData,
        preprocessor: Preprocessor,
        scoring: str,
        prediction: Prediction,
    ) -> None:
        self._rows, self._train = rows, train
        self._x = torch.as_tensor(preprocessor.transform(rows.frame))
        self._scoring, self._prediction = scoring, prediction

    def score(self, tree: SoftTree) -> float:
        """Score of one trained tree without batch dimension; greater is better, and -inf is possible."""
        if self._scoring == "log_likelihood":
            return self._log_likelihood(tree)
        return _curve_score(self._rows, self._train, self._scoring, lambda times: self._curves(tree, times))

    @torch.no_grad()
    def _log_likelihood(self, tree: SoftTree) -> float:
        rows, like = self._rows, tree.log_time_scale
        x, at = self._x.to(like), torch.as_tensor(rows.time, device=like.device)[:, None]
        hazard = tree.cumulative_hazard(x, at, self._prediction)
        log_hazard = tree.log_hazard(x, at, self._prediction)
        if rows.entry.any():
            entry = torch.as_tensor(rows.entry, device=like.device)[:, None]
            hazard = hazard - tree.cumulative_hazard(x, entry, self._prediction)
        parts = (part[:, 0].double().cpu().numpy() for part in (hazard, log_hazard))
        return metrics.log_likelihood(rows.event, *parts, sample_weight=rows.sample_weight)

    @torch.no_grad()
    def _curves(self, tree: SoftTree, times: FloatArray) -> FloatArray:
        like = tree.log_time_scale
        width = 2**tree.topology.depth if self._prediction == "mixture" else 1
        size = max(1, _CHUNK_ELEMENTS // (width * len(times)))
        at = torch.as_tensor(times, device=like.device)
        parts = [tree.survival(x, at, self._prediction).cpu() for x in self._x.to(like).split(size)]
        curves: FloatArray = torch.cat(parts).double().numpy()
        return np.minimum.accumulate(curves, axis=1) if tree.family.can_rise else curves


def _curve_score(
    rows: SurvivalData, train: SurvivalData, scoring: str, curves: Callable[[FloatArray], FloatArray]
) -> float:
    weight = rows.sample_weight
    if scoring == "c_harrell":
        times = np.unique(rows.time[rows.event])
        if len(times) == 0:
            raise DataError(
                "no row left out has an event, so no two rows can be compared: choose fewer folds"
            )
        return metrics.concordance_harrell(rows.time, rows.event, curves(times), times, sample_weight=weight)
    grid = metrics.evaluation_times(rows.time, train.time, "graf")
    return -metrics.integrated_brier_score(
        rows.time,
        rows.event,
        curves(grid),
        grid,
        train=(train.time, train.event),
        convention="graf",
        sample_weight=weight,
    )
