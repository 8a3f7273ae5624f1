"""Tests of what a fitted regression leaves out: score tests, and likelihood-ratio tests of few features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from scipy.stats import chi2
from torch import Tensor

from sstorch.inference import HazardRows
from sstorch.inference.added import AddedFeatures
from sstorch.nn import DesignMatrix

# Share of a direction's information that the model must leave free, else it has the direction already.
_FREE = 1e-6


@dataclass(frozen=True)
class ScoreTest:
    """Scores of features that are not in the model, at zero, and their covariance."""

    score: Tensor  # derivatives of the log-likelihood in the coefficients of k added features, (k,)
    covariance: Tensor  # of these scores, the coefficients of the model having been estimated, (k, k)
    scale: Tensor  # what scores of features in their own units were divided by, (k,)

    @classmethod
    def of(cls, rows: HazardRows, added: Tensor) -> Self:
        """Of features added to the linear predictor, (n, k), for training rows or their episodes.

        With estimated coefficients theta, Hessian A of all, and precision P of the priors of theta, the
        covariance is A_gg - A_gt (A_tt + P)^-1 A_tg.
        """
        with torch.no_grad():
            gradient, hessian = AddedFeatures.at_zero(rows, added.double()).derivatives()
        new, known = torch.arange(len(hessian) - added.shape[1], len(hessian)), rows.covariance.posterior
        across = hessian[new, : len(known)]
        free = hessian[new[:, None], new] - across @ known @ across.mT
        scale = hessian.diagonal()[new].clamp(min=torch.finfo(hessian.dtype).tiny).sqrt()
        return cls(-gradient[new] / scale, free / scale / scale[:, None], scale)

    @property
    def steps(self) -> tuple[Tensor, Tensor]:
        """One-step estimate of each coefficient alone, and standard error, (k,); NaN without information."""
        information = self.covariance.diagonal()
        information = torch.where(information > _FREE, information, torch.nan)
        return self.score / information / self.scale, 1 / (information.sqrt() * self.scale)

    def test(self, places: list[int] | None = None) -> tuple[float, int, float]:
        """Statistic, degrees of freedom and p-value, of all added features or some.

        Directions that the model has already do not count; the p-value is NaN if none is left.
        """
        chosen = torch.arange(len(self.score)) if places is None else torch.tensor(places)
        score, covariance = self.score[chosen], self.covariance[chosen[:, None], chosen]
        values, vectors = torch.linalg.eigh(covariance)
        good = values > _FREE
        df = int(good.sum())
        if not df:
            return np.nan, 0, np.nan
        statistic = float(((vectors.mT @ score)[good].square() / values[good]).sum())
        return statistic, df, float(chi2.sf(statistic, df))


def likelihood_ratio(rows: HazardRows, added: Tensor) -> tuple[float, int, float]:
    """Statistic, degrees of freedom and p-value of the likelihood-ratio test of added features, (n, k).

    Both fits have the penalties of the model; the second one starts at its estimates. In small samples the
    test holds its level better than the score test, whose observed information varies with the score.
    """
    _, df, p = ScoreTest.of(rows, added).test()
    if not df:
        return np.nan, 0, p
    before, after = AddedFeatures.at_zero(rows, added), AddedFeatures.at_optimum(rows, added)
    statistic = max(2 * (before.value() - after.value()), 0.0)
    return statistic, df, float(chi2.sf(statistic, df))


def episodes(rows: HazardRows, cuts: Tensor) -> tuple[HazardRows, Tensor, Tensor]:
    """Rows cut at ascending log times, (K - 1,); a part enters at a cut and, but for the last, has no event.

    Returns the parts; of which row each is; in which of the K periods, (c, c'], c and c' adjacent cuts.
    """
    sample = rows.sample
    ends = sample.log_time[0]
    entry = torch.full_like(ends, -torch.inf) if sample.log_entry is None else sample.log_entry[0]
    edges = torch.cat([cuts.new_tensor([-torch.inf]), cuts, cuts.new_tensor([torch.inf])])
    lower = torch.maximum(entry[:, None], edges[None, :-1])
    upper = torch.minimum(ends[:, None], edges[None, 1:])
    row, period = (lower < upper).nonzero(as_tuple=True)
    last = upper[row, period] == ends[row]
    x = sample.x.matrices[0][row]
    parts = replace(
        sample,
        x=DesignMatrix(x[None], (1,)),
        log_time=upper[row, period][None],
        event=(sample.event[0, row] * last)[None],
        weight=sample.weight[:, row],
        log_entry=lower[row, period][None],
    )
    return replace(rows, sample=parts, weight=rows.weight[:, row], leaf=rows.leaf[row]), row, period
