"""Restricted means of many rows: numerical integration, and curves at times that all rows share."""

from typing import Any

import numpy as np
import pytest
import torch

from sstorch import PrognosticTree, SurvivalRegression
from sstorch.data import SurvivalData
from sstorch.nn import SurvivalDistribution

MODELS = {
    **{
        leaf: SurvivalRegression(leaf)
        for leaf in ("spline_ph", "spline_po", "spline_probit", "generalized_gamma")
    },
    **{leaf: SurvivalRegression(leaf) for leaf in ("weibull", "log_logistic", "piecewise_exponential")},
    "groups": PrognosticTree(leaf="spline_po"),
}


@pytest.mark.parametrize("name", MODELS)
def test_restricted_means_are_areas_under_curves(name: str, gbsg2: SurvivalData) -> None:
    model = MODELS[name].fit(gbsg2.frame, gbsg2.y)
    rows, (nodes, weights) = gbsg2.frame[:3], np.polynomial.legendre.leggauss(12)
    # Pieces between all event times, where every hazard is smooth, and in octaves elsewhere.
    bends = np.concatenate([gbsg2.event_times, *(2.0 ** np.arange(-20, 16) * k for k in (1, 1.4))])
    for after, tau in ((0.0, 1000.0), (500.0, 1000.0), (0.0, 0.5), (0.0, 20_000.0)):
        inside = bends[(bends > after) & (bends < after + tau)] - after
        edges = np.unique(np.concatenate([[0.0, tau], inside]))
        half = np.diff(edges)[:, None] / 2
        times = np.unique(edges[:-1, None] + half * (1 + nodes))
        curves = model.predict_survival_function(rows, times, after=after)
        areas = curves @ (half * weights).ravel()
        np.testing.assert_allclose(model.predict_rmst(rows, tau, after=after), areas, rtol=1e-8)


@pytest.mark.parametrize("after", [None, 500.0])
def test_all_rows_share_the_times_of_curves(
    after: float | None, gbsg2: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 rows of splines took 7.2 CPU s at 1,700 times of their own each; 501-point curves .4."""
    model, shapes = SurvivalRegression("spline_ph").fit(gbsg2.frame, gbsg2.y), list[torch.Size]()
    expected = model.predict_rmst(gbsg2.frame, 1000.0, after=after)
    survival = SurvivalDistribution.survival

    def counted(self: SurvivalDistribution, times: torch.Tensor) -> torch.Tensor:
        shapes.append(times.shape)
        return survival(self, times)

    def iterated(*_: Any, **__: Any) -> None:
        raise AssertionError("quantiles of rows are not needed")

    monkeypatch.setattr(SurvivalDistribution, "survival", counted)
    monkeypatch.setattr("sstorch.nn.hazards.base.invert", iterated)
    np.testing.assert_allclose(model.predict_rmst(gbsg2.frame, 1000.0, after=after), expected, rtol=1e-12)
    assert max(shape[-1] for shape in shapes) < 501
    assert {shape[-2] for shape in shapes if shape[-1] > 1} == {1}
